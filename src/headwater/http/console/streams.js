// All streams, page by page.

import { get, send, streamUrl } from "./api.js";
import { ask, h, problem, table } from "./dom.js";
import { instant, number, size } from "./format.js";

const PAGE = 100;

export const linkTo = (path) => `#/stream/${encodeURIComponent(path)}`;

export const streamColumns = [
  ["Stream", (one) => [h("a", { href: linkTo(one.name) }, one.name), one.closed && [" ", h("span.tag", "closed")]]],
  ["Type", (one) => h("span.dim", one.content_type)],
  ["Messages", (one) => number(one.messages), "number"],
  ["Size", (one) => size(one.size_bytes), "number"],
  ["Created", (one) => instant(one.created).slice(0, 19), "when"],
];

export async function streams(root, signal) {
  const listed = h("div");
  const search = h("input", {
    type: "search",
    placeholder: "Path begins with …",
    "aria-label": "Path begins with",
    oninput: () => list(listed, search.value, signal),
  });
  const create = h("button.first", { onclick: () => createStream(root) }, "New stream");
  root.replaceChildren(h("div.row", h("h1", "Streams"), search, h("span.push", create)), h("div.card", listed));
  await list(listed, "", signal);
}

let asked = 0;

async function list(listed, prefix, signal, after = "", before = []) {
  const question = (asked += 1);
  const query = new URLSearchParams({ prefix, after, limit: PAGE });
  const page = await get(`/v1/streams?${query}`, signal);
  // An answer to what was typed before is of no interest any more.
  if (question !== asked) return;
  const rows = [...before, ...page.streams];
  const more = h("button", { onclick: () => list(listed, prefix, signal, page.next, rows) }, "More");
  const empty = prefix ? `No path begins with ${prefix}.` : "There are no streams yet.";
  listed.replaceChildren(table(streamColumns, rows, empty), page.next ? h("div.row", more) : "");
}

async function createStream(root) {
  const kinds = ["application/json", "text/plain", "application/octet-stream"];
  const fields = [
    h("label", "Path", h("input", { name: "path", required: true, placeholder: "orders", autofocus: true })),
    h("label", "Content type", h("select", { name: "kind" }, kinds.map((kind) => h("option", kind)))),
    h("label", "Keep messages for (seconds; empty for ever)", h("input", { name: "keep", inputmode: "numeric", pattern: "[0-9]*" })),
  ];
  const answer = await ask("New stream", fields, "Create");
  if (!answer) return;
  const headers = { "Content-Type": answer.kind };
  if (answer.keep) headers["Stream-Retention-Seconds"] = answer.keep;
  try {
    await send("PUT", streamUrl(answer.path), { headers });
    location.hash = linkTo(answer.path);
  } catch (error) {
    root.prepend(problem(error));
  }
}
