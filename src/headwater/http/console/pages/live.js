// Live queries of all streams: those that queries can wait on.

import { get, streamUrl } from "../lib/api.js";
import { h, table } from "../lib/dom.js";
import { number } from "../lib/format.js";
import { linkTo } from "../lib/routes.js";
import { every } from "../lib/waiting.js";

const EVERY_MS = 5_000;
const PAGES = 20;
const SHOWN = 100;

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
  const names = await liveStreams(signal);
  await every(EVERY_MS, signal, async () => {
    const rows = await Promise.all(names.map(async (name) => ({ name, meta: await get(`${streamUrl(name)}/touch/meta`, signal).catch(() => null) })));
    const empty = ["No stream has the profile ", h("code", "state-protocol"), " with ", h("code", "touch"), ". The page of a JSON stream can give it one."];
    listed.replaceChildren(table("Live streams", COLUMNS, rows.filter((row) => row.meta), empty));
  });
}

/**
 * The streams that queries can wait on, out of the first thousands.
 * @param {AbortSignal} signal
 */
async function liveStreams(signal) {
  /** @type {string[]} */
  const found = [];
  let after = "";
  for (let page = 0; page < PAGES && after !== null && found.length < SHOWN; page++) {
    const listed = await get(`/v1/streams?limit=1000&after=${encodeURIComponent(after)}`, signal);
    found.push(...listed.streams.filter((/** @type {any} */ one) => one.profile === "state-protocol").map((/** @type {any} */ one) => one.name));
    after = listed.next;
  }
  return found.slice(0, SHOWN);
}
