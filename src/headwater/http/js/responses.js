// Durable responses: requests that the server makes for a page, with answers that outlive connection and page.

import { eventsOf } from "./events.js";
import { Speaker } from "./relay.js";
import { Backoff, HeadwaterError } from "./requests.js";

/**
 * @typedef {import("./requests.js").Requests} Requests
 * @typedef {{method?: string, headers?: Record<string, string>, body?: BodyInit, signal?: AbortSignal}} FetchOptions
 * @typedef {{offset?: string, signal?: AbortSignal}} PieceOptions
 */

/** A response that the server keeps while it arrives. */
export class DurableResponse {
  #requests;

  /** @param {Requests} requests @param {string} location @param {string} [contentType] */
  constructor(requests, location, contentType = "") {
    this.#requests = requests;
    /** Its signed address: whoever has it can read it, on this device or another. */
    this.location = location;
    /** What the upstream says it is; known once something was read. */
    this.contentType = contentType;
    /** Where reading has got to. */
    this.offset = "-1";
    /** Why it ended early, if it did. */
    this.closeReason = "";
  }

  /**
   * The body as it arrives, from an offset on: each byte once, however often the connection is lost.
   * @param {PieceOptions} [options] @returns {AsyncGenerator<Uint8Array>}
   */
  async *pieces({ offset = "-1", signal } = {}) {
    const backoff = new Backoff();
    this.offset = offset;
    while (!signal?.aborted) {
      try {
        const query = { offset: this.offset, live: "sse" };
        const response = await this.#requests.once("GET", this.location, { query, signal });
        this.contentType = response.headers.get("Upstream-Content-Type") ?? this.contentType;
        const speaker = new Speaker("", this.offset, response.headers.get("Stream-SSE-Data-Encoding") ?? "");
        for await (const { name, data } of eventsOf(response, signal)) {
          backoff.reset();
          const said = !name || name === "data" ? data : JSON.parse(data);
          const news = name && speaker.hear(name, said);
          if (!news) continue;
          if (name === "deleted") throw new HeadwaterError("the response was deleted", { status: 404, code: "STREAM_NOT_FOUND" });
          this.offset = speaker.position;
          if (news.data?.length) yield /** @type {Uint8Array} */ (news.data);
          if (!speaker.over) continue;
          this.closeReason = said.streamCloseReason ?? "";
          return;
        }
      } catch (error) {
        if (signal?.aborted) throw signal.reason;
        if (!(error instanceof HeadwaterError) || !error.isTransient) throw error;
        await backoff.pause(signal, error);
      }
    }
  }

  /** The same as a stream, for what reads those. @returns {ReadableStream<Uint8Array>} */
  get body() {
    const ended = new AbortController();
    const pieces = this.pieces({ signal: ended.signal });
    return new ReadableStream({
      async pull(controller) {
        const { done, value } = await pieces.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      cancel: () => ended.abort(),
    });
  }

  /** The whole body, once it is there. @param {PieceOptions} [options] */
  async text(options) {
    const decoder = new TextDecoder();
    let text = "";
    for await (const piece of this.pieces(options)) text += decoder.decode(piece, { stream: true });
    return text + decoder.decode();
  }

  /** End it. What has arrived stays. */
  async abort() {
    await this.#requests.send("PATCH", this.location, { query: { action: "abort" } });
  }
}

/**
 * Have the server make a request. Resolves when the upstream has begun to answer.
 * @param {Requests} requests @param {string} url @param {FetchOptions} [options]
 */
export async function durableFetch(requests, url, { method = "GET", headers = {}, body, signal } = {}) {
  /** @type {Record<string, string>} */
  const sent = { "Upstream-URL": url, "Upstream-Method": method };
  for (const [name, value] of Object.entries(headers)) {
    // One's own is for this server; this one is for the upstream.
    sent[name.toLowerCase() === "authorization" ? "Upstream-Authorization" : name] = value;
  }
  const response = await requests.once("POST", "/v1/proxy", { headers: sent, body, signal, timeoutMs: 90_000 });
  const location = response.headers.get("Location") ?? "";
  const address = new URL(location, requests.url).href;
  return new DurableResponse(requests, address, response.headers.get("Upstream-Content-Type") ?? "");
}
