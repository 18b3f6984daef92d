// Live queries of all streams: those that queries can wait on.

import { get, streamUrl } from "../lib/api.js";
import { h, table } from "../lib/dom.js";
import { number } from "../lib/format.js";
import { linkTo } from "../lib/routes.js";
import { every } from "../lib/waiting.js";

const EVERY_MS = 5_000;
const LOOKED_AT = 1_000;
const AT_ONCE = 8;

/** @type {import("../lib/dom.js").Column<any>[]} */
const COLUMNS = [
  ["Stream", (one) => h("a", { href: linkTo(one.name, "live") }, one.name), "name"],
  ["Mode", (one) => (one.meta.touchMode === "fine" || one.meta.touchMode === "idle" ? one.meta.touchMode : h("span.warn", one.meta.touchMode))],
  ["Templates", (one) => number(one.meta.activeTemplates), "number"],
  ["Waits", (one) => number(one.meta.activeWaiters), "number"],
  ["Not looked at yet", (one) => number(one.meta.lagSourceOffsets), "number"],
  ["Changes", (one) => number(one.meta.totalChanges), "number"],
  ["Touched", (one) => number(one.meta.totalTouched), "number"],
];

/** @type {import("../main.js").Page} */
export async function live(root, signal) {
  const listed = h("div", h("div.empty", "Looking …"));
  root.replaceChildren(h("h1", "Live queries"), h("div.card", listed));
  const names = await liveStreams(signal, (text) => listed.replaceChildren(h("div.empty", text)));
  await every(EVERY_MS, signal, async () => {
    const rows = await Promise.all(names.slice(0, 100).map(async (name) => ({ name, meta: await get(`${streamUrl(name)}/touch/meta`, signal).catch(() => null) })));
    const empty = ["No stream has the profile ", h("code", "state-protocol"), " with ", h("code", "touch"), ". The page of a JSON stream can give it one."];
    listed.replaceChildren(table("Live streams", COLUMNS, rows.filter((row) => row.meta), empty));
  });
}

/**
 * The streams that queries can wait on. Only their details say so, so no more than a thousand are asked.
 * @param {AbortSignal} signal
 * @param {(text: string) => void} say
 */
async function liveStreams(signal, say) {
  const { streams } = await get(`/v1/streams?limit=${LOOKED_AT}`, signal);
  const names = streams.filter((/** @type {any} */ one) => one.content_type.startsWith("application/json")).map((/** @type {any} */ one) => one.name);
  /** @type {string[]} */
  const found = [];
  for (let at = 0; at < names.length; at += AT_ONCE) {
    if (at) say(`Looking: ${number(at)} of ${number(names.length)} streams …`);
    const part = names.slice(at, at + AT_ONCE);
    const details = await Promise.all(part.map((/** @type {string} */ name) => get(`${streamUrl(name)}/_details`, signal).catch(() => null)));
    found.push(...details.filter((one) => one?.profile === "state-protocol").map((one) => one.name));
  }
  return found;
}
