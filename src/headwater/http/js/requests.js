// Requests and their failures: what is repeated, for how long, and what a caller is told.

/**
 * @typedef {Record<string, string>} HeaderFields
 * @typedef {HeaderFields | ((again: boolean) => HeaderFields | Promise<HeaderFields>)} HeaderSource
 * @typedef {{
 *   query?: Record<string, string | undefined>, headers?: HeaderFields, body?: BodyInit,
 *   signal?: AbortSignal, timeoutMs?: number, keepalive?: boolean,
 * }} RequestOptions
 */

/** A request that was refused, or got no answer (then its status is 0). */
export class HeadwaterError extends Error {
  /**
   * @param {string} message
   * @param {{status?: number, code?: string, headers?: Headers, index?: number, cause?: unknown}} [about]
   */
  constructor(message, { status = 0, code = "", headers, index, cause } = {}) {
    super(message, { cause });
    this.name = "HeadwaterError";
    this.status = status;
    this.code = code;
    this.headers = headers ?? new Headers();
    /** Which of several was refused. */
    this.index = index;
  }

  /** Whether the same request may succeed a moment later. */
  get isTransient() {
    return [0, 408, 425, 429, 500, 502, 503, 504].includes(this.status);
  }

  /** Whether what was asked for may have happened all the same. */
  get isInDoubt() {
    return this.isTransient && this.status !== 429 && !(this.status === 503 && this.code !== "outcome_unknown");
  }
}

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 10_000;
const ANSWER_MS = 30_000;
// An open event stream gives a sign of life every 15 seconds.
const SILENCE_MS = 45_000;

/** Growing pauses with jitter, so that those who failed together do not come back together. */
export class Backoff {
  #pauseMs = FIRST_PAUSE_MS;

  reset() {
    this.#pauseMs = FIRST_PAUSE_MS;
  }

  /** @param {AbortSignal} [signal] @param {HeadwaterError} [error] */
  async pause(signal, error) {
    const asked = Number(error?.headers.get("Retry-After") ?? 0) * 1000;
    const ms = Math.max(asked, this.#pauseMs * (0.5 + Math.random() / 2));
    this.#pauseMs = Math.min(this.#pauseMs * 2, LONGEST_PAUSE_MS);
    await sleep(ms, signal);
  }
}

/** @param {number} ms @param {AbortSignal} [signal] @returns {Promise<void>} */
export function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const ended = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", ended);
      resolve();
    }, ms);
    signal?.addEventListener("abort", ended, { once: true });
  });
}

/** What a server is asked through: its address, who is asking, and how often it is tried. */
export class Requests {
  #fetch;
  #headers;

  /** @param {{url: string, headers?: HeaderSource, fetch?: typeof fetch, patienceMs?: number}} options */
  constructor({ url, headers = {}, fetch: fetcher, patienceMs = 60_000 }) {
    this.url = url.replace(/\/+$/, "");
    this.patienceMs = patienceMs;
    this.#headers = headers;
    this.#fetch = fetcher ?? globalThis.fetch.bind(globalThis);
  }

  /** Whether callers are told apart by something that does not change. */
  get identity() {
    return typeof this.#headers === "function" ? undefined : JSON.stringify(this.#headers);
  }

  /** @param {string} path @returns the path of a stream as part of an address */
  static path(path) {
    return path.split("/").map(encodeURIComponent).join("/");
  }

  /** @param {string} path @param {Record<string, string | undefined>} [query] */
  address(path, query = {}) {
    const given = Object.entries(query).filter((entry) => entry[1] !== undefined);
    const fields = new URLSearchParams(/** @type {[string, string][]} */ (given)).toString();
    const address = /^https?:/.test(path) ? path : this.url + path;
    return fields ? address + (address.includes("?") ? "&" : "?") + fields : address;
  }

  /**
   * One request. Resolves when the head of the answer is there and says that it succeeded.
   * @param {string} method @param {string} path @param {RequestOptions} [options]
   */
  async once(method, path, options = {}) {
    let response = await this.#attempt(method, path, options, false);
    if (response.status === 401 && typeof this.#headers === "function") {
      // What it was asked with may have expired; whoever gives it out may have a new one.
      await response.body?.cancel();
      response = await this.#attempt(method, path, options, true);
    }
    if (response.ok) return response;
    throw await refusal(response);
  }

  /**
   * The same, again and again while that may help. Only for what may be repeated.
   * @param {string} method @param {string} path @param {RequestOptions} [options]
   */
  send(method, path, options = {}) {
    return this.persist(() => this.once(method, path, options), options.signal);
  }

  /**
   * @template T
   * @param {() => Promise<T>} attempt @param {AbortSignal} [signal]
   * @param {(error: HeadwaterError) => boolean} [again]
   * @returns {Promise<T>}
   */
  async persist(attempt, signal, again = (error) => error.isTransient) {
    const backoff = new Backoff();
    const deadline = Date.now() + this.patienceMs;
    for (;;) {
      try {
        return await attempt();
      } catch (error) {
        if (!(error instanceof HeadwaterError) || !again(error) || Date.now() > deadline) throw error;
        await backoff.pause(signal, error);
      }
    }
  }

  /** @param {string} method @param {string} path @param {RequestOptions} options @param {boolean} again */
  async #attempt(method, path, { query, headers, body, signal, timeoutMs = ANSWER_MS, keepalive }, again) {
    const own = typeof this.#headers === "function" ? await this.#headers(again) : this.#headers;
    const ended = new AbortController();
    const stop = () => ended.abort(signal?.reason);
    if (signal?.aborted) throw signal.reason;
    signal?.addEventListener("abort", stop, { once: true });
    const timer = timeoutMs ? setTimeout(() => ended.abort(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs) : 0;
    try {
      const init = { method, headers: { ...own, ...headers }, body, signal: ended.signal, keepalive };
      return await this.#fetch(this.address(path, query), init);
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      const why = error instanceof Error ? error.message : String(error);
      throw new HeadwaterError(`${method} ${path}: ${why}`, { cause: error });
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
    }
  }
}

/** @param {Response} response */
export async function refusal(response) {
  const { status, headers } = response;
  const text = await response.text().catch(() => "");
  try {
    const { error } = JSON.parse(text);
    return new HeadwaterError(error.message ?? String(error), { status, headers, code: error.code, index: error.index });
  } catch {
    return new HeadwaterError(text.slice(0, 500) || `the server answered ${status}`, { status, headers });
  }
}

/**
 * The body of an answer as it comes, until it ends, the caller gives up, or the server has gone silent.
 * @param {Response} response @param {AbortSignal} [signal] @returns {AsyncGenerator<Uint8Array>}
 */
export async function* piecesOf(response, signal) {
  if (!response.body) return;
  const reader = response.body.getReader();
  const stop = () => reader.cancel().catch(() => {});
  signal?.addEventListener("abort", stop, { once: true });
  try {
    for (;;) {
      const { done, value } = await orSilence(reader.read());
      if (signal?.aborted) throw signal.reason;
      if (done) return;
      yield value;
    }
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    throw error instanceof HeadwaterError ? error : new HeadwaterError(`the answer was cut off: ${error}`, { cause: error });
  } finally {
    signal?.removeEventListener("abort", stop);
    stop();
  }
}

/** @template T @param {Promise<T>} reading @returns {Promise<T>} */
async function orSilence(reading) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const silence = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new HeadwaterError("the server has gone silent")), SILENCE_MS);
  });
  try {
    return /** @type {T} */ (await Promise.race([reading, silence]));
  } finally {
    clearTimeout(timer);
  }
}

/** @param {Response} response @param {AbortSignal} [signal] */
export async function bytesOf(response, signal) {
  const pieces = [];
  for await (const piece of piecesOf(response, signal)) pieces.push(piece);
  const bytes = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    bytes.set(piece, at);
    at += piece.length;
  }
  return bytes;
}

/** @param {Response} response @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function jsonOf(response, signal) {
  return JSON.parse(new TextDecoder().decode(await bytesOf(response, signal)));
}

/** @param {string} contentType */
export function isJson(contentType) {
  return contentType.split(";")[0].trim().toLowerCase() === "application/json";
}
