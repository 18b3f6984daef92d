// All streams, page by page.

import { get, send, streamUrl } from "../lib/api.js";
import { ask, button, h, input, runner, select, table } from "../lib/dom.js";
import { instant, number, size } from "../lib/format.js";
import { linkTo } from "../lib/routes.js";

const PAGE = 100;
const TYPED_MS = 150;

/** @type {import("../lib/dom.js").Column<any>[]} */
export const streamColumns = [
  ["Stream", (one) => [h("a", { href: linkTo(one.name) }, one.name), one.closed && [" ", h("span.tag", "closed")]], "name"],
  ["Type", (one) => h("span.dim", one.content_type)],
  ["Messages", (one) => number(one.messages), "number"],
  ["Size", (one) => size(one.size_bytes), "number"],
  ["Created", (one) => instant(one.created), "when"],
];

/** @type {import("../main.js").Page} */
export async function streams(root, signal) {
  const listed = h("div");
  const { place, run } = runner();
  let [asked, typed] = [0, 0];
  const list = async (/** @type {string} */ prefix, after = "", /** @type {any[]} */ before = []) => {
    const question = (asked += 1);
    const page = await get(`/v1/streams?${new URLSearchParams({ prefix, after, limit: String(PAGE) })}`, signal);
    // An answer to what was typed before is of no interest any more.
    if (question !== asked) return;
    const rows = [...before, ...page.streams];
    const empty = prefix ? `No path begins with ${prefix}.` : "There are no streams yet.";
    const more = button("More", () => run(() => list(prefix, page.next, rows)));
    listed.replaceChildren(table("Streams", streamColumns, rows, empty), page.next ? h("div.row.tools", more) : "");
  };
  const search = input({
    type: "search",
    placeholder: "Path begins with …",
    "aria-label": "Path begins with",
    oninput: () => {
      clearTimeout(typed);
      typed = setTimeout(() => run(() => list(search.value)), TYPED_MS);
    },
  });
  const create = button("New stream", () => run(createStream), { kind: "first" });
  root.replaceChildren(h("div.row", h("h1", "Streams"), search, h("span.push", create)), place, h("div.card", listed));
  await list("");
}

async function createStream() {
  const kinds = /** @type {[string, string][]} */ (["application/json", "text/plain", "application/octet-stream"].map((kind) => [kind, kind]));
  const fields = [
    h("label", "Path", input({ name: "path", required: true, placeholder: "orders", autofocus: true })),
    h("label", "Content type", select({ name: "kind" }, kinds)),
    h("label", "Keep messages for (seconds; empty for ever)", input({ name: "keep", inputmode: "numeric", pattern: "[0-9]*" })),
    h("label", "Description", input({ name: "text", maxlength: 200, pattern: "[ -~]*" })),
  ];
  const answer = await ask("New stream", fields, "Create");
  if (!answer) return;
  /** @type {Record<string, string>} */
  const headers = { "Content-Type": answer.kind ?? "" };
  if (answer.keep) headers["Stream-Retention-Seconds"] = answer.keep;
  if (answer.text) headers["Stream-Description"] = answer.text;
  await send("PUT", streamUrl(answer.path ?? ""), { headers });
  location.hash = linkTo(answer.path ?? "");
}
