// The nodes of a cluster, where there is one: who lives, who owns what, and what happened while somebody watched.

import { ApiError, get } from "../lib/api.js";
import { card, h, problem, table } from "../lib/dom.js";
import { clockOf, number } from "../lib/format.js";
import { every } from "../lib/waiting.js";

const EVERY_MS = 500;
const ALONE_EVERY_MS = 30_000;
const EVENTS_MAX = 12;
const FRESH_MS = 4_000;

/** @typedef {{id: number, name: string, address: string, epoch: number, lease_ms: number, draining: boolean, labels: string[], shards: number}} Listed */
/** @typedef {{id: number, owner: number | null, epoch: number, label: string | null}} Shard */
/** @typedef {{node: number, nodes: Listed[], shards: Shard[], bindings: any[], leases: {node: number, counter: number}[]}} Found */
/** @typedef {{listed: Listed, counter: number, heard: number, isGone: boolean, isSilent: boolean}} Node */

/** @type {import("../main.js").Page} */
export async function cluster(root, signal) {
  const shown = h("div.answer");
  root.replaceChildren(h("h1", "Cluster"), shown);
  const watch = new Watch();
  let aloneUntil = 0;
  await every(EVERY_MS, signal, async () => {
    if (Date.now() < aloneUntil) return;
    try {
      watch.see(await get("/v1/cluster", signal), Date.now());
      shown.replaceChildren(...watch.draw(Date.now()));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status === 404) {
        aloneUntil = Date.now() + ALONE_EVERY_MS;
        shown.replaceChildren(h("div.card", "This server is alone: it is not a node of a cluster."));
      } else if (watch.isFirst) throw error;
      else shown.replaceChildren(problem(error), ...watch.draw(Date.now()));
    }
  });
}

/** What was seen, look by look. A node that is gone is in no answer, so it is remembered here, by its address. */
class Watch {
  constructor() {
    /** @type {Map<string, Node>} */
    this.nodes = new Map();
    /** @type {Map<number, {owner: string | null, since: number}>} */
    this.owners = new Map();
    /** @type {{at: number, kind: string, text: string}[]} */
    this.events = [];
    /** @type {Found} */
    this.found = { node: 0, nodes: [], shards: [], bindings: [], leases: [] };
    this.isFirst = true;
  }

  /** @param {Found} found @param {number} now */
  see(found, now) {
    this.found = found;
    this.seeNodes(found, now);
    this.seeShards(found, now);
    this.isFirst = false;
  }

  /** @param {Found} found @param {number} now */
  seeNodes(found, now) {
    const counters = new Map(found.leases.map((one) => [one.node, one.counter]));
    const living = new Set(found.nodes.map((one) => one.address));
    for (const listed of found.nodes) {
      const before = this.nodes.get(listed.address);
      const counter = counters.get(listed.id) ?? 0;
      const moved = !before || before.listed.id !== listed.id || before.counter !== counter;
      const heard = moved ? now : before.heard;
      const isSilent = now - heard > listed.lease_ms / 2;
      if (!before || before.isGone || before.listed.id !== listed.id) this.say(now, "good", `${short(listed.address)} joined`);
      else if (isSilent && !before.isSilent) this.say(now, "warn", `${short(listed.address)} shows no sign of life`);
      this.nodes.set(listed.address, { listed, counter, heard, isSilent, isGone: false });
    }
    for (const [address, node] of this.nodes) {
      if (living.has(address) || node.isGone) continue;
      node.isGone = true;
      this.say(now, "bad", `${short(address)} is gone`);
    }
  }

  /** @param {Found} found @param {number} now */
  seeShards(found, now) {
    const addresses = new Map(found.nodes.map((one) => [one.id, one.address]));
    /** @type {Map<string, number>} */
    const moves = new Map();
    for (const shard of found.shards) {
      const owner = addresses.get(shard.owner ?? 0) ?? null;
      const before = this.owners.get(shard.id);
      if (before && before.owner === owner) continue;
      this.owners.set(shard.id, { owner, since: before ? now : 0 });
      if (before && owner) moves.set(owner, (moves.get(owner) ?? 0) + 1);
    }
    for (const [owner, count] of moves) this.say(now, "", `${short(owner)} has ${count} more ${count === 1 ? "shard" : "shards"}`);
  }

  /** @param {number} at @param {string} kind @param {string} text */
  say(at, kind, text) {
    if (this.isFirst) return;
    this.events.unshift({ at, kind, text });
    this.events.length = Math.min(this.events.length, EVENTS_MAX);
  }

  /** @param {number} now */
  draw(now) {
    const nodes = [...this.nodes.values()].sort((one, other) => (one.listed.address < other.listed.address ? -1 : 1));
    return [this.summary(nodes), h("div.nodes", nodes.map((node) => this.card(node, now))), this.log(), this.bindings()];
  }

  /** @param {Node[]} nodes */
  summary(nodes) {
    const living = nodes.filter((node) => !node.isGone);
    const free = this.found.shards.filter((shard) => shard.owner == null).length;
    const total = this.found.shards.length;
    const owned = free ? h("span.bad", `${free} of ${total} shards wait for an owner`) : h("span.good", `all ${total} shards have an owner`);
    const count = `${living.length} of ${nodes.length} ${nodes.length === 1 ? "node" : "nodes"}`;
    return h("div.row", h(living.length < nodes.length ? "b.bad" : "b", `${count} running`), owned);
  }

  /** @param {Node} node @param {number} now */
  card(node, now) {
    const { listed } = node;
    const owned = this.found.shards.filter((shard) => !node.isGone && shard.owner === listed.id);
    const kind = node.isGone ? "gone" : node.isSilent ? "silent" : "";
    return h(kind ? `div.card.node.${kind}` : "div.card.node", { title: listed.name },
      h("div.row", h(now - node.heard < EVERY_MS ? "span.pulse.beat" : "span.pulse"), h("h2", short(listed.address)), this.tags(node)),
      h("div.row", h("b.count", node.isGone ? "0" : number(listed.shards)), h("span.dim", "shards"), h("span.push.dim", said(node, now))),
      h("div.shards", owned.map((shard) => this.tile(shard, now))));
  }

  /** @param {Node} node */
  tags({ listed, isGone }) {
    const own = !isGone && listed.id === this.found.node ? ["this page"] : [];
    return [...own, ...(listed.draining ? ["draining"] : []), ...listed.labels].map((text) => h("span.tag", text));
  }

  /** @param {Shard} shard @param {number} now */
  tile(shard, now) {
    const isFresh = now - (this.owners.get(shard.id)?.since ?? 0) < FRESH_MS;
    const label = shard.label ? `, for ${shard.label}` : "";
    return h(isFresh ? "span.fresh" : "span", { title: `shard ${shard.id}, epoch ${shard.epoch}${label}` }, shard.id);
  }

  log() {
    const quiet = h("div.dim", "Nothing yet. Kill a node, and watch.");
    const lines = this.events.map((one) => h("li", h("span.when", clockOf(new Date(one.at))), " ", h(one.kind ? `span.${one.kind}` : "span", one.text)));
    return card("While you watch", this.events.length ? h("ol.events", lines) : quiet);
  }

  bindings() {
    const rows = this.found.bindings;
    if (!rows.length) return h("div");
    const columns = Object.keys(rows[0]).map((key) => /** @type {import("../lib/dom.js").Column<any>} */ ([key, (row) => String(row[key])]));
    return card("Bindings", table("Bindings", columns, rows, ""));
  }
}

/** @param {Node} node @param {number} now */
function said({ isGone, isSilent, heard }, now) {
  const ago = `${((now - heard) / 1000).toFixed(0)} s`;
  if (isGone) return `gone for ${ago}`;
  return isSilent ? `no sign of life for ${ago}` : "alive";
}

/** @param {string} address */
const short = (address) => address.replace(/^https?:\/\//, "");
