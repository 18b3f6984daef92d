// One stream: its messages as they come, its groups, and what is known about it.

import { get, send, streamUrl } from "./api.js";
import { ask, facts, h, problem, table } from "./dom.js";
import { duration, instant, number, size } from "./format.js";
import { groupsCard } from "./groups.js";
import { follow } from "./messages.js";
import { linkTo } from "./streams.js";
import { every } from "./waiting.js";

const EVERY_MS = 3_000;

export async function stream(root, signal, path) {
  const url = `${streamUrl(path)}/_details`;
  const details = await get(url, signal);
  const notes = h("div");
  const run = async (action) => {
    notes.replaceChildren();
    try {
      await action();
    } catch (error) {
      notes.replaceChildren(problem(error));
    }
  };
  const known = h("div");
  const rows = h("div");
  const count = h("span.dim");
  root.replaceChildren(
    h(
      "div.row",
      h("h1", path),
      details.closed && h("span.tag", "closed"),
      h(
        "span.push.row",
        !details.closed && h("button", { onclick: () => run(() => close(path)) }, "Close"),
        h("button.danger", { onclick: () => run(() => remove(path)) }, "Delete"),
      ),
    ),
    notes,
    !details.closed && isText(details) ? appendCard(path, details, run) : "",
    h("div.card", h("div.row", h("h2", "Messages"), count), rows),
    groupsCard(path, signal, run),
    h("div.card", h("h2", "About"), known, snapshots(path, signal)),
  );
  const look = async () => known.replaceChildren(about(await get(url, signal)));
  every(EVERY_MS, signal, look).catch(() => {});
  await follow(path, details, rows, count, signal);
}

const isText = ({ content_type: kind }) => kind.startsWith("text/") || isJson(kind);
const isJson = (kind) => kind.split(";")[0].trim().endsWith("json");

function appendCard(path, details, run) {
  const json = isJson(details.content_type);
  const example = json ? '{"id": 1}, or [ … ] for several messages' : "text";
  const body = h("textarea", { placeholder: example, "aria-label": "Message", spellcheck: "false" });
  const append = async () => {
    await send("POST", streamUrl(path), {
      body: body.value,
      headers: { "Content-Type": details.content_type },
    });
    body.value = "";
  };
  const hint = h("span.dim", "Ctrl+Enter");
  body.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run(append);
  });
  const button = h("button.first", { onclick: () => run(append) }, "Append");
  return h("div.card", h("h2", "Append"), body, h("div.row", button, hint));
}

async function close(path) {
  const warning = h("p", "Nothing can be appended to a closed stream, ever. Readers see that it ends.");
  if (!(await ask(`Close ${path}?`, [warning], "Close it", { danger: true }))) return;
  await send("POST", streamUrl(path), { headers: { "Stream-Closed": "true" } });
  location.reload();
}

async function remove(path) {
  const field = h("input", { name: "path", required: true, pattern: literal(path), autocomplete: "off" });
  const fields = [h("p", "All its messages and groups go with it."), h("label", "Type its path to go on", field)];
  if (!(await ask(`Delete ${path}?`, fields, "Delete it", { danger: true }))) return;
  await send("DELETE", streamUrl(path));
  location.hash = "#/streams";
}

const literal = (text) => text.replace(/[\\^$.*+?()[\]{}|/\-]/g, "\\$&");

function about(details) {
  const source = details.forked_from;
  const kept = [
    details.retention_s && duration(details.retention_s * 1000),
    details.retention_bytes && size(details.retention_bytes),
  ].filter(Boolean);
  return facts([
    ["Type", details.content_type],
    ["Description", details.description],
    ["Messages", number(details.messages)],
    ["Size", size(details.size_bytes)],
    ["Created", instant(details.created)],
    ["Kept", kept.join(", ") || "for ever"],
    ["Expires", details.expires_at && instant(details.expires_at)],
    ["Time to live", details.ttl_s && `${duration(details.ttl_s * 1000)} after the last use`],
    ["Unique ids", details.unique_ids && `${details.unique_ids} ${details.id_pointer ?? ""}`],
    ["Profile", details.profile],
    ["Forked from", source && h("a", { href: linkTo(source) }, source)],
    ["Forks", details.forks || null],
    ["Producers", details.producers || null],
    ["Readers now", number(details.readers)],
    ["Next offset", h("code", details.tail)],
  ]);
}

function snapshots(path, signal) {
  const shown = h("div");
  const columns = [
    ["Snapshot at", (one) => h("code", one.offset)],
    ["Type", (one) => one.content_type],
    ["Size", (one) => size(one.size_bytes), "number"],
    ["Made", (one) => instant(one.created), "when"],
  ];
  get(`${streamUrl(path)}/_snapshots`, signal).then(
    (found) => found.snapshots.length && shown.append(table(columns, found.snapshots, "")),
    () => {},
  );
  return shown;
}
