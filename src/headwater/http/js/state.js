// State Protocol: the entities that a stream of changes describes, with writes that show at once.
//
// A write is shown before the server knows of it, and taken back if it is refused. It is confirmed when a
// change with its transaction id comes back in the stream: from then on the stream itself says it. So the
// view is always what the stream says, with the writes that are still on their way on top.

import { Fold, store } from "./folding.js";
import { Backoff, HeadwaterError } from "./requests.js";

/**
 * @typedef {import("./folding.js").ChangeRecord} ChangeRecord
 * @typedef {(changes: ChangeRecord[], txid: string) => Promise<string | void>} Writer
 * @typedef {{write?: Writer, confirmWithinMs?: number, onError?: (error: unknown) => void}} StateOptions
 * @typedef {{txid: string, changes: ChangeRecord[], done: (error?: unknown) => void}} Pending
 */

const NOT_THERE = ["unknown_offset", "offset_expired", "stream_not_found", "stream_gone"];

export class State {
  #stream;
  #write;
  #confirmWithinMs;
  #onError;
  #fold = new Fold();
  /** @type {Pending[]} */
  #pending = [];
  /** Transaction ids that came back before their writer knew them. @type {Set<string>} */
  #seen = new Set();
  /** @type {Set<() => void>} */
  #listeners = new Set();
  #ended = new AbortController();
  /** @type {() => void} */
  #current = () => {};

  /** @param {import("./streams.js").Stream} stream @param {StateOptions} [options] */
  constructor(stream, { write, confirmWithinMs = 30_000, onError = () => {} } = {}) {
    this.#stream = stream;
    this.#write = write ?? (async (changes) => void (await stream.append(changes)));
    this.#confirmWithinMs = confirmWithinMs;
    this.#onError = onError;
    /** Resolves when everything that was there at first is here. @type {Promise<void>} */
    this.ready = new Promise((resolve) => (this.#current = resolve));
    this.#run();
  }

  /** The entities of one type. @param {string} type */
  collection(type) {
    return new Collection(this, type);
  }

  /** Called after every change of what is shown. @param {() => void} listener @returns a function that ends it */
  subscribe(listener) {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** How many writes are on their way. */
  get pending() {
    return this.#pending.length;
  }

  /** What is shown of a type. @param {string} type @returns {Map<string, any>} */
  entities(type) {
    const shown = new Map(this.#fold.entities.get(type));
    for (const { changes } of this.#pending) {
      for (const change of changes) if (change.type === type) store(shown, change);
    }
    return shown;
  }

  /**
   * Make changes together. They show at once; the promise resolves when the stream has them, and rejects
   * when they were refused or did not come back in time, and are no longer shown.
   * @param {ChangeRecord[]} changes @param {{txid?: string, write?: Writer}} [options]
   * @returns {Promise<void>}
   */
  change(changes, { txid = crypto.randomUUID(), write = this.#write } = {}) {
    const records = changes.map((change) => ({ ...change, headers: { ...change.headers, txid } }));
    const settled = /** @type {Promise<void>} */ (
      new Promise((resolve, reject) => {
        /** @type {Pending} */
        const pending = { txid, changes: records, done: () => {} };
        const timer = setTimeout(() => pending.done(unconfirmed(pending.txid)), this.#confirmWithinMs);
        pending.done = (error) => {
          clearTimeout(timer);
          const index = this.#pending.indexOf(pending);
          if (index < 0) return;
          this.#pending.splice(index, 1);
          if (error === undefined) resolve();
          else reject(error);
          if (error !== undefined) this.#notify();
        };
        this.#pending.push(pending);
        this.#notify();
        this.#send(pending, write);
      })
    );
    // Whoever ignores it sees that it is gone.
    settled.catch(this.#onError);
    return settled;
  }

  close() {
    this.#ended.abort();
    for (const pending of [...this.#pending]) pending.done(new HeadwaterError("the state is closed", { code: "state_closed" }));
  }

  /** @param {Pending} pending @param {Writer} write */
  async #send(pending, write) {
    try {
      const txid = await write(pending.changes, pending.txid);
      // A database may have given it a name of its own.
      if (typeof txid === "string") pending.txid = txid;
      if (this.#seen.has(pending.txid)) {
        pending.done();
        this.#notify();
      }
    } catch (error) {
      // If nobody knows whether it was stored, the stream will tell, or time.
      if (!(error instanceof HeadwaterError && error.isInDoubt)) pending.done(error);
    }
  }

  async #run() {
    const backoff = new Backoff();
    let offset = "-1";
    while (!this.#ended.signal.aborted) {
      try {
        for await (const batch of this.#stream.follow({ offset, signal: this.#ended.signal })) {
          backoff.reset();
          offset = batch.offset;
          this.#apply(batch.messages, batch.offset);
          if (batch.upToDate) this.#current();
          if (batch.closed) return;
        }
      } catch (error) {
        this.#onError(error);
        if (!(error instanceof HeadwaterError) || error.status === 401 || error.status === 403) return;
        if (NOT_THERE.includes(error.code)) {
          // Another stream may come to be at this path; what this one said is over.
          offset = "-1";
          this.#fold = new Fold();
          this.#notify();
        }
        await backoff.pause(this.#ended.signal, error).catch(() => {});
      }
    }
  }

  /** @param {ChangeRecord[]} messages @param {string} offset */
  #apply(messages, offset) {
    this.#fold.apply(messages, offset);
    for (const message of messages) if (message?.headers?.txid !== undefined) this.#confirm(String(message.headers.txid));
    if (messages.length) this.#notify();
  }

  /** @param {string} txid */
  #confirm(txid) {
    for (const pending of this.#pending.filter((each) => each.txid === txid)) pending.done();
    this.#seen.add(txid);
    if (this.#seen.size > 1000) this.#seen.delete(/** @type {string} */ (this.#seen.values().next().value));
  }

  #notify() {
    for (const listener of [...this.#listeners]) listener();
  }
}

/** The entities of one type, by key. */
export class Collection {
  #state;

  /** @param {State} state @param {string} type */
  constructor(state, type) {
    this.#state = state;
    this.type = type;
  }

  /** All of them, as they are shown now. @returns {Map<string, any>} */
  get entries() {
    return this.#state.entities(this.type);
  }

  get values() {
    return [...this.entries.values()];
  }

  get size() {
    return this.entries.size;
  }

  /** @param {string} key */
  get(key) {
    return this.entries.get(key);
  }

  /** @param {(entries: Map<string, any>) => void} listener @returns a function that ends it */
  subscribe(listener) {
    listener(this.entries);
    return this.#state.subscribe(() => listener(this.entries));
  }

  /** @param {string} key @param {any} value */
  insert(key, value) {
    return this.#change("insert", key, value);
  }

  /** @param {string} key @param {any} value the entity as it is to be, as a whole */
  update(key, value) {
    return this.#change("update", key, value);
  }

  /** @param {string} key @param {any} value */
  upsert(key, value) {
    return this.#change("upsert", key, value);
  }

  /** @param {string} key */
  delete(key) {
    return this.#change("delete", key);
  }

  /** @param {string} operation @param {string} key @param {any} [value] */
  #change(operation, key, value) {
    /** @type {ChangeRecord} */
    const change = { type: this.type, key, headers: { operation } };
    if (operation !== "delete") change.value = value;
    const before = this.get(key);
    if (operation !== "insert" && before !== undefined) change.old_value = before;
    return this.#state.change([change]);
  }
}

/** @param {string} txid */
function unconfirmed(txid) {
  const message = `transaction ${txid} did not come back in the stream in time; it may have been stored`;
  return new HeadwaterError(message, { code: "unconfirmed" });
}
