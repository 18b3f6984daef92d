// The groups of all streams, and those of one.

import { get, sendJson, streamUrl } from "../lib/api.js";
import { ask, button, card, h, input, runner, select, table } from "../lib/dom.js";
import { duration, number } from "../lib/format.js";
import { groupLink, linkTo } from "../lib/routes.js";
import { every } from "../lib/waiting.js";

const EVERY_MS = 3_000;
const PAGES_MAX = 10;

/** @typedef {{stream: string, name: string, lag: number, in_flight: number, paused: boolean, config: any, members: Record<string, number>, oldest_unacked_age_ms: number}} Listed */

/** @type {import("../lib/dom.js").Column<Listed>[]} */
const COLUMNS = [
  ["Group", (one) => [h("a", { href: groupLink(one.stream, one.name) }, one.name), one.paused && [" ", h("span.tag", "paused")]], "name"],
  ["Lag", (one) => number(one.lag), "number"],
  ["With members", (one) => number(one.in_flight), "number"],
  ["Oldest", (one) => (one.lag ? duration(one.oldest_unacked_age_ms) : "–"), "number"],
  ["Members", (one) => number(Object.keys(one.members).length), "number"],
  ["Dead letters", (one) => (one.config.dead_letter ? h("a", { href: linkTo(one.config.dead_letter) }, one.config.dead_letter) : h("span.dim", "none"))],
];
/** @type {import("../lib/dom.js").Column<Listed>} */
const STREAM = ["Stream", (one) => h("a", { href: linkTo(one.stream) }, one.stream), "name"];

/** @type {import("../main.js").Page} */
export async function groups(root, signal) {
  const listed = h("div");
  const search = input({ type: "search", placeholder: "Name contains …", "aria-label": "Group or stream contains", oninput: () => draw() });
  /** @type {Listed[]} */
  let found = [];
  let more = false;
  const draw = () => {
    const rows = found.filter((one) => one.name.includes(search.value) || one.stream.includes(search.value));
    const sorted = rows.sort((one, other) => other.lag - one.lag || (one.stream < other.stream ? -1 : 1));
    const empty = search.value ? "No group matches." : ["There are none. Make one on the page of a stream, or with ", h("code", "headwater group create"), "."];
    listed.replaceChildren(table("Groups", [STREAM, ...COLUMNS], sorted, empty), more ? h("p.dim", "There are more; these are those of the first 1,000 streams.") : "");
  };
  root.replaceChildren(h("div.row", h("h1", "Groups"), search), h("div.card", listed));
  await every(EVERY_MS, signal, async () => {
    [found, more] = await allGroups(signal);
    draw();
  });
}

/**
 * @param {AbortSignal} signal
 * @returns {Promise<[Listed[], boolean]>} groups, and whether there are more
 */
async function allGroups(signal) {
  /** @type {Listed[]} */
  const found = [];
  let after = 0;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const { streams, next } = await get(`/v1/groups?after=${after}`, signal);
    for (const { stream, groups: of } of streams) found.push(...of.map((/** @type {any} */ one) => ({ stream, ...one })));
    if (next === null) return [found, false];
    after = next;
  }
  return [found, true];
}

/**
 * @param {string} path
 * @param {import("../lib/session.js").Rights} rights
 * @param {AbortSignal} signal
 */
export function groupsOfStream(path, rights, signal) {
  const listed = h("div");
  const { place, run } = runner();
  const url = `${streamUrl(path)}/_groups`;
  const look = async () => {
    const { groups: found } = await get(url, signal);
    const rows = found.map((/** @type {any} */ one) => ({ stream: path, ...one }));
    listed.replaceChildren(table("Groups", COLUMNS, rows, "No groups read from this stream."));
  };
  run(() => every(EVERY_MS, signal, look));
  const create = rights.write ? button("New group", () => run(() => createGroup(path, look))) : null;
  return [place, card("Groups", listed, create)];
}

/** @param {string} path @param {() => Promise<void>} look */
async function createGroup(path, look) {
  const fields = [
    h("label", "Name", input({ name: "name", required: true, autofocus: true })),
    h("label", "Begin with", select({ name: "start" }, [["first", "the first message"], ["latest", "the next message"]])),
    h("label", "Give up after so many deliveries (0 for never)", input({ name: "deliveries", value: "0", inputmode: "numeric", pattern: "[0-9]+", required: true })),
    h("label", "Stream for what is given up (empty to drop it)", input({ name: "dead", placeholder: `${path}/failed` })),
  ];
  const answer = await ask("New group", fields, "Create");
  if (!answer) return;
  const settings = { start: answer.start, max_deliveries: Number(answer.deliveries), dead_letter: answer.dead || null };
  await sendJson("PUT", `${streamUrl(path)}/_groups/${encodeURIComponent(answer.name ?? "")}`, settings);
  await look();
}
