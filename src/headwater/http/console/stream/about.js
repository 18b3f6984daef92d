// What is known about a stream, its snapshots, and where its past is kept.

import { get, send, streamUrl } from "../lib/api.js";
import { ask, button, card, facts, h, runner, table } from "../lib/dom.js";
import { duration, instant, number, size } from "../lib/format.js";
import { linkTo } from "../lib/routes.js";
import { every } from "../lib/waiting.js";

const EVERY_MS = 3_000;
const RANGES_SHOWN = 200;

/**
 * @param {string} path
 * @param {AbortSignal} signal
 */
export function aboutTab(path, signal) {
  const known = h("div");
  const { place, run } = runner();
  run(() => every(EVERY_MS, signal, async () => known.replaceChildren(describe(await get(`${streamUrl(path)}/_details`, signal)))));
  return [place, card("Settings and figures", known)];
}

/** @param {any} details */
function describe(details) {
  const source = details.forked_from;
  const kept = [
    details.retention_s && duration(details.retention_s * 1000),
    details.retention_bytes && size(details.retention_bytes),
  ].filter(Boolean);
  return facts([
    ["Type", details.content_type],
    ["Description", details.description],
    ["Messages", number(details.messages)],
    ["Size", size(details.size_bytes)],
    ["Created", instant(details.created)],
    ["Kept", kept.join(", ") || "for ever"],
    ["Expires", details.expires_at && instant(details.expires_at)],
    ["Time to live", details.ttl_s && `${duration(details.ttl_s * 1000)} after the last use`],
    ["Unique ids", details.unique_ids && `${details.unique_ids} ${details.id_pointer ?? ""}`],
    ["Version of its settings", details.version || null],
    ["Profile", details.profile],
    ["Forked from", source && h("a", { href: linkTo(source) }, source)],
    ["Forks", details.forks || null],
    ["Producers in memory", number(details.producers)],
    ["Live readers now", number(details.readers)],
    ["First offset", h("code", details.earliest)],
    ["Next offset", h("code", details.tail)],
  ]);
}

/**
 * @param {string} path
 * @param {import("../lib/session.js").Rights} rights
 * @param {AbortSignal} signal
 */
export function snapshotsTab(path, rights, signal) {
  const shown = h("div");
  const { place, run } = runner();
  const url = `${streamUrl(path)}/_snapshots`;
  const look = async () => {
    const { snapshots } = await get(url, signal);
    shown.replaceChildren(table("Snapshots", columns, snapshots, ["There are none. A snapshot is the state that a stream adds up to at an offset: see ", h("code", "headwater pipeline run snapshot"), "."]));
  };
  const remove = async (/** @type {any} */ one) => {
    if (!(await ask("Delete this snapshot?", h("p", "Readers begin with an earlier one, or with the first message."), "Delete it", { danger: true }))) return;
    await send("DELETE", `${url}/${one.offset}`);
    await look();
  };
  /** @type {import("../lib/dom.js").Column<any>[]} */
  const columns = [
    ["At", (one) => h("code", one.offset)],
    ["Type", (one) => one.content_type],
    ["Size", (one) => size(one.size_bytes), "number"],
    ["Made", (one) => instant(one.created), "when"],
    ["", (one) => (rights.delete ? button("Delete", () => run(() => remove(one)), { kind: "danger" }) : null)],
  ];
  run(() => every(EVERY_MS, signal, look));
  return [place, card("Snapshots", shown)];
}

/**
 * @param {string} path
 * @param {AbortSignal} signal
 */
export function storageTab(path, signal) {
  const shown = h("div");
  const { place, run } = runner();
  /** @type {import("../lib/dom.js").Column<any>[]} */
  const columns = [
    ["First message", (one) => number(one.first_message), "number"],
    ["Messages", (one) => number(one.messages), "number"],
    ["Size", (one) => size(one.bytes), "number"],
    ["From", (one) => instant(one.first_timestamp), "when"],
    ["To", (one) => instant(one.last_timestamp), "when"],
    ["Kept in", (one) => (one.file ? h("code", { title: one.file.location ?? "" }, one.file.name) : "the database")],
  ];
  run(async () => {
    const { ranges } = await get(`${streamUrl(path)}/_segments`, signal);
    const more = ranges.length > RANGES_SHOWN ? h("p.dim", `${number(ranges.length - RANGES_SHOWN)} more`) : null;
    shown.replaceChildren(table("Ranges", columns, ranges.slice(-RANGES_SHOWN).reverse(), "It holds nothing."), more ?? "");
  });
  return [place, card("Where it is kept", shown)];
}
