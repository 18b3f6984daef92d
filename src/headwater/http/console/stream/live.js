// The live queries of one stream: how it is doing, and which templates are followed.

import { get, post, streamUrl } from "../lib/api.js";
import { button, card, facts, h, runner, table } from "../lib/dom.js";
import { ago, duration, number, size } from "../lib/format.js";
import { every } from "../lib/waiting.js";

const EVERY_MS = 2_000;
/** @type {import("../lib/dom.js").Column<any>[]} */
const COLUMNS = [
  ["Table", (one) => one.entity],
  ["Fields", (one) => one.fields.map((/** @type {any} */ field) => `${field.name} (${field.encoding})`).join(", ")],
  ["Waits", (one) => number(one.waiters), "number"],
  ["Used", (one) => ago(one.lastSeenMs), "when"],
  ["Retires after", (one) => duration(one.inactivityTtlMs), "number"],
  ["Id", (one) => h("code", one.templateId)],
];

/**
 * @param {string} path
 * @param {any} details
 * @param {import("../lib/session.js").Rights} rights
 * @param {AbortSignal} signal
 */
export function liveTab(path, details, rights, signal) {
  const [state, templates] = [h("div"), h("div")];
  const { place, run } = runner();
  if (details.profile !== "state-protocol") return [place, card("Live queries", offer(path, details, rights, run))];
  run(() =>
    every(EVERY_MS, signal, async () => {
      const meta = await get(`${streamUrl(path)}/touch/meta?templates=true`, signal);
      state.replaceChildren(describe(meta));
      const sorted = meta.templates.sort((/** @type {any} */ one, /** @type {any} */ other) => other.lastSeenMs - one.lastSeenMs);
      templates.replaceChildren(table("Templates", COLUMNS, sorted.slice(0, 500), "None is followed. Queries declare them when they wait."));
    }),
  );
  return [place, card("Live queries", state), card("Templates", templates)];
}

/**
 * @param {string} path
 * @param {any} details
 * @param {import("../lib/session.js").Rights} rights
 * @param {(action: () => unknown) => Promise<void>} run
 */
function offer(path, details, rights, run) {
  const text = h("p", "Queries can wait on streams of change records, those with the profile state-protocol. This one has the profile ", h("code", details.profile), ".");
  if (!rights.write || !details.content_type.startsWith("application/json")) return text;
  const enable = async () => {
    await post(`${streamUrl(path)}/_profile`, { apiVersion: "durable.streams/profile/v1", profile: { kind: "state-protocol", touch: { enabled: true } } });
    location.reload();
  };
  return [text, button("Make it one", () => run(enable), { title: "From then on, messages that are no change records are refused" })];
}

/** @param {any} meta */
const describe = (meta) =>
  facts([
    ["Mode", meta.touchMode === "fine" || meta.touchMode === "idle" ? meta.touchMode : h("span.warn", meta.touchMode)],
    ["Waits under way", number(meta.activeWaiters)],
    ["Keys waited on", number(meta.hotFineKeys)],
    ["Templates followed", number(meta.activeTemplates)],
    ["Messages not looked at yet", number(meta.lagSourceOffsets)],
    ["Changes looked at", number(meta.totalChanges)],
    ["Waits ended by a touch", number(meta.totalTouched)],
    ["… by time", number(meta.totalTimeouts)],
    ["Memory of the past", size(meta.memoryBytes)],
    ["Cursor", h("code", meta.cursor)],
  ]);
