// Who is woken when streams have something new.

import { get } from "./api.js";
import { h, table } from "./dom.js";
import { number } from "./format.js";
import { linkTo } from "./streams.js";
import { every } from "./waiting.js";

const EVERY_MS = 3_000;

const columns = [
  ["Subscription", (one) => one.id],
  ["Wakes", (one) => one.webhook?.url ?? h("a", { href: linkTo(one.wake_stream) }, one.wake_stream)],
  ["Streams", (one) => one.pattern ?? h("span.dim", "by name")],
  ["Taken in", (one) => number(one.streams_total), "number"],
  ["With news", (one) => number(one.streams_pending), "number"],
  ["State", (one) => (one.failures ? h("span.bad", `failing, ${number(one.failures)} times`) : one.state)],
  ["For", (one) => one.description ?? ""],
];

export async function subscriptions(root, signal) {
  const listed = h("div");
  root.replaceChildren(h("h1", "Subscriptions"), h("div.card", listed));
  await every(EVERY_MS, signal, async () => {
    const page = await get("/v1/stream/__ds/subscriptions?limit=1000", signal);
    const empty = "There are none. Make one with headwater subscription create.";
    listed.replaceChildren(table(columns, page.subscriptions, empty));
  });
}
