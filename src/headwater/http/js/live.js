// Live queries: run again whenever their results may have changed.

import { keyset } from "./keys.js";
import { Backoff, HeadwaterError, jsonOf, Requests } from "./requests.js";

/**
 * @typedef {import("./tabs.js").Tabs} Tabs
 * @typedef {import("./tabs.js").News} News
 * @typedef {import("./keys.js").KeysetOptions & {entity: string, where?: Record<string, unknown>, signal?: AbortSignal}} QueryOptions
 */

export class LiveStream {
  #requests;
  #tabs;
  #path;
  #url;

  /** @param {Requests} requests @param {Tabs} tabs @param {string} path */
  constructor(requests, tabs, path) {
    this.#requests = requests;
    this.#tabs = tabs;
    this.#path = path;
    this.#url = `/v1/stream/${Requests.path(path)}`;
  }

  /** Say that the stream holds changes, and that queries may wait for them. @param {Record<string, unknown>} [touch] */
  async enable(touch = {}) {
    const profile = { kind: "state-protocol", touch: { enabled: true, ...touch } };
    await this.#post("/_profile", { apiVersion: "durable.streams/profile/v1", profile });
  }

  /**
   * The results of a query: the first at once, the next when it may have changed. No change is missed; now
   * and then it runs without need. What `run` throws ends it.
   * @template T
   * @param {() => T | Promise<T>} run
   * @param {QueryOptions} options
   * @returns {AsyncGenerator<T>}
   */
  async *query(run, { entity, where, signal, ...options }) {
    const query = new Query(this.#path, keyset(entity, where, options));
    const backoff = new Backoff();
    /** @type {(() => void) | undefined} */
    let leave;
    try {
      for (;;) {
        try {
          if (!(await this.#isDue(query, signal))) {
            leave ??= this.#tabs.watch(query);
            await query.something(signal);
            continue;
          }
          backoff.reset();
        } catch (error) {
          if (signal?.aborted) return;
          if (!(error instanceof HeadwaterError) || !error.isTransient) throw error;
          await backoff.pause(signal, error).catch(() => {});
          continue;
        }
        // The cursor is from before this, so whatever changes from here on is noticed.
        yield await run();
        query.current = true;
      }
    } catch (error) {
      if (!signal?.aborted) throw error;
    } finally {
      leave?.();
    }
  }

  /** Whether the query has to be run. @param {Query} query @param {AbortSignal} [signal] @returns {Promise<boolean>} */
  async #isDue(query, signal) {
    if (query.cursor === undefined) {
      await this.#begin(query, signal);
      return true;
    }
    if (!query.current) return true;
    query.heard = false;
    const wait = { ...query.wait(), cursor: query.cursor, timeoutMs: 0 };
    try {
      const result = await this.#post("/touch/wait", wait, signal);
      if (result.stale || (result.touched && query.denied)) query.cursor = undefined;
      else query.cursor = result.cursor;
      if (query.cursor === undefined) return this.#isDue(query, signal);
      if (result.touched) query.current = false;
      return Boolean(result.touched);
    } catch (error) {
      // Changed settings end all waits. Whether it is really off is found out by beginning again.
      if (!(error instanceof HeadwaterError) || error.code !== "not_found") throw error;
      query.cursor = undefined;
      return this.#isDue(query, signal);
    }
  }

  /** Have the shape followed, then take a cursor. @param {Query} query @param {AbortSignal} [signal] */
  async #begin(query, signal) {
    const { template } = query.keyset;
    if (template) {
      const { denied } = await this.#post("/touch/templates/activate", { templates: [template] }, signal);
      query.denied = denied.length > 0;
    }
    const meta = await this.#requests.once("GET", `${this.#url}/touch/meta`, { signal });
    query.cursor = (await jsonOf(meta, signal)).cursor;
    query.current = false;
  }

  /** @param {string} path @param {unknown} body @param {AbortSignal} [signal] */
  async #post(path, body, signal) {
    const headers = { "Content-Type": "application/json" };
    const options = { body: JSON.stringify(body), headers, signal };
    return jsonOf(await this.#requests.once("POST", this.#url + path, options), signal);
  }
}

/** Where a query is. */
class Query {
  /** A moment before the query was last run; none: begin again. @type {string | undefined} */
  cursor;
  /** Whether the caller has a result from after the cursor. */
  current = false;
  /** Whether the server does not follow its shape at present: then its table stands for it. */
  denied = false;
  heard = true;
  #path;
  /** @type {(() => void) | undefined} */
  #wake;

  /** @param {string} path @param {import("./keys.js").Keyset} keys */
  constructor(path, keys) {
    this.#path = path;
    this.keyset = keys;
  }

  get #isCoarse() {
    return this.denied || !this.keyset.template;
  }

  wait() {
    const { keys, table, template, templateId } = this.keyset;
    if (this.#isCoarse) return { keys: [table], interestMode: "coarse" };
    return { keys, interestMode: "fine", templateIdsUsed: [templateId], declareTemplates: [template] };
  }

  /** @returns {import("./tabs.js").Want} */
  want() {
    const { keys, table, template, templateId } = this.keyset;
    const fine = template && templateId && !this.#isCoarse;
    const interest = {
      keys: fine ? keys : [table],
      templates: fine ? [template] : [],
      ids: fine ? [templateId] : [],
      table,
    };
    return { kind: "touch", path: this.#path, interest };
  }

  /** @param {News} _news */
  tell(_news) {
    this.heard = true;
    this.#wake?.();
  }

  /** @param {AbortSignal} [signal] @returns {Promise<void>} */
  something(signal) {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      if (this.heard) return resolve();
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
