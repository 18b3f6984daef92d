// All tabs that look at one server share one connection to it.
//
// Browsers open six connections to an origin that speaks HTTP/1.1, for all tabs together. So one tab, the
// leader, follows for all of them what any of them follows, over one connection, and passes news on. The
// leader is whoever holds a Web Lock; when that tab goes away, however that happens, another one gets it.
//
// News are hints. A tab takes the data in them if they begin where the tab is, and asks the server itself
// otherwise. So nothing that goes wrong between tabs, a lost message or a change of leaders, can lose or
// repeat anything: at worst it costs a request.
//
// Where there are no locks (old browsers, pages without TLS, node), each page is its own leader.

import { Relay } from "./relay.js";

/**
 * @typedef {import("./requests.js").Requests} Requests
 * @typedef {{kind: "stream", path: string, position: string}} StreamWant
 * @typedef {{keys: string[], templates: {entity: string, fields: {name: string, encoding: string}[]}[], ids: string[], table: string}} Interest
 * @typedef {{kind: "touch", path: string, interest: Interest}} TouchWant
 * @typedef {StreamWant | TouchWant} Want
 *
 * What a watcher is told. With data, it leads from one position to another. Without, something may have
 * happened; `failed` if the leader could not follow.
 * @typedef {{
 *   kind: "stream" | "touch", path: string, from?: string, to?: string, data?: string | Uint8Array,
 *   upToDate?: boolean, closed?: boolean, failed?: boolean,
 * }} News
 *
 * @typedef {{want: () => Want, tell: (news: News) => void}} Watcher
 */

const PULSE_MS = 10_000;
const DEAF_MS = 60_000;

export class Tabs {
  #requests;
  #name;
  #tab = crypto.randomUUID();
  /** @type {Set<Watcher>} */
  #watchers = new Set();
  /** @type {BroadcastChannel | undefined} */
  #channel;
  /** @type {Relay | undefined} */
  #relay;
  #closing = new AbortController();
  #started = false;
  #isHere = false;
  #said = false;
  #heardAt = Date.now();
  #pulsedAt = 0;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #timer;

  /** @param {Requests} requests @param {string | undefined} group the tabs that share; alone if undefined */
  constructor(requests, group) {
    this.#requests = requests;
    this.#name = group !== undefined && canShare() ? `headwater ${requests.url} ${group}` : undefined;
  }

  /** Whether this tab holds the connection. */
  get isLeader() {
    return this.#relay !== undefined;
  }

  /** @param {Watcher} watcher @returns a function that ends it */
  watch(watcher) {
    this.#start();
    this.#watchers.add(watcher);
    this.#sayLater();
    return () => {
      if (this.#watchers.delete(watcher)) this.#sayLater();
    };
  }

  /** A watcher is somewhere else than before. */
  refresh() {
    this.#sayLater();
  }

  close() {
    this.#closing.abort();
    clearInterval(this.#timer);
    this.#post({ type: "bye", tab: this.#tab });
    this.#channel?.close();
    this.#relay?.close();
    this.#watchers.clear();
  }

  #start() {
    if (this.#started) return;
    this.#started = true;
    if (this.#name === undefined) {
      this.#lead();
      return;
    }
    this.#channel = new BroadcastChannel(this.#name);
    this.#channel.onmessage = ({ data }) => this.#hear(data);
    // Held as long as this tab lives, so that the leader learns of its end. A leader that can have it
    // takes the tab for gone, so the tab says nothing before it has it.
    this.#hold(`${this.#name} ${this.#tab}`, () => {
      this.#isHere = true;
      this.#say();
    });
    this.#hold(this.#name, () => this.#lead());
    this.#timer = setInterval(() => this.#listen(), PULSE_MS);
    globalThis.addEventListener?.("pagehide", () => this.#post({ type: "bye", tab: this.#tab }));
    globalThis.addEventListener?.("pageshow", () => this.#say());
  }

  /** @param {string} name @param {() => void} then */
  #hold(name, then) {
    const held = () => {
      then();
      return new Promise((resolve) => this.#closing.signal.addEventListener("abort", resolve));
    };
    navigator.locks.request(name, { signal: this.#closing.signal }, held).catch(() => {});
  }

  #lead() {
    if (this.#closing.signal.aborted) return;
    this.#relay = new Relay(this.#requests, {
      news: (news) => {
        this.#post({ type: "news", news });
        this.#tell(news);
      },
      alive: () => {
        if (Date.now() - this.#pulsedAt < PULSE_MS) return;
        this.#pulsedAt = Date.now();
        this.#post({ type: "pulse" });
      },
    });
    this.#post({ type: "leader" });
    this.#say();
  }

  /** @param {any} message */
  #hear(message) {
    if (message.type !== "want" && message.type !== "bye") this.#heardAt = Date.now();
    if (message.type === "news") this.#tell(message.news);
    else if (message.type === "leader") this.#say();
    else if (message.type === "want") this.#serve(message.tab, message.wants);
    else if (message.type === "bye") this.#relay?.forget(message.tab);
  }

  /** @param {string} tab @param {Want[]} wants */
  #serve(tab, wants) {
    const relay = this.#relay;
    if (!relay) return;
    if (!relay.knows(tab)) {
      // Granted when that tab is gone.
      const gone = () => relay.forget(tab);
      const options = { signal: this.#closing.signal };
      navigator.locks.request(`${this.#name} ${tab}`, options, gone).catch(() => {});
    }
    relay.serve(tab, wants);
  }

  // Watchers come and go together, when a page begins or a view changes.
  #sayLater() {
    if (this.#said) return;
    this.#said = true;
    queueMicrotask(() => {
      this.#said = false;
      this.#say();
    });
  }

  #say() {
    const wants = [...this.#watchers].map((watcher) => watcher.want());
    if (this.#relay) this.#relay.serve(this.#tab, wants);
    else if (this.#isHere) this.#post({ type: "want", tab: this.#tab, wants });
  }

  #listen() {
    if (this.#relay || !this.#watchers.size || Date.now() - this.#heardAt < DEAF_MS) return;
    // The leader says nothing. Everyone looks for himself until it does.
    this.#say();
    for (const watcher of this.#watchers) {
      const { kind, path } = watcher.want();
      watcher.tell({ kind, path });
    }
  }

  /** @param {News} news */
  #tell(news) {
    for (const watcher of [...this.#watchers]) {
      const { kind, path } = watcher.want();
      if (kind === news.kind && path === news.path) watcher.tell(news);
    }
  }

  /** @param {unknown} message */
  #post(message) {
    this.#channel?.postMessage(message);
  }
}

function canShare() {
  return typeof BroadcastChannel !== "undefined" && Boolean(globalThis.navigator?.locks);
}
