// A stream of the State Protocol as what it adds up to: rows by type and key, and how each came to be.

import { Fold, isRecord } from "../../js/folding.js";
import { position } from "../lib/api.js";
import { button, card, h, input, runner, select } from "../lib/dom.js";
import { number } from "../lib/format.js";
import { parse, preview, tree } from "../lib/json.js";
import { every } from "../lib/waiting.js";
import { messageRow } from "./row.js";
import { between, SCANNED_BYTES_MAX, SCANNED_MAX } from "./scan.js";

/** @typedef {import("../lib/api.js").Message} Message */

const ROWS_SHOWN = 200;
const CHANGES_SHOWN = 100;
const EVERY_MS = 2_000;

/**
 * The record that a message is, with the message itself as its value; null if it is none.
 * @param {Message} message
 */
function recordOf(message) {
  try {
    const record = JSON.parse(message.text ?? "");
    return isRecord(record) ? { ...record, value: message } : null;
  } catch {
    return null;
  }
}

/** @param {Message} message */
const valueOf = (message) => parse(message.text ?? "")?.children?.find((one) => one.name === '"value"')?.node;

/**
 * @param {string} path
 * @param {any} details
 * @param {AbortSignal} signal
 */
export function stateTab(path, details, signal) {
  const { place, run } = runner();
  const [status, listed, below] = [h("span.dim", { role: "status" }), h("div"), h("div")];
  const types = select({ "aria-label": "Type" }, []);
  const wanted = input({ type: "search", placeholder: "Key contains …", "aria-label": "Key contains" });
  const fold = new Fold();
  let [offset, scanned, bytes, full] = ["-1", 0, 0, false];

  const draw = () => {
    const names = [...fold.entities].filter(([, rows]) => rows.size).map(([type]) => type).sort();
    const chosen = names.includes(types.value) ? types.value : names[0];
    types.replaceChildren(...names.map((type) => h("option", { value: type, selected: type === chosen }, `${type} (${number(fold.entities.get(type)?.size ?? 0)})`)));
    const rows = [...(fold.entities.get(chosen ?? "") ?? [])].filter(([key]) => key.includes(wanted.value));
    const shown = rows.sort(([one], [other]) => (one < other ? -1 : 1)).slice(0, ROWS_SHOWN);
    listed.replaceChildren(
      rows.length ? "" : h("div.empty", "There are no rows: no messages of the State Protocol, or all of them deleted."),
      h("div.messages", shown.map(([key, message]) => stateRow(chosen ?? "", key, message, () => run(() => history(chosen ?? "", key))))),
      rows.length > ROWS_SHOWN ? h("div.dim", `${number(rows.length - ROWS_SHOWN)} more; search for a key`) : "",
    );
    status.textContent = `after ${number(scanned)} messages${full ? ", where reading stops: there are more than a page should hold" : ""}`;
  };

  const catchUp = async () => {
    if (full) return;
    const { tail } = await position(path, { offset: "now" }, signal);
    if (tail === offset) return;
    for await (const part of between(path, { offset, skip: 0, until: tail }, signal)) {
      fold.apply(part.rows.map(recordOf).filter((record) => record !== null));
      scanned += part.rows.length;
      bytes += part.bytes;
      full = scanned >= SCANNED_MAX || bytes >= SCANNED_BYTES_MAX;
      status.textContent = `${number(scanned)} messages …`;
      if (full) break;
    }
    offset = tail;
    draw();
  };

  const history = async (/** @type {string} */ type, /** @type {string} */ key) => {
    below.replaceChildren(h("div.empty", "Looking …"));
    /** @type {Message[]} */
    let changes = [];
    let many = 0;
    for await (const part of between(path, { offset: "-1", skip: 0, until: offset, producers: true }, signal)) {
      const found = part.rows.filter((row) => {
        const record = recordOf(row);
        return record && (record.headers.control || (record.type === type && record.key === key));
      });
      many += found.length;
      changes = changes.concat(found).slice(-CHANGES_SHOWN);
    }
    const note = many > changes.length ? `the last ${number(changes.length)} of ${number(many)}` : number(many);
    const shown = card(`History of ${key}`, h("div.messages.with-offsets.with-producers", changes.reverse().map((row) => messageRow(path, row))), h("span.dim", note));
    below.replaceChildren(shown);
    shown.scrollIntoView({ block: "nearest" });
  };

  types.addEventListener("change", draw);
  wanted.addEventListener("input", draw);
  const top = h("div.row.tools", types, wanted, status);
  run(() => every(EVERY_MS, signal, catchUp));
  const hint = details.profile === "state-protocol" ? null : h("p.dim", "No profile checks what is appended here; messages that are not change records are left out.");
  return [place, card("Current rows", [hint, top, listed]), below];
}

/**
 * @param {string} type
 * @param {string} key
 * @param {Message} message
 * @param {() => void} showHistory
 */
function stateRow(type, key, message, showHistory) {
  const value = valueOf(message);
  const body = h("div.message-body");
  const row = /** @type {HTMLDetailsElement} */ (h(
    "details.message",
    h("summary", h("span.key.mono", key), h("span.value", preview(value?.text ?? "", 240))),
    body,
  ));
  row.addEventListener("toggle", () => {
    if (!row.open) return body.replaceChildren();
    body.replaceChildren(h("div.row.tools", button("History", showHistory, { title: `How ${type} ${key} came to be` })), value ? h("div.json", tree(value)) : "");
  });
  return row;
}
