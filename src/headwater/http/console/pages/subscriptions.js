// Who is woken when streams have something new.

import { get } from "../lib/api.js";
import { h, input, table } from "../lib/dom.js";
import { number } from "../lib/format.js";
import { linkTo } from "../lib/routes.js";
import { every } from "../lib/waiting.js";

const EVERY_MS = 3_000;

/** @param {any} one */
export const stateOf = (one) => (one.failures ? h("span.bad", `failing, ${number(one.failures)} times`) : one.state);

/** @type {import("../lib/dom.js").Column<any>[]} */
const COLUMNS = [
  ["Subscription", (one) => h("a", { href: `#/subscription/${encodeURIComponent(one.id)}` }, one.id), "name"],
  ["Wakes", (one) => one.webhook?.url ?? h("a", { href: linkTo(one.wake_stream) }, one.wake_stream)],
  ["Streams", (one) => (one.pattern ? h("code", one.pattern) : h("span.dim", "by name"))],
  ["Taken in", (one) => number(one.streams_total), "number"],
  ["With news", (one) => number(one.streams_pending), "number"],
  ["State", stateOf],
  ["For", (one) => one.description ?? ""],
];

/** @type {import("../main.js").Page} */
export async function subscriptions(root, signal) {
  const listed = h("div");
  const search = input({ type: "search", placeholder: "Name begins with …", "aria-label": "Name begins with" });
  root.replaceChildren(h("div.row", h("h1", "Subscriptions"), search), h("div.card", listed));
  const look = async () => {
    const query = new URLSearchParams({ limit: "1000", prefix: search.value });
    const page = await get(`/v1/stream/__ds/subscriptions?${query}`, signal);
    const empty = search.value ? "No name begins so." : ["There are none. Make one with ", h("code", "headwater subscription create"), "."];
    listed.replaceChildren(table("Subscriptions", COLUMNS, page.subscriptions, empty), page.next ? h("p.dim", "There are more; search for one.") : "");
  };
  search.addEventListener("input", () => look().catch(() => {}));
  await every(EVERY_MS, signal, look);
}
