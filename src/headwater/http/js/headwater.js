// Headwater in a browser: durable streams without a build step.
//
//   import { Headwater } from "/js/headwater.js";
//
//   const orders = new Headwater().stream("orders");
//   for await (const batch of orders.follow()) console.log(batch.messages);

import { transact } from "./groups.js";
import { Requests } from "./requests.js";
import { durableFetch, DurableResponse } from "./responses.js";
import { Stream } from "./streams.js";
import { Tabs } from "./tabs.js";

export { Fold } from "./folding.js";
export { Delivery, Group } from "./groups.js";
export { encodeValue, keyId, keyset, membershipKey, projectedKey, tableKey, templateId, templateKey, watchKey } from "./keys.js";
export { LiveStream } from "./live.js";
export { Producer } from "./producer.js";
export { HeadwaterError } from "./requests.js";
export { DurableResponse } from "./responses.js";
export { Collection, State } from "./state.js";
export { Batch, NOW, START, Stream } from "./streams.js";

/**
 * @typedef {{
 *   url?: string, headers?: import("./requests.js").HeaderSource, fetch?: typeof fetch, patienceMs?: number,
 *   share?: string | boolean,
 * }} HeadwaterOptions
 */

/** A server. Making one costs nothing and sends nothing. */
export class Headwater {
  #requests;
  #tabs;

  /** @param {HeadwaterOptions} [options] */
  constructor({ url = own(), headers, fetch: fetcher, patienceMs, share = true } = {}) {
    this.#requests = new Requests({ url, headers, fetch: fetcher, patienceMs });
    // Tabs that ask as someone else must not be shown what this one may see.
    const group = typeof share === "string" ? share : share ? this.#requests.identity : undefined;
    this.#tabs = new Tabs(this.#requests, group);
  }

  get url() {
    return this.#requests.url;
  }

  /** Whether this tab holds the connection that all tabs share. */
  get isLeader() {
    return this.#tabs.isLeader;
  }

  /** @param {string} path */
  stream(path) {
    return new Stream(this.#requests, this.#tabs, path);
  }

  /** Acknowledge and publish, all or nothing. @param {Parameters<typeof transact>[1]} parts */
  transaction(parts) {
    return transact(this.#requests, parts);
  }

  /**
   * Have the server make a request, and keep the answer while it arrives.
   * @param {string} url @param {import("./responses.js").FetchOptions} [options]
   */
  fetch(url, options) {
    return durableFetch(this.#requests, url, options);
  }

  /** A response that was made before, here or elsewhere. @param {string} location its signed address */
  response(location) {
    return new DurableResponse(this.#requests, location);
  }

  /** End everything that goes on. */
  close() {
    this.#tabs.close();
  }
}

/** The server that this module came from. */
function own() {
  const { protocol, origin } = new URL(import.meta.url);
  if (!protocol.startsWith("http")) throw new TypeError("say where the server is: new Headwater({ url })");
  return origin;
}
