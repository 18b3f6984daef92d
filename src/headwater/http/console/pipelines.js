// What pipelines last said about themselves.

import { get } from "./api.js";
import { h, table } from "./dom.js";
import { duration, number, rate } from "./format.js";
import { every } from "./waiting.js";

const EVERY_MS = 2_000;

const columns = [
  ["Pipeline", (one) => one.name],
  ["Kind", (one) => h("span.dim", one.kind)],
  ["Batch", (one) => number(one.batch), "number"],
  ["Rows", (one) => number(one.rows), "number"],
  ["Speed", (one) => rate(one.rows_per_s), "number"],
  ["Time of a batch", (one) => duration(one.batch_ms), "number"],
  ["Behind", (one) => behind(one), "number"],
  ["Said", (one) => `${duration(Math.max(0, Date.now() - one.reported))} ago`, "when"],
];

function behind({ lag_messages: messages, lag_s: seconds }) {
  if (messages == null) return "–";
  return messages ? `${number(messages)} (${duration(seconds * 1000)})` : h("span.good", "nothing");
}

export async function pipelines(root, signal) {
  const listed = h("div");
  root.replaceChildren(h("h1", "Pipelines"), h("div.card", listed));
  await every(EVERY_MS, signal, async () => {
    const { pipelines: reports } = await get("/v1/pipelines", signal);
    const empty = "None has said anything since this server started. Start one with headwater pipeline run.";
    listed.replaceChildren(table(columns, reports, empty));
  });
}
