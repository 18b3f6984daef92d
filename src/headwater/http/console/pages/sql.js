// Questions to the tables in SQL, with a table and a chart of the answer.

import { ApiError, get, post } from "../lib/api.js";
import { Chart } from "../lib/chart.js";
import { bars } from "../lib/bars.js";
import { button, card, h, runner, table } from "../lib/dom.js";
import { copyButton, download } from "../lib/files.js";
import { duration, number } from "../lib/format.js";

/** @typedef {{columns: {name: string, kind: string}[], rows: any[][], more: boolean}} Answer */

const ROWS_DRAWN = 500;

/** @type {import("../main.js").Page} */
export async function sql(root, signal, _parts, query) {
  const { place, run } = runner();
  const answer = h("div.answer");
  const field = /** @type {HTMLTextAreaElement} */ (h("textarea.sql", { "aria-label": "Question in SQL", spellcheck: "false", placeholder: "SELECT …" }));
  const names = await tableNames(signal);
  if (names instanceof Node) return root.replaceChildren(h("h1", "SQL"), names);
  field.value = query.get("ask") ?? (names[0] ? `SELECT * FROM ${names[0]} LIMIT 100` : "");
  const go = () => run(async () => {
    answer.replaceChildren(h("div.empty", "Asking …"));
    const began = performance.now();
    try {
      const found = await (await post("/v1/sql", { sql: field.value }, signal)).json();
      answer.replaceChildren(...shown(found, performance.now() - began));
      history.replaceState(null, "", `#/sql?${new URLSearchParams({ ask: field.value })}`);
    } catch (error) {
      answer.replaceChildren();
      throw error;
    }
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) go();
  });
  const choices = names.map((name) => button(name, () => {
    field.value = `SELECT * FROM ${name} LIMIT 100`;
    go();
  }, { kind: "quiet" }));
  root.replaceChildren(
    h("h1", "SQL"),
    card("Question", [field, h("div.row.tools", button("Ask", go, { kind: "first" }), h("span.dim", "Ctrl+Enter"), h("span.push.row", choices))]),
    place,
    answer,
  );
  if (query.get("ask")) await go();
}

/** @param {AbortSignal} signal @returns {Promise<string[] | Node>} names of tables, or why there are none */
async function tableNames(signal) {
  try {
    const { tables } = await get("/v1/tables", signal);
    return tables.map((/** @type {any} */ one) => one.name);
  } catch (error) {
    if (error instanceof ApiError && error.status) return h("div.card", error.message);
    throw error;
  }
}

/** @param {Answer} answer @param {number} took */
function shown({ columns, rows, more }, took) {
  /** @type {import("../lib/dom.js").Column<any[]>[]} */
  const cells = columns.map(({ name, kind }, at) => [name, (row) => textOf(row[at], kind), kind === "number" ? "number" : "value"]);
  const note = `${number(rows.length)} rows${more ? ", and more" : ""}, ${duration(took)}`;
  const csv = () => [columns.map((one) => one.name), ...rows].map((row) => row.map(csvOf).join(",")).join("\n");
  const tools = [h("span.dim", note), copyButton("Copy CSV", csv), button("Download CSV", () => download("answer.csv", [csv()]))];
  const drawn = chartOf(columns, rows);
  const table_ = table("Answer", cells, rows.slice(0, ROWS_DRAWN), "No rows.");
  const rest = rows.length > ROWS_DRAWN ? h("p.dim", `${number(rows.length - ROWS_DRAWN)} more rows are in the CSV.`) : null;
  return [...(drawn ? [card("Chart", drawn)] : []), card("Answer", [table_, rest], tools)];
}

/** @param {any} value @param {string} kind */
function textOf(value, kind) {
  if (value === null) return h("span.dim", "null");
  if (kind === "number" && typeof value === "number") return String(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** @param {any} value */
function csvOf(value) {
  const text = value === null ? "" : typeof value === "string" ? value : JSON.stringify(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/**
 * A line over time, or bars by name, where the columns allow it.
 * @param {{name: string, kind: string}[]} columns
 * @param {any[][]} rows
 */
function chartOf(columns, rows) {
  const figure = columns.findIndex(({ kind }) => kind === "number");
  if (figure < 0 || rows.length < 2) return null;
  const when = columns.findIndex(({ kind }) => kind === "time");
  const values = rows.map((row) => (typeof row[figure] === "number" ? row[figure] : null));
  if (when >= 0) return overTime(columns[figure]?.name ?? "", rows.map((row) => Date.parse(row[when])), values);
  const name = columns.findIndex(({ kind }) => kind === "text");
  if (name < 0 || rows.length > 40) return null;
  return bars(columns[figure]?.name ?? "", rows.map((row) => String(row[name])), values);
}

/** @param {string} title @param {number[]} times @param {(number | null)[]} values */
function overTime(title, times, values) {
  const order = times.map((time, at) => ({ time, value: values[at] ?? null })).filter(({ time }) => !Number.isNaN(time));
  order.sort((one, other) => one.time - other.time);
  const [first, last] = [order[0]?.time, order.at(-1)?.time];
  if (first === undefined || last === undefined || first === last) return null;
  const chart = new Chart(title, number);
  chart.show({ times: order.map((one) => one.time), values: order.map((one) => one.value) }, first, last);
  return chart.element;
}
