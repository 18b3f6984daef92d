// A message: a line that opens.

import { messages } from "../lib/api.js";
import { button, facts, h } from "../lib/dom.js";
import { copyButton, download } from "../lib/files.js";
import { instant, number, size } from "../lib/format.js";
import { parse, pretty, preview, tree } from "../lib/json.js";
import { bytesOf, hexDump, picture, pictureType, textOf } from "./bytes.js";

/** @typedef {import("../lib/api.js").Message} Message */

const PREVIEW_CHARS = 240;

/**
 * What a message is, for a filter and for people.
 * @param {{text?: string, base64?: string}} row
 */
export const contentOf = (row) => row.text ?? textOf(bytesOf(row.base64 ?? "")) ?? row.base64 ?? "";

/** @param {Message} row */
const summaryOf = (row) => {
  if (row.text !== undefined) return preview(row.text, PREVIEW_CHARS);
  const bytes = bytesOf((row.base64 ?? "").slice(0, 4 * PREVIEW_CHARS));
  const kind = pictureType(bytes);
  if (kind) return h("code.dim", `${kind}, ${size(row.size)}`);
  const text = textOf(bytes) ?? (row.size > bytes.length ? textOf(bytes.slice(0, -4)) : null);
  if (text === null) return h("code.dim", `${number(row.size)} bytes: `, [...bytes.slice(0, 24)].map((byte) => byte.toString(16).padStart(2, "0")).join(" "));
  return h("code", text.length > PREVIEW_CHARS ? `${text.slice(0, PREVIEW_CHARS)}…` : text);
};

/**
 * @param {string} path
 * @param {Message} row
 * @param {{fresh?: boolean}} [options]
 */
export function messageRow(path, row, { fresh = false } = {}) {
  const body = h("div.message-body");
  const details = /** @type {HTMLDetailsElement} */ (h(
    fresh ? "details.message.fresh" : "details.message",
    h(
      "summary",
      h("span.when", instant(row.timestamp, { precise: true })),
      h("span.offset.mono", `${row.offset}/${row.index}`),
      h("span.producer.mono", row.producer ? `${row.producer.id} · ${row.producer.epoch}/${row.producer.seq}` : ""),
      h("span.value", summaryOf(row)),
    ),
    body,
  ));
  details.addEventListener("toggle", () => {
    // Built when it is opened, and given back when it is closed.
    body.replaceChildren(...(details.open ? opened(path, row) : []));
  });
  return details;
}

/**
 * @param {string} path
 * @param {Message} row
 */
function opened(path, row) {
  const place = h("div.view");
  const views = viewsOf(row);
  const buttons = views.map(([name], index) => {
    const made = button(name, () => show(index));
    made.setAttribute("aria-pressed", "false");
    return made;
  });
  const show = (/** @type {number} */ index) => {
    place.replaceChildren(views[index]?.[1]() ?? "");
    buttons.forEach((one, at) => one.setAttribute("aria-pressed", String(at === index)));
  };
  show(0);
  const bar = h(
    "div.row.tools",
    views.length > 1 ? h("span.choice", { role: "group", "aria-label": "View" }, buttons) : null,
    copyButton("Copy", async () => contentOf(await wholeOf(path, row))),
    button("Download", () => save(path, row)),
    h("span.push.dim", row.cut ? `the first ${size(shownSize(row))} of ${size(row.size)}; download it to see all` : size(row.size)),
  );
  return [bar, place, about(row)];
}

/**
 * @param {Message} row
 * @returns {[string, () => HTMLElement][]} the ways to look at a message, the best one first
 */
function viewsOf(row) {
  if (row.text !== undefined) {
    const text = row.text;
    const raw = () => h("pre.raw", text);
    const root = row.cut ? null : parse(text);
    if (!root) return [["Text", raw]];
    return [["Tree", () => h("div.json", tree(root))], ["Pretty", () => h("pre.raw", pretty(text))], ["Raw", raw]];
  }
  const bytes = bytesOf(row.base64 ?? "");
  /** @type {[string, () => HTMLElement][]} */
  const views = [["Hex", () => hexDump(bytes)]];
  const text = textOf(bytes);
  if (text !== null) views.unshift(["Text", () => h("pre.raw", text)]);
  const root = text !== null && text.trimStart().startsWith("{") ? parse(text) : null;
  if (root) views.unshift(["Tree", () => h("div.json", tree(root))]);
  const kind = pictureType(bytes);
  if (kind && !row.cut) views.unshift(["Picture", () => picture(bytes, kind)]);
  return views;
}

/** @param {Message} row */
const about = (row) =>
  facts([
    ["Stored", instant(row.timestamp, { precise: true })],
    ["Offset", h("code", row.offset)],
    ["In its append", `message ${row.index}`],
    ["Message id", row.id && h("code", row.id)],
    ["Producer", row.producer && h("code", `${row.producer.id}, epoch ${row.producer.epoch}, sequence ${row.producer.seq}`)],
  ]);

/** How much of a message is here. @param {Message} row */
const shownSize = ({ text, base64 = "" }) => text?.length ?? (base64.length * 3) / 4;

/**
 * A message without its end cut off.
 * @param {string} path
 * @param {Message} row
 * @returns {Promise<Message>}
 */
export async function wholeOf(path, row) {
  if (!row.cut) return row;
  const found = await messages(path, { offset: row.offset, bytes: 1, whole: true }, new AbortController().signal);
  return found.rows.find((one) => one.index === row.index) ?? row;
}

/**
 * Save a message as it is, the whole of it.
 * @param {string} path
 * @param {Message} row
 */
async function save(path, row) {
  const whole = await wholeOf(path, row);
  const name = `${path}-${row.offset}-${row.index}${row.text === undefined ? ".bin" : ".json"}`;
  download(name, [/** @type {BlobPart} */ (whole.text ?? bytesOf(whole.base64 ?? ""))]);
}
