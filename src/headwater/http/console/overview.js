// How the server is doing: figures now and over the last minutes.

import { ApiError, figures, get } from "./api.js";
import { Figure } from "./chart.js";
import { facts, h, table } from "./dom.js";
import { duration, number, rate, size } from "./format.js";
import { streamColumns } from "./streams.js";
import { every } from "./waiting.js";

const EVERY_MS = 2_000;

// Title, how to show it, and what to make of this look and the one before.
const FIGURES = [
  ["Messages", rate, (now, before, s) => growth("headwater_appended_messages_total", now, before, s)],
  ["Data", (value) => `${size(value)}/s`, (now, before, s) => growth("headwater_appended_bytes_total", now, before, s)],
  ["Requests", rate, (now, before, s) => growth("headwater_requests_total", now, before, s)],
  ["Time of a commit", duration, (now, before) => mean("headwater_commit_seconds", now, before)],
  ["Live readers", number, (now) => now.get("headwater_live_reads") ?? 0],
  ["Events sent", rate, (now, before, s) => growth("headwater_events_total", now, before, s)],
  ["Largest lag of a group", number, (now) => now.get("headwater_group_lag_messages") ?? 0],
  ["Memory", size, (now) => now.get("process_resident_memory_bytes") ?? 0],
];

const growth = (name, now, before, seconds) =>
  Math.max(0, (now.get(name) ?? 0) - (before.get(name) ?? 0)) / seconds;

function mean(name, now, before) {
  const many = (now.get(`${name}_count`) ?? 0) - (before.get(`${name}_count`) ?? 0);
  const seconds = (now.get(`${name}_sum`) ?? 0) - (before.get(`${name}_sum`) ?? 0);
  return many > 0 ? (seconds / many) * 1000 : 0;
}

export async function overview(root, signal) {
  const page = await get("/v1/streams?limit=10", signal);
  const charts = FIGURES.map(([title, format]) => new Figure(title, format));
  const details = h("div");
  const cards = h("div.cards", charts.map((chart) => chart.element));
  const some = table(streamColumns, page.streams, "There are no streams yet. Make one under Streams.");
  const all = h("div.row", h("h2", "Streams"), h("a.push", { href: "#/streams" }, "All streams"));
  root.replaceChildren(cards, h("div.card", h("h2", "Server"), details), h("div.card", all, some));
  try {
    await watch(charts, details, signal);
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 403)) throw error;
    cards.replaceChildren();
    details.replaceChildren("Figures of the whole server are for its administrators.");
  }
}

async function watch(charts, details, signal) {
  let before = await figures(signal);
  let at = performance.now();
  details.replaceChildren(describe(before));
  await every(EVERY_MS, signal, async () => {
    const [now, moment] = [await figures(signal), performance.now()];
    const seconds = Math.max(0.001, (moment - at) / 1000);
    charts.forEach((chart, index) => chart.add(FIGURES[index][2](now, before, seconds)));
    details.replaceChildren(describe(now));
    [before, at] = [now, moment];
  });
}

function describe(now) {
  const build = [...now.keys()].find((name) => name.startsWith("headwater_build_info{")) ?? "";
  const started = now.get("process_start_time_seconds");
  const files = (place) => now.get(`headwater_history_bytes{place="${place}"}`);
  const down = now.get("headwater_history_store_down");
  return facts([
    ["Engine", build.match(/engine="([^"]*)"/)?.[1]],
    ["Up for", started && duration(Date.now() - started * 1000)],
    ["Connections", number(now.get("headwater_connections"))],
    ["Streams in memory", number(now.get("headwater_streams_in_memory"))],
    ["On disk", now.has("headwater_disk_bytes") && size(now.get("headwater_disk_bytes"))],
    ["History here", files("local") != null && size(files("local"))],
    ["History in object storage", files("remote") != null && size(files("remote"))],
    ["Object storage", down && h("span.bad", "does not answer")],
    ["Failed commits", now.get("headwater_commit_failures_total") && h("span.bad", number(now.get("headwater_commit_failures_total")))],
  ].map(([name, value]) => [name, value || null]));
}
