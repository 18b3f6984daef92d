// What the leader of the tabs does: it follows everything that any tab wants, and passes on what happens.

import { eventsOf } from "./events.js";
import { Backoff, HeadwaterError, jsonOf, Requests } from "./requests.js";

/**
 * @typedef {import("./tabs.js").News} News
 * @typedef {import("./tabs.js").Want} Want
 * @typedef {import("./tabs.js").Interest} Interest
 * @typedef {{news: (news: News) => void, alive: () => void}} Ears
 */

const WAIT_MS = 25_000;
const KEYS_MAX = 1000;
const NOT_SERVED = [404, 405];

export class Relay {
  #requests;
  #ears;
  /** @type {Map<string, Want[]>} */
  #wants = new Map();
  #shared;
  /** @type {Map<string, Direct>} */
  #direct = new Map();
  /** @type {Map<string, Touches>} */
  #touches = new Map();

  /** @param {Requests} requests @param {Ears} ears */
  constructor(requests, ears) {
    this.#requests = requests;
    this.#ears = ears;
    this.#shared = new Shared(requests, ears, (path, position) => this.#alone(path, position));
  }

  /** @param {string} tab */
  knows(tab) {
    return this.#wants.has(tab);
  }

  /** @param {string} tab */
  forget(tab) {
    if (this.#wants.delete(tab)) this.#settle();
  }

  /** @param {string} tab @param {Want[]} wants */
  serve(tab, wants) {
    const before = this.#wants.get(tab) ?? [];
    this.#wants.set(tab, wants);
    this.#settle();
    for (const want of wants) {
      if (this.#mustLook(want, before)) this.#ears.news({ kind: want.kind, path: want.path });
    }
  }

  close() {
    this.#wants.clear();
    this.#settle();
  }

  #settle() {
    const wants = [...this.#wants.values()].flat();
    /** @type {Map<string, string>} */
    const streams = new Map();
    /** @type {Map<string, Interest[]>} */
    const touches = new Map();
    for (const want of wants) {
      if (want.kind === "touch") touches.set(want.path, [...(touches.get(want.path) ?? []), want.interest]);
      else if (this.#at(want.path) === undefined) streams.set(want.path, want.position);
    }
    const wanted = new Set(wants.filter((want) => want.kind === "stream").map((want) => want.path));
    for (const [path, direct] of this.#direct) {
      if (!wanted.has(path)) direct.close(), this.#direct.delete(path);
    }
    this.#shared.follow(streams, wanted);
    for (const [path, interests] of touches) {
      if (!this.#touches.has(path)) this.#touches.set(path, new Touches(this.#requests, this.#ears, path));
      this.#touches.get(path)?.follow(interests);
    }
    for (const [path, waiting] of this.#touches) {
      if (!touches.has(path)) waiting.close(), this.#touches.delete(path);
    }
  }

  /**
   * Whether someone may have missed something: who is elsewhere in a stream than this relay, and who begins to wait.
   * @param {Want} want @param {Want[]} before
   */
  #mustLook(want, before) {
    if (want.kind === "stream") return this.#at(want.path) !== want.position;
    return !before.some((each) => each.kind === "touch" && each.path === want.path && String(each.interest.keys) === String(want.interest.keys));
  }

  /** Where a stream is that is followed. @param {string} path */
  #at(path) {
    return this.#direct.get(path)?.position ?? this.#shared.positions.get(path);
  }

  /** What cannot be followed over the shared connection. @param {string} path @param {string} position */
  #alone(path, position) {
    if (this.#direct.has(path)) return;
    const direct = new Direct(this.#requests, this.#ears, path, position);
    this.#direct.set(path, direct);
    direct.run().finally(() => {
      if (this.#direct.get(path) === direct) this.#direct.delete(path);
    });
  }
}

/** One connection for many streams. */
class Shared {
  /** @type {Map<string, string>} where each is */
  positions = new Map();
  #requests;
  #ears;
  #alone;
  #served = true;
  /** @type {AbortController | undefined} */
  #connection;

  /** @param {Requests} requests @param {Ears} ears @param {(path: string, position: string) => void} alone */
  constructor(requests, ears, alone) {
    this.#requests = requests;
    this.#ears = ears;
    this.#alone = alone;
  }

  /** @param {Map<string, string>} more @param {Set<string>} wanted */
  follow(more, wanted) {
    for (const path of [...this.positions.keys()]) {
      // Those that go are left to the connection until it ends by itself.
      if (!wanted.has(path)) this.positions.delete(path);
    }
    if (!this.#served) return more.forEach((position, path) => this.#alone(path, position));
    more.forEach((position, path) => this.positions.set(path, position));
    if (more.size || !this.positions.size) {
      this.#connection?.abort();
      this.#connection = undefined;
    }
    if (this.positions.size && !this.#connection) this.#run((this.#connection = new AbortController()));
  }

  /** @param {AbortController} connection */
  async #run(connection) {
    const backoff = new Backoff();
    while (!connection.signal.aborted && this.positions.size) {
      try {
        await this.#listen(connection.signal, backoff);
      } catch (error) {
        if (connection.signal.aborted) return;
        if (error instanceof HeadwaterError && NOT_SERVED.includes(error.status)) return this.#give();
        // Who may not follow any more learns why by asking himself.
        if (error instanceof HeadwaterError && !error.isTransient) this.#poke();
        await backoff.pause(connection.signal, asError(error)).catch(() => {});
      }
    }
    if (this.#connection === connection) this.#connection = undefined;
  }

  /** @param {AbortSignal} signal @param {Backoff} backoff */
  async #listen(signal, backoff) {
    const body = JSON.stringify({ streams: Object.fromEntries(this.positions) });
    const headers = { "Content-Type": "application/json" };
    const response = await this.#requests.once("POST", "/v1/follow", { body, headers, signal });
    /** @type {Map<string, Speaker>} */
    const speakers = new Map();
    let speaker = new Speaker("", "");
    let silent = true;
    for await (const { name, data } of eventsOf(response, signal)) {
      if (silent) backoff.reset();
      silent = false;
      this.#ears.alive();
      if (!name) continue;
      const about = name === "data" ? undefined : JSON.parse(data);
      if (name === "stream") {
        speaker = speakers.get(about.stream) ?? new Speaker(about.stream, this.positions.get(about.stream) ?? "", about.encoding);
        speakers.set(about.stream, speaker);
      } else if (name === "failed") {
        const position = this.positions.get(about.stream);
        this.positions.delete(about.stream);
        if (position !== undefined) this.#alone(about.stream, position);
      } else this.#pass(speaker, name, about ?? data);
    }
    if (silent) throw new HeadwaterError("the connection ended at once");
  }

  /** @param {Speaker} speaker @param {string} name @param {any} said */
  #pass(speaker, name, said) {
    const news = speaker.hear(name, said);
    if (!news || !this.positions.has(speaker.path)) return;
    if (speaker.over) this.positions.delete(speaker.path);
    else this.positions.set(speaker.path, speaker.position);
    this.#ears.news(news);
  }

  /** The server does not know this request: each stream gets a connection of its own. */
  #give() {
    this.#served = false;
    const all = [...this.positions];
    this.positions.clear();
    for (const [path, position] of all) this.#alone(path, position);
  }

  #poke() {
    for (const path of this.positions.keys()) this.#ears.news({ kind: "stream", path, failed: true });
  }
}

/** A connection for one stream. It ends when the stream can no longer be followed, and says so. */
class Direct {
  #requests;
  #ears;
  #ended = new AbortController();

  /** @param {Requests} requests @param {Ears} ears @param {string} path @param {string} position */
  constructor(requests, ears, path, position) {
    this.#requests = requests;
    this.#ears = ears;
    this.path = path;
    this.position = position;
  }

  close() {
    this.#ended.abort();
  }

  async run() {
    const backoff = new Backoff();
    const signal = this.#ended.signal;
    while (!signal.aborted) {
      try {
        if (await this.#listen(signal, backoff)) return;
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof HeadwaterError && !error.isTransient) {
          // Once it is no longer among those that are followed.
          queueMicrotask(() => this.#ears.news({ kind: "stream", path: this.path, failed: true }));
          return;
        }
        await backoff.pause(signal, asError(error)).catch(() => {});
      }
    }
  }

  /** @param {AbortSignal} signal @param {Backoff} backoff */
  async #listen(signal, backoff) {
    const query = { offset: this.position, live: "sse" };
    const response = await this.#requests.once("GET", `/v1/stream/${Requests.path(this.path)}`, { query, signal });
    const encoding = response.headers.get("Stream-SSE-Data-Encoding") ?? "";
    const speaker = new Speaker(this.path, this.position, encoding);
    for await (const { name, data } of eventsOf(response, signal)) {
      backoff.reset();
      this.#ears.alive();
      const news = name && speaker.hear(name, name === "data" ? data : JSON.parse(data));
      if (!news) continue;
      this.position = speaker.position;
      this.#ears.news(news);
    }
    return speaker.over;
  }
}

/** Makes news of the events of one stream. */
export class Speaker {
  over = false;
  #base64;
  /** @type {string | Uint8Array | undefined} */
  #data;

  /** @param {string} path @param {string} position @param {string} [encoding] */
  constructor(path, position, encoding = "") {
    this.path = path;
    this.position = position;
    this.#base64 = encoding === "base64";
  }

  /** @param {string} name @param {any} said @returns {News | undefined} */
  hear(name, said) {
    const { path } = this;
    if (name === "data") {
      this.#data = this.#base64 ? Uint8Array.from(atob(said.replaceAll("\n", "")), (char) => char.charCodeAt(0)) : said;
      return undefined;
    }
    if (name === "deleted") {
      this.over = true;
      return { kind: "stream", path };
    }
    if (name !== "control") return undefined;
    const { streamNextOffset: to, upToDate = false, streamClosed: closed = false } = said;
    const [from, data] = [this.position, this.#data];
    this.position = to;
    this.#data = undefined;
    this.over = closed;
    return { kind: "stream", path, from, to, data, upToDate, closed };
  }
}

/** One wait for all live queries on one stream. */
class Touches {
  #requests;
  #ears;
  #path;
  /** @type {Interest[]} */
  #interests = [];
  /** @type {string | undefined} */
  #cursor;
  #ended = new AbortController();
  #wait = new AbortController();
  #running = false;

  /** @param {Requests} requests @param {Ears} ears @param {string} path */
  constructor(requests, ears, path) {
    this.#requests = requests;
    this.#ears = ears;
    this.#path = path;
  }

  /** @param {Interest[]} interests */
  follow(interests) {
    const known = new Set(this.#interests.flatMap((interest) => interest.keys));
    this.#interests = interests;
    if (this.#running && interests.every(({ keys }) => keys.every((key) => known.has(key)))) return;
    // The next wait begins where this one did, so nothing is missed in between.
    this.#wait.abort();
    if (!this.#running) this.#run();
  }

  close() {
    this.#ended.abort();
    this.#wait.abort();
  }

  async #run() {
    this.#running = true;
    const backoff = new Backoff();
    while (!this.#ended.signal.aborted) {
      this.#wait = new AbortController();
      try {
        await this.#listen(this.#wait.signal);
        backoff.reset();
      } catch (error) {
        if (this.#wait.signal.aborted) continue;
        this.#cursor = undefined;
        this.#ears.news({ kind: "touch", path: this.#path, failed: true });
        await backoff.pause(this.#ended.signal, asError(error)).catch(() => {});
      }
    }
  }

  /** @param {AbortSignal} signal */
  async #listen(signal) {
    const touch = `/v1/stream/${Requests.path(this.#path)}/touch`;
    if (this.#cursor === undefined) {
      const meta = await jsonOf(await this.#requests.once("GET", `${touch}/meta`, { signal }), signal);
      this.#cursor = meta.cursor;
      // Whatever happened before this, everyone finds out by looking.
      this.#ears.news({ kind: "touch", path: this.#path });
    }
    const wait = { ...union(this.#interests), cursor: this.#cursor, timeoutMs: WAIT_MS };
    const headers = { "Content-Type": "application/json" };
    const options = { body: JSON.stringify(wait), headers, signal, timeoutMs: WAIT_MS + 20_000 };
    const result = await jsonOf(await this.#requests.once("POST", `${touch}/wait`, options), signal);
    this.#ears.alive();
    this.#cursor = result.stale ? undefined : result.cursor;
    if (result.touched) this.#ears.news({ kind: "touch", path: this.#path });
  }
}

/** What to wait on for all of them. With too many keys, their tables stand for them. @param {Interest[]} interests */
function union(interests) {
  const keys = new Set(interests.flatMap((interest) => interest.keys));
  if (keys.size > KEYS_MAX || !interests.some((interest) => interest.ids.length)) {
    return { keys: [...new Set(interests.map((interest) => interest.table))].slice(0, KEYS_MAX), interestMode: "coarse" };
  }
  const templates = new Map(interests.flatMap(({ templates, ids }) => templates.map((each, index) => [ids[index], each])));
  return {
    keys: [...keys],
    interestMode: "fine",
    templateIdsUsed: [...templates.keys()],
    declareTemplates: [...templates.values()],
  };
}

/** @param {unknown} error */
function asError(error) {
  return error instanceof HeadwaterError ? error : undefined;
}
