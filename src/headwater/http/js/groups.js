// Consumer groups: each message of a stream goes to one member.

import { Backoff, HeadwaterError, jsonOf, Requests } from "./requests.js";

/**
 * @typedef {{
 *   durable?: boolean, start?: string, max_in_flight?: number, ack_timeout_ms?: number, max_deliveries?: number,
 *   dead_letter?: string | null, order_by?: string | null, version?: number,
 * }} GroupSettings
 * @typedef {{stream: string, value?: unknown, data?: string, id?: string, on_duplicate?: "abort" | "succeed"}} Publish
 */

const WAIT_MS = 20_000;

/** A message that this member has to settle. */
export class Delivery {
  #group;

  /** @param {Group} group @param {any} message */
  constructor(group, message) {
    this.#group = group;
    /** @type {string} */
    this.id = message.id;
    /** @type {string} */
    this.offset = message.offset;
    /** How often it was delivered, this time included. @type {number} */
    this.deliveries = message.deliveries;
    /** Names this delivery. @type {string} */
    this.receipt = message.receipt;
    /** The message, if the stream holds JSON. @type {any} */
    this.value = message.value;
    /** The message, if it does not. */
    this.bytes = message.data === undefined ? undefined : Uint8Array.from(atob(message.data), (char) => char.charCodeAt(0));
  }

  /** It is done. Rejects if it went to another member meanwhile. */
  ack() {
    return this.#group.ack([this]);
  }

  /** Someone has to do it again. @param {number} [delayMs] */
  nack(delayMs = 0) {
    return this.#group.settle("nack", { receipts: [this.receipt], delay_ms: delayMs });
  }

  /** Nobody can do it. */
  reject() {
    return this.#group.settle("reject", { receipts: [this.receipt] });
  }

  /** It takes longer. @param {number} ms from now */
  extend(ms) {
    return this.#group.settle("extend", { receipts: [this.receipt], ms });
  }
}

export class Group {
  #requests;
  #url;

  /** @param {Requests} requests @param {string} stream @param {string} name */
  constructor(requests, stream, name) {
    this.#requests = requests;
    this.stream = stream;
    this.name = name;
    this.#url = `/v1/stream/${Requests.path(stream)}/_groups/${encodeURIComponent(name)}`;
  }

  /** Create the group, or change its settings. @param {GroupSettings} [settings] */
  async ensure(settings = {}) {
    return jsonOf(await this.#requests.send("PUT", this.#url, json(settings)));
  }

  async info() {
    return jsonOf(await this.#requests.send("GET", this.#url));
  }

  async delete() {
    await this.#requests.send("DELETE", this.#url);
  }

  /**
   * Ask for messages once.
   * @param {{consumer: string, max?: number, waitMs?: number, signal?: AbortSignal}} options
   * @returns {Promise<Delivery[]>}
   */
  async fetch({ consumer, max = 10, waitMs = WAIT_MS, signal }) {
    const options = { ...json({ consumer, max, wait_ms: waitMs }), signal, timeoutMs: waitMs + 20_000 };
    const { messages } = await jsonOf(await this.#requests.once("POST", `${this.#url}/fetch`, options), signal);
    return messages.map((/** @type {any} */ message) => new Delivery(this, message));
  }

  /**
   * Messages for this member, one after the other, for as long as the loop goes on. Settle each: `ack`,
   * `nack` or `reject`. What is not settled in time goes to someone else.
   * @param {{consumer?: string, max?: number, signal?: AbortSignal}} [options]
   * @returns {AsyncGenerator<Delivery>}
   */
  async *consume({ consumer = crypto.randomUUID(), max = 10, signal } = {}) {
    const backoff = new Backoff();
    while (!signal?.aborted) {
      try {
        const deliveries = await this.fetch({ consumer, max, signal });
        backoff.reset();
        yield* deliveries;
      } catch (error) {
        if (signal?.aborted) return;
        if (!(error instanceof HeadwaterError) || !error.isTransient) throw error;
        await backoff.pause(signal, error).catch(() => {});
      }
    }
  }

  /** These are done. @param {Delivery[]} deliveries */
  async ack(deliveries) {
    await this.settle("ack", { receipts: deliveries.map((each) => each.receipt) });
  }

  /** @param {string} action @param {Record<string, unknown>} body */
  async settle(action, body) {
    const { stale = [] } = await jsonOf(await this.#requests.send("POST", `${this.#url}/${action}`, json(body)));
    if (stale.length) throw new HeadwaterError("the message went to another member", { status: 409, code: "stale_receipt" });
  }
}

/**
 * Acknowledge and publish, all or nothing.
 * @param {Requests} requests
 * @param {{ack?: Delivery[], group?: Group, publish?: Publish[]}} parts
 */
export async function transact(requests, { ack, group, publish = [] }) {
  const receipts = ack?.map((each) => each.receipt);
  if (receipts?.length && !group) throw new TypeError("say which group the deliveries are of");
  const body = { publish, ...(receipts?.length && group ? { ack: { stream: group.stream, group: group.name, receipts } } : {}) };
  return jsonOf(await requests.once("POST", "/v1/transaction", json(body)));
}

/** @param {unknown} body */
function json(body) {
  return { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
}
