// The nodes of a cluster, where there is one.

import { ApiError, get } from "../lib/api.js";
import { card, facts, h, table } from "../lib/dom.js";
import { ago, duration, number } from "../lib/format.js";
import { every } from "../lib/waiting.js";

const EVERY_MS = 2_000;

/** @type {import("../main.js").Page} */
export async function cluster(root, signal) {
  const shown = h("div");
  root.replaceChildren(h("h1", "Cluster"), shown);
  await every(EVERY_MS, signal, async () => {
    try {
      shown.replaceChildren(...describe(await get("/v1/cluster", signal)));
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
      shown.replaceChildren(h("div.card", "This server is alone: it is not a node of a cluster."));
    }
  });
}

/** @param {any} found @returns {Node[]} */
function describe(found) {
  const lists = Object.entries(found).filter(([, value]) => Array.isArray(value));
  const plain = Object.entries(found).filter(([, value]) => !Array.isArray(value));
  const about = plain.map(([name, value]) => /** @type {[string, any]} */ ([title(name), shownValue(name, value)]));
  return [...lists.map(([name, rows]) => listed(title(name), /** @type {any[]} */ (rows))), card("This node", facts(about))];
}

/** @param {string} name @param {any[]} rows */
function listed(name, rows) {
  const names = [...new Set(rows.flatMap((one) => Object.keys(one)))];
  /** @type {import("../lib/dom.js").Column<any>[]} */
  const columns = names.map((key) => [title(key), (one) => shownValue(key, one[key]), typeof rows[0]?.[key] === "number" ? "number" : ""]);
  return card(name, table(name, columns, rows, "There are none."));
}

/** @param {string} name */
const title = (name) => (name.charAt(0).toUpperCase() + name.slice(1)).replaceAll("_", " ").replace(/ ms$/, "");

/** @param {string} name @param {any} value */
function shownValue(name, value) {
  if (typeof value === "number" && /(_at|_ms|since|seen|until)$/.test(name) && value > 1e12) return ago(value);
  if (typeof value === "number" && name.endsWith("_ms")) return duration(value);
  if (typeof value === "number") return number(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (value === null || value === undefined) return "–";
  return typeof value === "string" ? value : h("code", JSON.stringify(value));
}
