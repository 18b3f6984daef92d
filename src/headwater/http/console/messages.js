// The last messages of a stream, and the next ones as they come.

import { get, messages, news, streamUrl } from "./api.js";
import { h } from "./dom.js";
import { instant, number } from "./format.js";
import { pause } from "./waiting.js";

const SHOWN = 200;
const AGAIN_MS = 2_000;
const TEXT_MAX = 4_000;

export async function follow(path, details, place, count, signal) {
  const body = h("tbody");
  const heads = ["Stored", "Message"].map((title) => h("th", title));
  const empty = h("div.empty", details.closed ? "It ended without a message." : "Nothing yet. New messages appear by themselves.");
  place.replaceChildren(empty);
  const add = (rows, fresh) => {
    if (!rows.length) return;
    if (!body.isConnected) place.replaceChildren(h("div.scroll", h("table", h("thead", h("tr", heads)), body)));
    body.prepend(...rows.slice(-SHOWN).reverse().map((row) => line(row, fresh)));
    while (body.rows.length > SHOWN) body.deleteRow(-1);
    count.textContent = `the last ${number(body.rows.length)}, newest first`;
  };
  const start = await get(`${streamUrl(path)}/_position?last=${SHOWN}`, signal);
  const past = await catchUp(path, start.offset, signal);
  add(past.rows.slice(start.skip), false);
  if (!details.closed) await tail(path, past.next, add, signal);
}

/** Everything up to the tail, of which only the end will be shown. */
async function catchUp(path, offset, signal) {
  let rows = [];
  for (;;) {
    const found = await messages(path, offset, signal);
    rows = [...rows, ...found.rows];
    if (found.next === offset || !found.rows.length) return { rows, next: found.next };
    offset = found.next;
  }
}

async function tail(path, offset, add, signal) {
  while (!signal.aborted) {
    try {
      const { closed } = await news(path, offset, signal);
      const found = await messages(path, offset, signal);
      add(found.rows, true);
      offset = found.next;
      if (closed && !found.rows.length) return;
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 404 || error.status === 410) throw error;
      await pause(AGAIN_MS, signal);
    }
  }
}

function line(row, fresh) {
  const text = row.value ?? decode(row.data);
  const shown = text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX)} … (${number(text.length)} characters)` : text;
  const title = `offset ${row.offset}, message ${row.index} of its append`;
  return h(fresh ? "tr.fresh" : "tr", h("td.when", { title }, instant(row.timestamp)), h("td.value", shown));
}

/** Bytes as text where they are text, otherwise as they came. */
function decode(base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return `${number(bytes.length)} bytes: ${base64}`;
  }
}
