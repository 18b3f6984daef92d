// Where everything is kept: the disk, files of history, object storage, and what was deleted lately.

import { get, metrics, send, streamUrl } from "../lib/api.js";
import { button, card, facts, h, runner, table } from "../lib/dom.js";
import { instant, number, size } from "../lib/format.js";
import { every } from "../lib/waiting.js";

const EVERY_MS = 5_000;
const LISTED = 100;
/** @type {Record<string, string>} */
const PARTS = { database: "Database", wal: "Write-ahead log", segments: "Files of history", cache: "Cache of object storage" };

/** @type {import("../main.js").Page} */
export async function storage(root, signal) {
  const [disk, history, tasks, deleted] = [h("div"), h("div"), h("div"), h("div")];
  const { place, run } = runner();
  root.replaceChildren(
    h("h1", "History and storage"),
    place,
    h("div.columns", card("On this machine", disk), card("History", history)),
    card("Background tasks", tasks),
    card("Deleted streams", deleted),
  );
  const look = async () => {
    const [now, ready, gone] = await Promise.all([metrics(signal), get("/readyz", signal), get(`/v1/streams?deleted=true&limit=${LISTED}`, signal)]);
    disk.replaceChildren(ofDisk(now));
    history.replaceChildren(ofHistory(now));
    tasks.replaceChildren(ofTasks(now, ready.problems ?? {}));
    deleted.replaceChildren(table("Deleted streams", columns, gone.streams, "None that could be brought back."), gone.next ? h("p.dim", "There are more.") : "");
  };
  const undelete = async (/** @type {string} */ path) => {
    await send("POST", `${streamUrl(path)}/_undelete`);
    await look();
  };
  /** @type {import("../lib/dom.js").Column<any>[]} */
  const columns = [
    ["Stream", (one) => one.name, "name"],
    ["Messages", (one) => number(one.messages), "number"],
    ["Size", (one) => size(one.size_bytes), "number"],
    ["Deleted", (one) => instant(one.deleted_at), "when"],
    ["Kept until", (one) => instant(one.kept_until), "when"],
    ["", (one) => button("Undelete", () => run(() => undelete(one.name)))],
  ];
  await every(EVERY_MS, signal, look);
}

/** Figures of one name by the value of their only label. @param {Map<string, number>} now @param {string} name @returns {[string, number][]} */
function byLabel(now, name) {
  const found = [...now].filter(([key]) => key.startsWith(`${name}{`));
  return found.map(([key, value]) => [key.match(/="((?:[^"\\]|\\.)*)"/)?.[1] ?? key, value]);
}

/** @param {Map<string, number>} now */
function ofDisk(now) {
  const parts = byLabel(now, "headwater_disk_bytes");
  const full = now.get("headwater_storage_full");
  return facts([
    ["Disk", full ? h("span.bad", "full: nothing new can be stored") : "has room"],
    ...parts.map(([part, bytes]) => /** @type {[string, string]} */ ([PARTS[part] ?? part, size(bytes)])),
    ["All together", parts.length ? size(parts.reduce((sum, [, bytes]) => sum + bytes, 0)) : "kept in memory only"],
    ["Waiting for a commit", size(now.get("headwater_queue_bytes"))],
    ["Recent data in memory", size(now.get("headwater_hot_bytes"))],
  ]);
}

/** @param {Map<string, number>} now */
function ofHistory(now) {
  const files = new Map(byLabel(now, "headwater_history_files"));
  const bytes = new Map(byLabel(now, "headwater_history_bytes"));
  const count = (/** @type {string} */ name) => number(now.get(`headwater_${name}_total`) ?? 0);
  const down = now.get("headwater_history_store_down");
  return facts([
    ["Files here", `${number(files.get("here") ?? 0)}, ${size(bytes.get("here") ?? 0)}`],
    ["Files in object storage", `${number(files.get("object storage") ?? 0)}, ${size(bytes.get("object storage") ?? 0)}`],
    ["Not uploaded yet", size(now.get("headwater_history_waiting_bytes") ?? 0)],
    ["Object storage", down ? h("span.bad", "does not answer") : "–"],
    ["Sealed", `${count("sealed_files")} files since the start`],
    ["Rewritten", `${count("compacted_files")} files`],
    ["Uploaded", `${count("uploads")} files, ${count("upload_failures")} failed attempts`],
  ]);
}

/** @param {Map<string, number>} now @param {Record<string, string>} problems */
function ofTasks(now, problems) {
  const failing = new Map(byLabel(now, "headwater_task_failing"));
  const rows = byLabel(now, "headwater_task_failures_total").sort();
  /** @type {import("../lib/dom.js").Column<[string, number]>[]} */
  const columns = [
    ["Task", ([name]) => name],
    ["Now", ([name]) => (failing.get(name) ? h("span.bad", problems[name] ?? "failing") : h("span.good", "well"))],
    ["Failures", ([, many]) => number(many), "number"],
  ];
  return table("Background tasks", columns, rows, "None runs.");
}
