// An idempotent producer: every message is stored once, in order, however often it has to be sent.

import { Backoff, HeadwaterError, isJson } from "./requests.js";

/**
 * @typedef {{
 *   epoch?: number, lingerMs?: number, maxBatchBytes?: number, maxBufferBytes?: number, giveUpAfterMs?: number,
 * }} ProducerOptions
 * @typedef {{offset: string, duplicate: boolean}} Receipt
 * @typedef {{
 *   data: Uint8Array, resolve: (receipt: Receipt) => void, reject: (error: unknown) => void,
 * }} Waiting
 */

const encoder = new TextEncoder();
const [OPEN, COMMA, CLOSE] = encoder.encode("[,]");

/**
 * Messages that wait go together in one request; while it is under way, the next ones gather. What cannot
 * be sent stops the producer: those after it fail too, since storing them would leave a hole.
 */
export class Producer {
  #requests;
  #stream;
  #options;
  /** @type {Waiting[]} */
  #waiting = [];
  #buffered = 0;
  /** When the last message is among those that wait. @type {Promise<void>} */
  #entered = Promise.resolve();
  #seq = 0;
  /** Whether the epoch is a guess: a name may have been used with any other. */
  #claims;
  /** @type {unknown} */
  #stopped;
  /** @type {Promise<void> | undefined} */
  #sending;
  #hurry = false;
  /** @type {(() => void) | undefined} */
  #linger;

  /**
   * @param {import("./requests.js").Requests} requests @param {import("./streams.js").Stream} stream
   * @param {string} [id] @param {ProducerOptions} [options]
   */
  constructor(requests, stream, id, options = {}) {
    this.#requests = requests;
    this.#stream = stream;
    this.#options = { lingerMs: 5, maxBatchBytes: 1 << 20, maxBufferBytes: 16 << 20, giveUpAfterMs: 120_000, ...options };
    this.#claims = id !== undefined && options.epoch === undefined;
    this.id = id ?? crypto.randomUUID();
    this.epoch = options.epoch ?? (this.#claims ? Date.now() : 0);
  }

  /** How much is not stored yet. */
  get bufferedBytes() {
    return this.#buffered;
  }

  /**
   * Take a message. Resolves when it is stored.
   * @param {unknown} message @returns {Promise<Receipt>}
   */
  append(message) {
    const stored = this.#append(message);
    // Whoever ignores it learns of a failure from `flush`.
    stored.catch(() => {});
    return stored;
  }

  /** @param {unknown} message @returns {Promise<Receipt>} */
  async #append(message) {
    if (this.#stopped !== undefined) throw stopped(this.#stopped);
    // As it is now: its owner may change it while it waits.
    const form = typeof message === "string" || message instanceof Uint8Array ? message : elements(message);
    const entered = this.#entered.then(() => this.#enter(form));
    this.#entered = entered.then(() => {}, () => {});
    return (await entered).stored;
  }

  /** Put it where the next batch is taken from. @param {string | Uint8Array | string[]} form */
  async #enter(form) {
    const data = encode(form, await this.#stream.contentType());
    if (this.#stopped !== undefined) throw stopped(this.#stopped);
    if (this.#buffered && this.#buffered + data.length > this.#options.maxBufferBytes) {
      throw new HeadwaterError("the producer's buffer is full; wait for what was appended before", { code: "buffer_full" });
    }
    this.#buffered += data.length;
    /** @type {Promise<Receipt>} */
    const stored = new Promise((resolve, reject) => this.#waiting.push({ data, resolve, reject }));
    stored.catch(() => {});
    this.#sending ??= this.#send();
    return { stored };
  }

  /** Wait until everything appended so far is stored; throws if something could not be. */
  async flush() {
    this.#hurry = true;
    this.#linger?.();
    await this.#entered;
    await this.#sending;
    this.#hurry = false;
    if (this.#stopped !== undefined && !(this.#stopped instanceof Closed)) throw this.#stopped;
  }

  /** Flush, and take no more. */
  async close() {
    await this.flush();
    this.#stopped ??= new Closed();
  }

  async #send() {
    // Not before the next turn, so that `#sending` is set.
    await Promise.resolve();
    try {
      while (this.#waiting.length) {
        if (!this.#hurry) await this.#gather();
        const batch = this.#take();
        const receipt = await this.#deliver(batch);
        this.#seq += 1;
        this.#claims = false;
        for (const one of batch) {
          this.#buffered -= one.data.length;
          one.resolve(receipt);
        }
      }
    } catch (error) {
      this.#stopped = error;
    }
    this.#sending = undefined;
    if (this.#stopped === undefined) return;
    for (const one of this.#waiting.splice(0)) one.reject(stopped(this.#stopped));
    this.#buffered = 0;
  }

  /** @returns {Promise<void>} */
  #gather() {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, this.#options.lingerMs);
      this.#linger = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #take() {
    let size = 0;
    const fits = this.#waiting.findIndex(({ data }) => (size += data.length) > this.#options.maxBatchBytes);
    return this.#waiting.splice(0, fits < 0 ? this.#waiting.length : Math.max(fits, 1));
  }

  /** @param {Waiting[]} batch @returns {Promise<Receipt>} */
  async #deliver(batch) {
    try {
      return await this.#persist(batch);
    } catch (error) {
      for (const one of batch) one.reject(error);
      throw error;
    }
  }

  /** @param {Waiting[]} batch @returns {Promise<Receipt>} */
  async #persist(batch) {
    const deadline = Date.now() + this.#options.giveUpAfterMs;
    const backoff = new Backoff();
    for (;;) {
      try {
        const contentType = await this.#stream.contentType();
        return await this.#attempt(bodyOf(batch, contentType), contentType);
      } catch (error) {
        if (!(error instanceof HeadwaterError)) throw error;
        const current = Number(error.headers.get("Producer-Epoch") ?? NaN);
        if (this.#claims && error.status === 403 && current >= this.epoch) {
          this.epoch = current + 1;
        } else if (error.isTransient && Date.now() < deadline) {
          await backoff.pause(undefined, error);
        } else throw error;
      }
    }
  }

  /** @param {Uint8Array} body @param {string} contentType @returns {Promise<Receipt>} */
  async #attempt(body, contentType) {
    const headers = {
      "Content-Type": contentType,
      "Producer-Id": this.id,
      "Producer-Epoch": String(this.epoch),
      "Producer-Seq": String(this.#seq),
    };
    // What a page sends while it goes away still arrives, if it is small.
    const leaving = globalThis.document?.visibilityState === "hidden" && body.length < 32_000;
    const options = { headers, body: /** @type {BodyInit} */ (body), keepalive: leaving };
    const response = await this.#requests.once("POST", this.#stream.url, options);
    return { offset: response.headers.get("Stream-Next-Offset") ?? "", duplicate: response.status === 204 };
  }
}

class Closed extends HeadwaterError {
  constructor() {
    super("the producer is closed", { code: "producer_closed" });
  }
}

/** @param {unknown} cause */
function stopped(cause) {
  if (cause instanceof Closed) return cause;
  return new HeadwaterError(`the producer has stopped: ${cause}`, { code: "producer_stopped", cause });
}

/** @param {unknown} message */
function elements(message) {
  const all = (Array.isArray(message) ? message : [message]).map((one) => JSON.stringify(one));
  if (!all.length || all.includes(/** @type {any} */ (undefined))) throw new TypeError("the message has no JSON form");
  return all;
}

/** @param {string | Uint8Array | string[]} form @param {string} contentType */
function encode(form, contentType) {
  if (isJson(contentType)) {
    if (form instanceof Uint8Array) throw new TypeError("a stream of JSON takes no bytes");
    return encoder.encode(typeof form === "string" ? JSON.stringify(form) : form.join());
  }
  if (Array.isArray(form)) throw new TypeError(`a stream of ${contentType} takes text or bytes`);
  return typeof form === "string" ? encoder.encode(form) : form;
}

/** One body for all of them. @param {Waiting[]} batch @param {string} contentType */
function bodyOf(batch, contentType) {
  const json = isJson(contentType);
  const body = new Uint8Array(batch.reduce((sum, { data }) => sum + data.length + (json ? 1 : 0), json ? 1 : 0));
  let at = 0;
  for (const { data } of batch) {
    if (json) body[at++] = at === 1 ? OPEN : COMMA;
    body.set(data, at);
    at += data.length;
  }
  if (json) body[at] = CLOSE;
  return body;
}
