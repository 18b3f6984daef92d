// The pipelines from streams to tables: how far they are, and the tables they made.

import { ApiError, get, post, send, streamUrl } from "../lib/api.js";
import { ask, button, card, h, runner, select, table } from "../lib/dom.js";
import { ago, duration, instant, number, rate, size } from "../lib/format.js";
import { linkTo } from "../lib/routes.js";
import { every } from "../lib/waiting.js";

const EVERY_MS = 3_000;
const TABLES_EVERY_MS = 15_000;
const SILENT_MS = 60_000;
const CONTROL = "pipelines/control";
/** What a pipeline is doing, in a colour. @type {Record<string, string>} */
const STATES = { failing: "bad", paused: "warn", running: "good" };

/** @type {import("../lib/dom.js").Column<any>[]} */
const COLUMNS = [
  ["Pipeline", (one) => [one.name, h("div.dim", one.kind, one.selection && [" of ", h("code", one.selection)])], "name"],
  ["State", (one) => [stateOf(one), one.quarantined ? h("div", h("a", { href: linkTo(`quarantine/${one.name}`) }, `${number(one.quarantined)} in quarantine`)) : null]],
  ["Behind", (one) => behind(one), "number"],
  ["Batch", (one) => number(one.batch), "number"],
  ["Rows", (one) => number(one.rows), "number"],
  ["Speed", (one) => rate(one.rows_per_s), "number"],
  ["Took", (one) => duration(one.batch_ms), "number"],
  ["Reported", (one) => h(isSilent(one) ? "span.warn" : "span", ago(one.reported)), "when"],
];
/** @type {import("../lib/dom.js").Column<any>[]} */
const TABLES = [
  ["Table", (one) => h("a", { href: `#/sql?${new URLSearchParams({ ask: `SELECT * FROM ${one.name} LIMIT 100` })}` }, one.name), "name"],
  ["Path", (one) => h("code", one.path)],
  ["Rows", (one) => number(one.rows), "number"],
  ["Size", (one) => size(one.size_bytes), "number"],
  ["Version", (one) => number(one.version), "number"],
  ["Last batch", (one) => instant(one.changed), "when"],
];

/** @param {{lag_messages: number | null, lag_s: number}} report */
function behind({ lag_messages: messages, lag_s: seconds }) {
  if (messages == null) return "–";
  return messages ? `${number(messages)} (${duration(seconds * 1000)})` : h("span.good", "nothing");
}

/** Whether it has not been heard of for too long. @param {any} one */
const isSilent = (one) => one.kind !== "process" && Date.now() - one.reported > SILENT_MS;

/** @param {any} one */
function stateOf(one) {
  const state = one.error ? "failing" : one.state ?? "running";
  if (isSilent(one) && state === "running") return h("span.warn", { title: "It has not reported for a while." }, "silent");
  return h(`span.${STATES[state] ?? "dim"}`, state);
}

/**
 * What pipelines fail with, or failed with last. Errors are long, so they have lines of their own.
 * @param {any[]} reports
 */
function errorsOf(reports) {
  const failing = reports.filter((one) => one.error);
  const over = reports.filter((one) => !one.error && one.last_error);
  if (!failing.length && !over.length) return "";
  return h("dl.errors", [
    failing.map((one) => [h("dt", one.name), h("dd.bad", one.error)]),
    over.map((one) => [h("dt", one.name), h("dd.dim", "recovered from: ", one.last_error, " (", instant(one.last_error_at), ")")]),
  ]);
}

/** @type {import("../main.js").Page} */
export async function pipelines(root, signal) {
  const { place, run } = runner();
  const [listed, tables] = [h("div"), h("div", h("div.empty", "Looking …"))];
  root.replaceChildren(h("h1", "Pipelines"), place, card("Progress", listed), card("Tables", tables));
  every(TABLES_EVERY_MS, signal, async () => tables.replaceChildren(await listTables(signal))).catch(() => {});
  /** @type {import("../lib/dom.js").Column<any>} */
  const actions = ["", (one) => buttons(one, run)];
  await every(EVERY_MS, signal, async () => {
    const { pipelines: reports } = await get("/v1/pipelines", signal);
    const empty = ["None has reported since this server started. Start one with ", h("code", "headwater pipeline run"), ", or all of them with ", h("code", "headwater up"), "."];
    listed.replaceChildren(table("Pipelines", [...COLUMNS, actions], reports, empty), errorsOf(reports));
  });
}

/** @param {any} one @param {(action: () => unknown) => Promise<void>} run */
function buttons(one, run) {
  if (one.kind === "process" || one.kind === "snapshot" || one.state === "ended") return null;
  const tell = async (/** @type {object} */ order) => {
    // It is a stream like any other: there from the first order on.
    await send("PUT", streamUrl(CONTROL), { headers: { "Content-Type": "application/json" } });
    await post(streamUrl(CONTROL), { pipeline: one.name, ...order });
  };
  const steer = one.state === "paused" ? ["Resume", "resume"] : ["Pause", "pause"];
  return h(
    "span.row.close",
    button(steer[0] ?? "", () => run(() => tell({ do: steer[1] })), { title: "It does so within a few seconds" }),
    button("Reset", () => run(async () => {
      const places = select({ name: "to", "aria-label": "Read on from" }, [["earliest", "the first message there is"], ["latest", "the next message"]]);
      const fields = [h("label", "Read on from", places), h("p.dim", "No table takes in a message twice, whatever is read again.")];
      const answer = await ask(`Reset ${one.name}`, fields, "Reset it", { danger: true });
      if (answer) await tell({ do: "reset", to: answer.to });
    }), { kind: "danger" }),
  );
}

/** @param {AbortSignal} signal */
async function listTables(signal) {
  try {
    const found = await get("/v1/tables", signal);
    return table("Tables", TABLES, found.tables, "There are none yet.");
  } catch (error) {
    if (error instanceof ApiError && error.status) return h("p.dim", error.message);
    throw error;
  }
}
