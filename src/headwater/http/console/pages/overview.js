// How the server is doing: figures now and over the last hour.

import { get, metrics } from "../lib/api.js";
import { Chart } from "../lib/chart.js";
import { button, card, facts, h, table } from "../lib/dom.js";
import { duration, number, percent, rate, size, sizeRate } from "../lib/format.js";
import { administers } from "../lib/session.js";
import { every } from "../lib/waiting.js";
import { streamColumns } from "./streams.js";

const EVERY_MS = 5_000;
const HOUR_MS = 3_600_000;
/** @type {[string, number][]} */
const RANGES = [["5 min", 300_000], ["15 min", 900_000], ["1 h", HOUR_MS]];

/** @type {[figure: string, title: string, format: (value: number) => string][]} */
const FIGURES = [
  ["messages_per_s", "Messages", rate],
  ["appended_bytes_per_s", "Data", sizeRate],
  ["requests_per_s", "Requests", rate],
  ["errors_per_s", "Errors", rate],
  ["commit_ms", "Time of a commit", duration],
  ["events_per_s", "Events sent", rate],
  ["live_reads", "Live readers", number],
  ["group_lag_messages", "Largest lag of a group", number],
  ["connections", "Connections", number],
  ["queue_bytes", "Waiting for a commit", size],
  ["cpu_percent", "Processor", percent],
  ["memory_bytes", "Memory", size],
];

/** @type {import("../main.js").Page} */
export async function overview(root, signal) {
  const page = await get("/v1/streams?limit=10", signal);
  const all = h("a", { href: "#/streams" }, "All streams");
  const streams = card("Streams", table("Streams", streamColumns, page.streams, "There are no streams yet. Make one under Streams."), all);
  if (!administers()) {
    root.replaceChildren(h("h1", "Overview"), h("p.dim", "Figures of the whole server are for its administrators; your key may see these streams."), streams);
    return;
  }
  const charts = FIGURES.map(([, title, format]) => new Chart(title, format));
  const history = new History(charts);
  const server = h("div");
  root.replaceChildren(
    h("div.row", h("h1", "Overview"), h("span.push.choice", { role: "group", "aria-label": "How far back" }, history.choices)),
    h("div.cards", charts.map((chart) => chart.element)),
    card("Server", server),
    streams,
  );
  await every(EVERY_MS, signal, async () => {
    await history.look(signal);
    server.replaceChildren(describe(await metrics(signal)));
  });
}

/** What the server remembers, and the part of it that is shown. */
class History {
  /** @type {number[]} */
  #times = [];
  /** @type {Record<string, (number | null)[]>} */
  #figures = {};
  #range = HOUR_MS;

  /** @param {Chart[]} charts */
  constructor(charts) {
    this.charts = charts;
    this.choices = RANGES.map(([name, range]) => button(name, () => this.#choose(range)));
    this.#choose(RANGES[1]?.[1] ?? HOUR_MS);
  }

  /** @param {number} range */
  #choose(range) {
    this.#range = range;
    this.choices.forEach((one, at) => one.setAttribute("aria-pressed", String(RANGES[at]?.[1] === range)));
    this.#draw();
  }

  /** Ask for what is new. @param {AbortSignal} signal */
  async look(signal) {
    const since = this.#times.at(-1) ?? 0;
    const news = await get(`/v1/figures?since=${since}`, signal);
    const oldest = Date.now() - HOUR_MS;
    const drop = this.#times.findIndex((time) => time >= oldest);
    const from = drop < 0 ? this.#times.length : drop;
    this.#times = [...this.#times.slice(from), ...news.times];
    for (const [name, values] of Object.entries(news.figures)) {
      this.#figures[name] = [...(this.#figures[name] ?? []).slice(from), ...values];
    }
    this.#draw();
  }

  #draw() {
    const until = this.#times.at(-1) ?? Date.now();
    // A server that is younger than that fills the whole chart too.
    const from = Math.max(until - this.#range, this.#times[0] ?? 0);
    this.charts.forEach((chart, at) => {
      const values = this.#figures[FIGURES[at]?.[0] ?? ""] ?? [];
      chart.show({ times: this.#times, values }, from, until);
    });
  }
}

/** @param {Map<string, number>} now */
function describe(now) {
  const build = [...now.keys()].find((name) => name.startsWith("headwater_build_info{")) ?? "";
  const started = now.get("process_start_time_seconds");
  const failed = now.get("headwater_commit_failures_total");
  return facts([
    ["Engine", build.match(/engine="([^"]*)"/)?.[1]],
    ["Version", build.match(/version="([^"]*)"/)?.[1]],
    ["Up for", started && duration(Date.now() - started * 1000)],
    ["Connections", `${number(now.get("headwater_connections"))} of at most ${number(now.get("headwater_connections_max"))}`],
    ["Streams in memory", number(now.get("headwater_streams_in_memory"))],
    ["Groups in memory", number(now.get("headwater_groups_in_memory"))],
    ["On disk", now.has("headwater_disk_bytes") && size(now.get("headwater_disk_bytes"))],
    ["Failed commits", failed ? h("span.bad", number(failed)) : null],
  ]);
}
