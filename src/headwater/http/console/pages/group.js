// One group: how far it is, who works, what was given up, and what can be done about it.

import { get, messages, position, post, send, streamUrl } from "../lib/api.js";
import { ask, button, card, facts, h, input, runner, table } from "../lib/dom.js";
import { duration, instant, number, size } from "../lib/format.js";
import { parse, preview } from "../lib/json.js";
import { linkTo } from "../lib/routes.js";
import { rightsOver } from "../lib/session.js";
import { bytesOf, textOf } from "../stream/bytes.js";
import { isJsonType } from "./stream.js";
import { every } from "../lib/waiting.js";

/** @typedef {import("../lib/api.js").Message} Message */

const EVERY_MS = 2_000;
const LETTERS_SHOWN = 100;
/** @type {import("../lib/dom.js").Column<[string, number]>[]} */
const MEMBERS = [
  ["Member", ([name]) => name],
  ["Messages it has", ([, many]) => number(many), "number"],
];

/** @param {number} count */
const deliveries = (count) => `${number(count)} ${count === 1 ? "delivery" : "deliveries"}`;

/** @type {import("../main.js").Page} */
export async function group(root, signal, [path = "", name = ""]) {
  const url = `${streamUrl(path)}/_groups/${encodeURIComponent(name)}`;
  const [first, rights] = await Promise.all([get(url, signal), rightsOver(path, signal)]);
  const { place, run } = runner();
  const [state, members, buttons] = [h("div"), h("div"), h("span.push.row")];
  const look = async () => draw(await get(url, signal));
  const act = (/** @type {string} */ action, /** @type {unknown} */ body) =>
    run(async () => {
      await post(`${url}/${action}`, body);
      await look();
    });
  const draw = (/** @type {any} */ info) => {
    state.replaceChildren(describe(info));
    members.replaceChildren(table("Members", MEMBERS, Object.entries(info.members), "Nobody is connected or has messages."));
    if (!rights.write) return;
    buttons.replaceChildren(
      info.paused ? button("Resume", () => act("resume", {})) : button("Pause", () => act("pause", {})),
      button("Move", () => run(() => seek(name, act)), { kind: "danger", title: "Continue elsewhere in the stream" }),
      button("Delete", () => run(() => remove(url, name)), { kind: "danger" }),
    );
  };
  root.replaceChildren(
    h("div.row", h("h1", name), h("span.dim", "of ", h("a", { href: linkTo(path, "groups") }, path)), buttons),
    rights.write ? "" : h("p.dim", "Your key may look at this group and not use or change it."),
    place,
    h("div.columns", card("State", state), card("Members", members)),
  );
  if (first.config.dead_letter) root.append(deadLetters(path, name, first.config.dead_letter, rights, signal));
  draw(first);
  await every(EVERY_MS, signal, look);
}

/** @param {any} info */
function describe(info) {
  const { config } = info;
  return facts([
    ["Lag", `${number(info.lag)} messages, ${size(info.lag_bytes)}`],
    ["Oldest of them", info.lag ? duration(info.oldest_unacked_age_ms) : "–"],
    ["With members now", `${number(info.in_flight)} of at most ${number(config.max_in_flight)}`],
    ["Handed out or returned, not settled", number(info.outstanding)],
    ["Deliveries", info.paused ? h("span.warn", "paused") : "running"],
    ["Time to acknowledge", duration(config.ack_timeout_ms)],
    ["Gives up after", config.max_deliveries ? deliveries(config.max_deliveries) : "never"],
    ["Dead letters", config.dead_letter ? h("a", { href: linkTo(config.dead_letter) }, config.dead_letter) : "dropped"],
    ["In order by", config.order_by && h("code", config.order_by)],
    ["Kept across restarts", config.durable ? "yes" : "no"],
    ["Position", h("code", info.position)],
  ]);
}

/** @param {string} name @param {(action: string, body: unknown) => unknown} act */
async function seek(name, act) {
  const field = input({ name: "to", required: true, value: "first" });
  const fields = [h("label", "To “first”, “latest” or an offset", field), h("p.dim", "What members hold now is forgotten.")];
  const answer = await ask(`Move ${name}`, fields, "Move", { danger: true });
  if (answer) await act("seek", { to: answer.to });
}

/** @param {string} url @param {string} name */
async function remove(url, name) {
  if (!(await ask(`Delete group ${name}?`, h("p", "It forgets how far it was. The messages stay."), "Delete it", { danger: true }))) return;
  await send("DELETE", url);
  location.hash = "#/groups";
}

// ── Dead letters ─────────────────────────────────────────────────────────────────────────────

/** What was given up: JSON as its text, anything else as bytes. @typedef {{row: Message, origin: any, value: string | null, bytes: Uint8Array | null}} Letter */

/**
 * @param {string} path
 * @param {string} group
 * @param {string} target
 * @param {import("../lib/session.js").Rights} rights
 * @param {AbortSignal} signal
 */
function deadLetters(path, group, target, rights, signal) {
  const list = h("div");
  const { place, run } = runner();
  /** @type {Set<string>} what was replayed from here, by its place */
  const replayed = new Set();
  /** @type {Letter[]} */
  let letters = [];
  const again = async (/** @type {Letter[]} */ chosen) => {
    for (const letter of chosen) {
      await replay(path, target, letter);
      replayed.add(placeOf(letter.row));
    }
    draw();
  };
  const draw = () => list.replaceChildren(table("Dead letters", columns, letters, "Nothing was given up."));
  /** @type {import("../lib/dom.js").Column<Letter>[]} */
  const columns = [
    ["Given up", (one) => instant(one.row.timestamp), "when"],
    ["Reason", (one) => `${one.origin.reason}, ${deliveries(one.origin.deliveries)}`],
    ["Number", (one) => number(one.origin.number), "number"],
    ["Message", (one) => shown(one), "value"],
    [
      "",
      (one) => {
        if (replayed.has(placeOf(one.row))) return h("span.good", "replayed");
        return isWhole(one) && rights.write && button("Replay", () => run(() => again([one])), { title: `Append it to ${path} again` });
      },
    ],
  ];
  const all = button("Replay all", () => run(async () => {
    const waiting = letters.filter((one) => isWhole(one) && !replayed.has(placeOf(one.row)));
    const text = h("p", `${number(waiting.length)} messages are appended to ${path} again, oldest first. What was replayed in the last days is not appended twice.`);
    if (waiting.length && (await ask("Replay all?", text, "Replay them"))) await again(waiting.toReversed());
  }));
  run(() => every(EVERY_MS, signal, async () => {
    const found = await readLetters(path, group, target, signal);
    if (found.length === letters.length && placeOf(found[0]?.row) === placeOf(letters[0]?.row)) return;
    letters = found;
    draw();
  }));
  return card("Dead letters", [place, h("p.dim", "The last ", number(LETTERS_SHOWN), " of this group. All of them are in ", h("a", { href: linkTo(target) }, target), "."), list], rights.write && all);
}

/** @param {string | undefined} text a JSON string of base64 */
const dataOf = (text) => (text === undefined ? null : bytesOf(JSON.parse(text)));

/** Whether there is something to append again. @param {Letter} letter */
const isWhole = ({ value, bytes }) => value !== null || bytes !== null;

/** @param {Letter} letter */
function shown({ value, bytes }) {
  if (value !== null) return preview(value, 160);
  if (bytes === null) return h("span.dim", "too long to be kept");
  return h("code", textOf(bytes)?.slice(0, 160) ?? `${number(bytes.length)} bytes`);
}

/** @param {Message | undefined} row */
const placeOf = (row) => (row ? `${row.offset}/${row.index}` : "");

/**
 * @param {string} path
 * @param {string} group
 * @param {string} target
 * @param {AbortSignal} signal
 * @returns {Promise<Letter[]>} newest first
 */
async function readLetters(path, group, target, signal) {
  const { offset, skip } = await position(target, { last: LETTERS_SHOWN }, signal);
  const { rows } = await messages(target, { offset, bytes: 8 * 1024 * 1024 }, signal);
  /** @type {Letter[]} */
  const found = [];
  for (const row of rows.slice(skip)) {
    const members = parse(row.text ?? "")?.children ?? [];
    const member = (/** @type {string} */ name) => members.find((one) => one.name === `"${name}"`)?.node.text;
    const origin = JSON.parse(member("origin") ?? "{}");
    if (origin.stream === path && origin.group === group) found.push({ row, origin, value: member("value") ?? null, bytes: dataOf(member("data")) });
  }
  return found.reverse();
}

/**
 * Append a message to its stream again, once: the letter's place names a producer, and a producer's
 * first message is stored once, however often somebody presses the button.
 * @param {string} path
 * @param {string} target
 * @param {Letter} letter
 */
async function replay(path, target, { row, value, bytes }) {
  const producer = { id: encodeURIComponent(`replay ${target} ${placeOf(row)}`).slice(-256), epoch: 0, seq: 0 };
  if (bytes !== null) {
    const { content_type: type } = await get(`${streamUrl(path)}/_details`);
    const headers = { "Content-Type": type, "Producer-Id": producer.id, "Producer-Epoch": "0", "Producer-Seq": "0" };
    // An array alone would be as many messages as it has items.
    const body = isJsonType(type) ? `[${textOf(bytes)}]` : /** @type {BodyInit} */ (bytes);
    await send("POST", streamUrl(path), { body, headers });
    return;
  }
  const publish = `{"publish":[{"stream":${JSON.stringify(path)},"value":${value},"producer":${JSON.stringify(producer)}}]}`;
  await send("POST", "/v1/transaction", { body: publish, headers: { "Content-Type": "application/json" } });
}

