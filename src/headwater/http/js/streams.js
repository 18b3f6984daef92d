// Streams: create, append, read, follow.

import { Backoff, bytesOf, HeadwaterError, isJson, Requests } from "./requests.js";
import { Producer } from "./producer.js";
import { State } from "./state.js";
import { Group } from "./groups.js";
import { LiveStream } from "./live.js";

/**
 * @typedef {import("./tabs.js").Tabs} Tabs
 * @typedef {import("./tabs.js").News} News
 * @typedef {{offset?: string, signal?: AbortSignal}} ReadOptions
 * @typedef {{contentType?: string, ttlSeconds?: number, version?: number, closed?: boolean}} CreateOptions
 */

export const START = "-1";
export const NOW = "now";

/** A piece of a stream, and where it leads. */
export class Batch {
  #data;
  #contentType;

  /** @param {string | Uint8Array} data @param {string} contentType @param {{offset: string, upToDate: boolean, closed: boolean}} place */
  constructor(data, contentType, { offset, upToDate, closed }) {
    this.#data = data;
    this.#contentType = contentType;
    /** Where to go on. */
    this.offset = offset;
    /** Whether this was everything, for now. */
    this.upToDate = upToDate;
    /** Whether nothing will ever follow. */
    this.closed = closed;
  }

  /** What it holds, if the stream holds JSON. @returns {any[]} */
  get messages() {
    if (!isJson(this.#contentType)) throw new TypeError(`a stream of ${this.#contentType} has no messages; use bytes or text`);
    return this.text ? JSON.parse(this.text) : [];
  }

  get text() {
    return typeof this.#data === "string" ? this.#data : new TextDecoder().decode(this.#data);
  }

  get bytes() {
    return typeof this.#data === "string" ? new TextEncoder().encode(this.#data) : this.#data;
  }

  /** Whether it holds nothing, and only says where the stream is. */
  get isEmpty() {
    return this.#data.length === 0 || (isJson(this.#contentType) && this.text === "[]");
  }
}

export class Stream {
  #requests;
  #tabs;
  /** @type {string | undefined} */
  #contentType;

  /** @param {Requests} requests @param {Tabs} tabs @param {string} path */
  constructor(requests, tabs, path) {
    this.#requests = requests;
    this.#tabs = tabs;
    this.path = path;
    this.url = `/v1/stream/${Requests.path(path)}`;
  }

  /** Create the stream, if it is not there. @param {CreateOptions} [options] */
  async create({ contentType = "application/json", ttlSeconds, version, closed } = {}) {
    /** @type {Record<string, string>} */
    const headers = { "Content-Type": contentType };
    if (ttlSeconds !== undefined) headers["Stream-TTL"] = String(ttlSeconds);
    if (version !== undefined) headers["Stream-Config-Version"] = String(version);
    if (closed) headers["Stream-Closed"] = "true";
    const response = await this.#requests.send("PUT", this.url, { headers });
    this.#contentType = contentType;
    return { created: response.status === 201, offset: response.headers.get("Stream-Next-Offset") ?? "" };
  }

  /** Look at the stream. */
  async info() {
    const { headers } = await this.#requests.send("HEAD", this.url);
    this.#contentType = headers.get("Content-Type") ?? "application/octet-stream";
    return {
      contentType: this.#contentType,
      offset: headers.get("Stream-Next-Offset") ?? "",
      closed: headers.get("Stream-Closed") === "true",
    };
  }

  async contentType() {
    return this.#contentType ?? (await this.info()).contentType;
  }

  /**
   * Append a message; an array is several, stored together. Not repeated when it is not known whether it
   * was stored: a producer can do that.
   * @param {unknown} message JSON, or text or bytes for other streams
   * @param {{id?: string, signal?: AbortSignal}} [options]
   */
  async append(message, { id, signal } = {}) {
    const contentType = await this.contentType();
    /** @type {Record<string, string>} */
    const headers = { "Content-Type": contentType };
    if (id !== undefined) headers["Message-Id"] = id;
    const body = bodyOf(message, contentType);
    const attempt = () => this.#requests.once("POST", this.url, { headers, body, signal });
    const response = await this.#requests.persist(attempt, signal, (error) => error.isTransient && !error.isInDoubt);
    return { offset: response.headers.get("Stream-Next-Offset") ?? "" };
  }

  /** Close the stream for good. */
  async close() {
    await this.#requests.send("POST", this.url, { headers: { "Stream-Closed": "true" } });
  }

  async delete() {
    await this.#requests.send("DELETE", this.url);
  }

  /** Read one piece of the stream. @param {ReadOptions} [options] */
  async read({ offset = START, signal } = {}) {
    return this.#requests.persist(() => this.#read(offset, signal), signal);
  }

  /**
   * What is there, and then what comes, for as long as the stream is there: each message once, across lost
   * connections and restarts of the server. Ends when the stream is closed; throws when it is deleted.
   * @param {ReadOptions} [options] @returns {AsyncGenerator<Batch>}
   */
  async *follow({ offset = START, signal } = {}) {
    const ear = new Ear(this.path, offset);
    /** @type {(() => void) | undefined} */
    let leave;
    try {
      for (let first = true; ; ) {
        const batch = await this.#look(ear, signal);
        ear.position = batch.offset;
        if (!batch.isEmpty || first || batch.closed) yield batch;
        first = false;
        if (batch.closed) return;
        if (!batch.upToDate) continue;
        if (leave) this.#tabs.refresh();
        else leave = this.#tabs.watch(ear);
        for (let news; (news = await ear.next(signal)); ) {
          ear.position = news.offset;
          if (!news.isEmpty || news.closed) yield news;
          if (news.closed) return;
        }
      }
    } catch (error) {
      if (!signal?.aborted) throw error;
    } finally {
      leave?.();
    }
  }

  /** What comes after the position, patiently: a server may take its time to come back. @param {Ear} ear @param {AbortSignal} [signal] */
  async #look(ear, signal) {
    const backoff = new Backoff();
    if (ear.failed) await ear.backoff.pause(signal);
    ear.failed = false;
    for (;;) {
      try {
        const batch = await this.#read(ear.position, signal);
        ear.contentType = this.#contentType ?? "";
        return batch;
      } catch (error) {
        if (!(error instanceof HeadwaterError) || !error.isTransient) throw error;
        await backoff.pause(signal, error);
      }
    }
  }

  /** @param {string} offset @param {AbortSignal} [signal] */
  async #read(offset, signal) {
    const response = await this.#requests.once("GET", this.url, { query: { offset }, signal });
    const { headers } = response;
    this.#contentType = headers.get("Content-Type") ?? "application/octet-stream";
    return new Batch(await bytesOf(response, signal), this.#contentType, {
      offset: headers.get("Stream-Next-Offset") ?? offset,
      upToDate: headers.get("Stream-Up-To-Date") === "true",
      closed: headers.get("Stream-Closed") === "true",
    });
  }

  /** Write every message exactly once. @param {string} [id] @param {import("./producer.js").ProducerOptions} [options] */
  producer(id, options) {
    return new Producer(this.#requests, this, id, options);
  }

  /** The entities of a stream of changes (State Protocol). @param {import("./state.js").StateOptions} [options] */
  state(options) {
    return new State(this, options);
  }

  /** A group of workers that share the messages. @param {string} name */
  group(name) {
    return new Group(this.#requests, this.path, name);
  }

  /** Queries that are run again when their results may have changed. */
  live() {
    return new LiveStream(this.#requests, this.#tabs, this.path);
  }
}

/** Where a follower is, and what it has heard since. */
class Ear {
  contentType = "";
  failed = false;
  backoff = new Backoff();
  /** @type {News[]} */
  #news = [];
  /** @type {(() => void) | undefined} */
  #wake;

  /** @param {string} path @param {string} position */
  constructor(path, position) {
    this.path = path;
    this.position = position;
  }

  /** @returns {import("./tabs.js").Want} */
  want() {
    return { kind: "stream", path: this.path, position: this.#news.at(-1)?.to ?? this.position };
  }

  /** @param {News} news */
  tell(news) {
    // A reader that takes its time needs only to know that there is more.
    if (this.#news.length >= 100) this.#news = [{ kind: "stream", path: this.path }];
    this.#news.push(news);
    this.#wake?.();
  }

  /** The next piece from here, or undefined if the server has to be asked. @param {AbortSignal} [signal] */
  async next(signal) {
    for (;;) {
      const news = this.#news.shift();
      if (!news) await this.#something(signal);
      else if (news.to === undefined || (news.from !== this.position && news.to !== this.position)) {
        this.failed = Boolean(news.failed);
        this.#news = [];
        return undefined;
      } else if (news.from === this.position) {
        this.backoff.reset();
        if (news.data !== undefined || news.closed) return this.#batch(news);
        this.position = news.to;
      }
    }
  }

  /** @param {News} news */
  #batch({ data = "", to = "", upToDate = false, closed = false }) {
    return new Batch(data, this.contentType, { offset: to, upToDate, closed });
  }

  /** @param {AbortSignal} [signal] @returns {Promise<void>} */
  #something(signal) {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const ended = () => reject(signal?.reason);
      signal?.addEventListener("abort", ended, { once: true });
      this.#wake = () => {
        this.#wake = undefined;
        signal?.removeEventListener("abort", ended);
        resolve();
      };
    });
  }
}

/** @param {unknown} message @param {string} contentType @returns {BodyInit} */
export function bodyOf(message, contentType) {
  if (isJson(contentType)) {
    const text = JSON.stringify(message);
    if (text === undefined) throw new TypeError("the message has no JSON form");
    return text;
  }
  if (typeof message === "string" || message instanceof Uint8Array) return /** @type {BodyInit} */ (message);
  throw new TypeError(`a stream of ${contentType} takes text or bytes`);
}
