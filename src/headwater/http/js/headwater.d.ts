// What the browser module offers. A test holds it against the module itself.

export type Encoding = "string" | "int64" | "bool" | "datetime" | "bytes";

export interface HeadwaterOptions {
  /** Where the server is; by default, where this module came from. */
  url?: string;
  /** Sent with every request. A function is called for each, and again with `true` after a 401. */
  headers?: Record<string, string> | ((again: boolean) => Record<string, string> | Promise<Record<string, string>>);
  fetch?: typeof fetch;
  /** How long a request is tried again while the server does not answer; 60 seconds. */
  patienceMs?: number;
  /** The tabs that share a connection: those with equal headers (`true`), a name, or none (`false`). */
  share?: string | boolean;
}

export declare class Headwater {
  constructor(options?: HeadwaterOptions);
  readonly url: string;
  readonly isLeader: boolean;
  stream(path: string): Stream;
  transaction(parts: { ack?: Delivery[]; group?: Group; publish?: Publish[] }): Promise<any>;
  /** Have the server make a request, and keep the answer while it arrives. */
  fetch(url: string, options?: FetchOptions): Promise<DurableResponse>;
  response(location: string): DurableResponse;
  close(): void;
}

export interface FetchOptions {
  method?: string;
  /** Sent on to the upstream, `Authorization` too. */
  headers?: Record<string, string>;
  body?: BodyInit;
  signal?: AbortSignal;
}

export declare class DurableResponse {
  readonly location: string;
  readonly contentType: string;
  readonly offset: string;
  /** Why it ended early, if it did. */
  readonly closeReason: string;
  readonly body: ReadableStream<Uint8Array>;
  pieces(options?: ReadOptions): AsyncGenerator<Uint8Array>;
  text(options?: ReadOptions): Promise<string>;
  abort(): Promise<void>;
}

export declare class HeadwaterError extends Error {
  /** 0 if there was no answer. */
  readonly status: number;
  readonly code: string;
  readonly headers: Headers;
  readonly index: number | undefined;
  readonly isTransient: boolean;
  readonly isInDoubt: boolean;
}

export declare const START: string;
export declare const NOW: string;

export declare class Batch {
  readonly messages: any[];
  readonly text: string;
  readonly bytes: Uint8Array;
  readonly offset: string;
  readonly upToDate: boolean;
  readonly closed: boolean;
  readonly isEmpty: boolean;
}

export interface ReadOptions {
  offset?: string;
  signal?: AbortSignal;
}

export declare class Stream {
  readonly path: string;
  readonly url: string;
  create(options?: {
    contentType?: string;
    ttlSeconds?: number;
    version?: number;
    closed?: boolean;
  }): Promise<{ created: boolean; offset: string }>;
  info(): Promise<{ contentType: string; offset: string; closed: boolean }>;
  contentType(): Promise<string>;
  append(message: unknown, options?: { id?: string; signal?: AbortSignal }): Promise<{ offset: string }>;
  close(): Promise<void>;
  delete(): Promise<void>;
  read(options?: ReadOptions): Promise<Batch>;
  follow(options?: ReadOptions): AsyncGenerator<Batch>;
  producer(id?: string, options?: ProducerOptions): Producer;
  state(options?: StateOptions): State;
  group(name: string): Group;
  live(): LiveStream;
}

export interface ProducerOptions {
  epoch?: number;
  /** How long a message may wait for others to share its request; 5 ms. */
  lingerMs?: number;
  maxBatchBytes?: number;
  maxBufferBytes?: number;
  /** When it gives up, the producer stops; two minutes. */
  giveUpAfterMs?: number;
}

export declare class Producer {
  readonly id: string;
  readonly epoch: number;
  readonly bufferedBytes: number;
  append(message: unknown): Promise<{ offset: string; duplicate: boolean }>;
  flush(): Promise<void>;
  close(): Promise<void>;
}

export interface ChangeRecord {
  type: string;
  key: string;
  value?: any;
  old_value?: any;
  headers: { operation?: string; control?: string; offset?: string; txid?: string; [name: string]: unknown };
}

/** Sends changes to where they are stored. May return another id for the transaction. */
export type Writer = (changes: ChangeRecord[], txid: string) => Promise<string | void>;

export interface StateOptions {
  /** By default, changes are appended to the stream. */
  write?: Writer;
  /** How long a write may take to come back in the stream; 30 seconds. */
  confirmWithinMs?: number;
  onError?: (error: unknown) => void;
}

export declare class State {
  readonly ready: Promise<void>;
  readonly pending: number;
  collection(type: string): Collection;
  entities(type: string): Map<string, any>;
  subscribe(listener: () => void): () => void;
  change(changes: ChangeRecord[], options?: { txid?: string; write?: Writer }): Promise<void>;
  close(): void;
}

export declare class Collection {
  readonly type: string;
  readonly entries: Map<string, any>;
  readonly values: any[];
  readonly size: number;
  get(key: string): any;
  subscribe(listener: (entries: Map<string, any>) => void): () => void;
  insert(key: string, value: any): Promise<void>;
  update(key: string, value: any): Promise<void>;
  upsert(key: string, value: any): Promise<void>;
  delete(key: string): Promise<void>;
}

export declare class Fold {
  entities: Map<string, Map<string, any>>;
  apply(messages: ChangeRecord[], offset?: string): void;
}

export interface GroupSettings {
  durable?: boolean;
  start?: string;
  max_in_flight?: number;
  ack_timeout_ms?: number;
  max_deliveries?: number;
  dead_letter?: string | null;
  order_by?: string | null;
  version?: number;
}

export interface Publish {
  stream: string;
  value?: unknown;
  data?: string;
  id?: string;
  on_duplicate?: "abort" | "succeed";
}

export declare class Group {
  readonly stream: string;
  readonly name: string;
  ensure(settings?: GroupSettings): Promise<any>;
  info(): Promise<any>;
  delete(): Promise<void>;
  fetch(options: { consumer: string; max?: number; waitMs?: number; signal?: AbortSignal }): Promise<Delivery[]>;
  consume(options?: { consumer?: string; max?: number; signal?: AbortSignal }): AsyncGenerator<Delivery>;
  ack(deliveries: Delivery[]): Promise<void>;
}

export declare class Delivery {
  readonly id: string;
  readonly offset: string;
  readonly deliveries: number;
  readonly receipt: string;
  readonly value: any;
  readonly bytes: Uint8Array | undefined;
  ack(): Promise<void>;
  nack(delayMs?: number): Promise<void>;
  reject(): Promise<void>;
  extend(ms: number): Promise<void>;
}

export interface KeysetOptions {
  /** The other fields that the result depends on; all of them if left out. */
  project?: string[];
  /** The result depends only on which rows match, as a count does. */
  membershipOnly?: boolean;
  encodings?: Record<string, Encoding>;
}

export interface QueryOptions extends KeysetOptions {
  entity: string;
  where?: Record<string, unknown>;
  signal?: AbortSignal;
}

export declare class LiveStream {
  enable(touch?: Record<string, unknown>): Promise<void>;
  query<T>(run: () => T | Promise<T>, options: QueryOptions): AsyncGenerator<T>;
}

export interface Keyset {
  entity: string;
  keys: string[];
  table: string;
  template?: { entity: string; fields: { name: string; encoding: Encoding }[] };
  templateId?: string;
}

export declare function keyset(entity: string, where?: Record<string, unknown>, options?: KeysetOptions): Keyset;
export declare function encodeValue(value: unknown, encoding: Encoding): string | undefined;
export declare function tableKey(entity: string): string;
export declare function templateId(entity: string, fields: string[]): string;
export declare function templateKey(template: string): string;
export declare function watchKey(template: string, values: string[]): string;
export declare function membershipKey(template: string, values: string[]): string;
export declare function projectedKey(template: string, field: string, values: string[]): string;
export declare function keyId(text: string): number;
