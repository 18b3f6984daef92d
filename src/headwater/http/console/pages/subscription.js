// One subscription: its wake, and how far each of its streams was processed.

import { get, send } from "../lib/api.js";
import { ask, button, card, facts, h, runner, table } from "../lib/dom.js";
import { duration, instant, number } from "../lib/format.js";
import { linkTo } from "../lib/routes.js";
import { every } from "../lib/waiting.js";
import { stateOf } from "./subscriptions.js";

const EVERY_MS = 2_000;
const STREAMS_SHOWN = 500;
/** @type {import("../lib/dom.js").Column<any>[]} */
const STREAMS = [
  ["Stream", (one) => h("a", { href: linkTo(one.path) }, one.path), "name"],
  ["Taken in by", (one) => (one.link_type === "glob" ? "the pattern" : "its name")],
  ["News", (one) => (one.has_pending ? h("span.warn", "yes") : h("span.dim", "no"))],
  ["Processed up to", (one) => h("code", one.acked_offset)],
  ["Goes up to", (one) => h("code", one.tail_offset)],
];

/** @type {import("../main.js").Page} */
export async function subscription(root, signal, [id = ""]) {
  const url = `/v1/stream/__ds/subscriptions/${encodeURIComponent(id)}`;
  const [state, streams] = [h("div"), h("div")];
  const { place, run } = runner();
  const remove = async () => {
    if (!(await ask(`Delete subscription ${id}?`, h("p", "It forgets how far its streams were processed. The streams stay."), "Delete it", { danger: true }))) return;
    await send("DELETE", url);
    location.hash = "#/subscriptions";
  };
  root.replaceChildren(
    h("div.row", h("h1", id), h("span.push", button("Delete", () => run(remove), { kind: "danger" }))),
    place,
    card("Wake", state),
    card("Streams", streams),
  );
  await every(EVERY_MS, signal, async () => {
    const found = await get(url, signal);
    state.replaceChildren(describe(found));
    const listed = found.streams ?? [];
    const more = found.streams_total - Math.min(STREAMS_SHOWN, listed.length);
    streams.replaceChildren(table("Streams", STREAMS, listed.slice(0, STREAMS_SHOWN), "It has taken in no streams yet."), more > 0 ? h("p.dim", `${number(more)} more`) : "");
  });
}

/** @param {any} found */
const describe = (found) =>
  facts([
    ["Kind", found.type],
    ["For", found.description],
    ["Wakes", found.webhook?.url ?? h("a", { href: linkTo(found.wake_stream) }, found.wake_stream)],
    ["Pattern", found.pattern && h("code", found.pattern)],
    ["State", stateOf(found)],
    ["Wake", `number ${number(found.generation)}`],
    ["Worker", found.holder],
    ["Tried again", found.next_attempt_at && instant(found.next_attempt_at)],
    ["Lease", duration(found.lease_ttl_ms)],
    ["Streams", `${number(found.streams_total)}, ${number(found.streams_pending)} with news`],
    ["Created", instant(Date.parse(found.created_at))],
  ]);
