// The groups of a stream: how far they are, and what can be done about it.

import { get, post, send, streamUrl } from "./api.js";
import { ask, h, table } from "./dom.js";
import { duration, number } from "./format.js";
import { every } from "./waiting.js";

const EVERY_MS = 3_000;

export function groupsCard(path, signal, run) {
  const shown = h("div");
  const url = `${streamUrl(path)}/_groups`;
  const look = async () => {
    const { groups } = await get(url, signal);
    shown.replaceChildren(table(columns(url, run, look), groups, "No groups read from this stream."));
  };
  every(EVERY_MS, signal, look).catch(() => {});
  const create = h("button", { onclick: () => run(() => createGroup(url, look)) }, "New group");
  return h("div.card", h("div.row", h("h2", "Groups"), h("span.push", create)), shown);
}

function columns(url, run, look) {
  const act = (group, name, body) =>
    run(async () => {
      await post(`${url}/${encodeURIComponent(group.name)}/${name}`, body);
      await look();
    });
  const toggle = (group) => (group.paused ? ["Resume", "resume"] : ["Pause", "pause"]);
  return [
    ["Group", (one) => [one.name, one.paused && [" ", h("span.tag", "paused")]]],
    ["Waiting", (one) => number(one.lag), "number"],
    ["With members", (one) => number(one.in_flight), "number"],
    ["Oldest", (one) => (one.lag ? duration(one.oldest_unacked_age_ms) : "–"), "number"],
    ["Members", (one) => Object.keys(one.members).join(", ") || h("span.dim", "none")],
    ["Dead letters", (one) => one.config.dead_letter ?? h("span.dim", "none")],
    [
      "",
      (one) =>
        h(
          "div.row",
          h("button", { onclick: () => act(one, toggle(one)[1], {}) }, toggle(one)[0]),
          h("button", { onclick: () => run(() => seek(url, one, act)) }, "Move"),
          h("button.danger", { onclick: () => run(() => remove(url, one, look)) }, "Delete"),
        ),
    ],
  ];
}

async function createGroup(url, look) {
  const fields = [
    h("label", "Name", h("input", { name: "name", required: true, autofocus: true })),
    h("label", "Begin with", h("select", { name: "start" }, h("option", { value: "first" }, "the first message"), h("option", { value: "latest" }, "the next message"))),
  ];
  const answer = await ask("New group", fields, "Create");
  if (!answer) return;
  await send("PUT", `${url}/${encodeURIComponent(answer.name)}`, { body: JSON.stringify({ start: answer.start }) });
  await look();
}

async function seek(url, group, act) {
  const field = h("input", { name: "to", required: true, value: "first" });
  const fields = [h("label", "To “first”, “latest” or an offset", field), h("p.dim", "What members hold now is forgotten.")];
  const answer = await ask(`Move ${group.name}`, fields, "Move", { danger: true });
  if (answer) await act(group, "seek", { to: answer.to });
}

async function remove(url, group, look) {
  const warning = h("p", "It forgets how far it was. The messages stay.");
  if (!(await ask(`Delete group ${group.name}?`, [warning], "Delete it", { danger: true }))) return;
  await send("DELETE", `${url}/${encodeURIComponent(group.name)}`);
  await look();
}
