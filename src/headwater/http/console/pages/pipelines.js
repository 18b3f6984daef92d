// The pipelines from streams to tables: how far they are, and the tables they made.

import { ApiError, get } from "../lib/api.js";
import { card, h, table } from "../lib/dom.js";
import { ago, duration, instant, number, rate, size } from "../lib/format.js";
import { every } from "../lib/waiting.js";

const EVERY_MS = 3_000;
const TABLES_EVERY_MS = 15_000;

/** @type {import("../lib/dom.js").Column<any>[]} */
const COLUMNS = [
  ["Pipeline", (one) => one.name, "name"],
  ["Kind", (one) => h("span.dim", one.kind)],
  ["Batch", (one) => number(one.batch), "number"],
  ["Rows", (one) => number(one.rows), "number"],
  ["Speed", (one) => rate(one.rows_per_s), "number"],
  ["Time of a batch", (one) => duration(one.batch_ms), "number"],
  ["Behind", (one) => behind(one), "number"],
  ["Reported", (one) => ago(one.reported), "when"],
  ["Error", (one) => (one.error ? h("span.bad", one.error) : h("span.dim", "none"))],
];
/** @type {import("../lib/dom.js").Column<any>[]} */
const TABLES = [
  ["Table", (one) => h("a", { href: `#/sql?${new URLSearchParams({ ask: `SELECT * FROM ${one.name} LIMIT 100` })}` }, one.name), "name"],
  ["Path", (one) => h("code", one.path)],
  ["Rows", (one) => number(one.rows), "number"],
  ["Size", (one) => size(one.size_bytes), "number"],
  ["Version", (one) => number(one.version), "number"],
  ["Last batch", (one) => instant(one.changed), "when"],
];

/** @param {{lag_messages: number | null, lag_s: number}} report */
function behind({ lag_messages: messages, lag_s: seconds }) {
  if (messages == null) return "–";
  return messages ? `${number(messages)} (${duration(seconds * 1000)})` : h("span.good", "nothing");
}

/** @type {import("../main.js").Page} */
export async function pipelines(root, signal) {
  const [listed, tables] = [h("div"), h("div", h("div.empty", "Looking …"))];
  root.replaceChildren(h("h1", "Pipelines"), card("Progress", listed), card("Tables", tables));
  every(TABLES_EVERY_MS, signal, async () => tables.replaceChildren(await listTables(signal))).catch(() => {});
  await every(EVERY_MS, signal, async () => {
    const { pipelines: reports } = await get("/v1/pipelines", signal);
    const empty = ["None has reported since this server started. Start one with ", h("code", "headwater pipeline run"), ", or all of them with ", h("code", "headwater up"), "."];
    listed.replaceChildren(table("Pipelines", COLUMNS, reports, empty));
  });
}

/** @param {AbortSignal} signal */
async function listTables(signal) {
  try {
    const found = await get("/v1/tables", signal);
    return table("Tables", TABLES, found.tables, "There are none yet.");
  } catch (error) {
    if (error instanceof ApiError && error.status) return h("p.dim", error.message);
    throw error;
  }
}
