// Requests to the server that this page came from.

const TOKEN = "headwater-token";
/** What happens to the window when the server does not know who is asking, or does not any more. */
export const REFUSED = "headwater-refused";
const CHUNK_BYTES = 1024 * 1024;
const VALUE_CHARS_MAX = 256 * 1024;

/** What the server said instead of an answer. */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {string} code
   * @param {string} message
   */
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;
/** @param {string} token */
export const setToken = (token) => sessionStorage.setItem(TOKEN, token);
export const dropToken = () => sessionStorage.removeItem(TOKEN);

/** @param {string} path */
export const streamUrl = (path) => `/v1/stream/${path.split("/").map(encodeURIComponent).join("/")}`;

/**
 * Send a request; anything but success is an ApiError with the server's own words.
 * @param {string} method
 * @param {string} url
 * @param {{body?: BodyInit, headers?: Record<string, string>, signal?: AbortSignal}} [options]
 */
export async function send(method, url, { body, headers = {}, signal } = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const known = token ? { Authorization: `Bearer ${token}`, ...headers } : headers;
  const response = await fetch(url, { method, body, signal, headers: known, cache: "no-store" }).catch((error) => {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "no answer", "The server does not answer. The page tries again by itself.");
  });
  if (response.ok) return response;
  if (response.status === 401) dispatchEvent(new Event(REFUSED));
  const problem = await response.json().catch(() => ({}));
  const { code = `HTTP ${response.status}`, message = response.statusText } = problem.error ?? problem;
  throw new ApiError(response.status, String(code), String(message));
}

/**
 * @param {string} url
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export const get = async (url, signal) => (await send("GET", url, { signal })).json();

/**
 * @param {string} url
 * @param {unknown} body
 * @param {AbortSignal} [signal]
 */
export const post = (url, body, signal) => sendJson("POST", url, body, signal);

/**
 * @param {string} method
 * @param {string} url
 * @param {unknown} body
 * @param {AbortSignal} [signal]
 */
export const sendJson = (method, url, body, signal) =>
  send(method, url, { body: JSON.stringify(body), headers: { "Content-Type": "application/json" }, signal });

/**
 * A message as `_bulk` gives it. JSON stays the text that it was sent as: a number in it may be more than a Number.
 * @typedef {{offset: string, index: number, timestamp: number, text?: string, base64?: string, size: number,
 *   cut: boolean, matches: boolean, producer?: {id: string, epoch: number, seq: number}, id?: string}} Message
 */

/**
 * Asks something about the whole of a message, before what is too long for a page is cut.
 * @typedef {(row: {text?: string, base64?: string}) => boolean} Test
 */

/**
 * Messages from an offset on, as many as one answer holds, and where they end.
 * @param {string} path
 * @param {{offset: string, until?: string, producers?: boolean, bytes?: number, whole?: boolean, test?: Test}} where
 * @param {AbortSignal} signal
 * @returns {Promise<{rows: Message[], next: string, bytes: number}>}
 */
export async function messages(path, { offset, until, producers = false, bytes = CHUNK_BYTES, whole = false, test }, signal) {
  const query = new URLSearchParams({ offset, max_bytes: String(bytes) });
  if (until !== undefined) query.set("until", until);
  if (producers) query.set("headers", "true");
  const response = await send("GET", `${streamUrl(path)}/_bulk?${query}`, { signal });
  const text = await response.text();
  const rows = text.split("\n").filter(Boolean).map((line) => parseLine(line, whole, test));
  return { rows, next: response.headers.get("Stream-Next-Offset") ?? offset, bytes: text.length };
}

/**
 * @param {string} line
 * @param {boolean} whole
 * @param {Test} [test]
 * @returns {Message}
 */
function parseLine(line, whole, test) {
  const at = line.indexOf(',"value":');
  const fields = JSON.parse(at < 0 ? line : `${line.slice(0, at)}}`);
  const content = at < 0 ? fields.data ?? "" : line.slice(at + 9, -1);
  const cut = !whole && content.length > VALUE_CHARS_MAX;
  // A copy, or a few characters of it would keep the whole answer in memory.
  const kept = cut ? [...content.slice(0, VALUE_CHARS_MAX - (VALUE_CHARS_MAX % 4))].join("") : content;
  const { offset, index, timestamp } = fields;
  const producer = fields.producer_id == null ? fields.producer ?? undefined : producerOf(fields);
  const size = at < 0 ? Math.floor((content.length * 3) / 4) - (/=*$/.exec(content)?.[0].length ?? 0) : content.length;
  const id = fields.message_id ?? undefined;
  const form = at < 0 ? "base64" : "text";
  const matches = test?.({ [form]: content }) ?? true;
  return { offset, index, timestamp, [form]: kept, size, cut, matches, producer, id };
}

/** @param {any} fields */
const producerOf = (fields) => ({ id: fields.producer_id, epoch: fields.producer_epoch, seq: fields.producer_seq });

/**
 * A place in a stream: an offset, and how many messages to leave out there.
 * @typedef {{offset: string, skip: number}} Place
 */

/**
 * @param {string} path
 * @param {Record<string, string | number>} question
 * @param {AbortSignal} signal
 * @returns {Promise<any>}
 */
export function position(path, question, signal) {
  const query = new URLSearchParams(Object.entries(question).map(([name, value]) => [name, String(value)]));
  return get(`${streamUrl(path)}/_position?${query}`, signal);
}

/**
 * Resolves when there is something after an offset, or the server has waited long enough.
 * @param {string} path
 * @param {string} offset
 * @param {AbortSignal} signal
 */
export async function news(path, offset, signal) {
  const query = new URLSearchParams({ offset, live: "long-poll" });
  const response = await send("GET", `${streamUrl(path)}?${query}`, { signal });
  await response.body?.cancel();
  return { closed: response.headers.has("Stream-Closed") };
}

/**
 * The server's figures: name → sum over labels, and name{labels} → value.
 * @param {AbortSignal} signal
 */
export async function metrics(signal) {
  const text = await (await send("GET", "/metrics", { signal })).text();
  /** @type {Map<string, number>} */
  const found = new Map();
  for (const line of text.split("\n")) {
    if (!line || line.startsWith("#")) continue;
    const cut = line.lastIndexOf(" ");
    const whole = line.slice(0, cut);
    const value = Number(line.slice(cut + 1));
    const name = whole.split("{")[0] ?? "";
    found.set(name, (found.get(name) ?? 0) + value);
    if (whole !== name) found.set(whole, value);
  }
  return found;
}
