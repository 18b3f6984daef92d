// One stream: its messages, its state, its groups, and what is known about it.

import { get, send, streamUrl } from "../lib/api.js";
import { ask, button, h, input, runner } from "../lib/dom.js";
import { linkTo } from "../lib/routes.js";
import { rightsOver } from "../lib/session.js";
import { aboutTab, snapshotsTab, storageTab } from "../stream/about.js";
import { liveTab } from "../stream/live.js";
import { MessagesView } from "../stream/messages.js";
import { stateTab } from "../stream/state.js";
import { groupsOfStream } from "./groups.js";

/** @type {import("../main.js").Page} */
export async function stream(root, signal, [path = "", tab = "messages"]) {
  const [details, rights] = await Promise.all([get(`${streamUrl(path)}/_details`, signal), rightsOver(path, signal)]);
  const { place, run } = runner();
  const isJson = isJsonType(details.content_type);
  /** @type {[string, string, boolean][]} */
  const tabs = [
    ["messages", "Messages", true],
    ["state", "State", isJson],
    ["groups", "Groups", true],
    ["live", "Live queries", isJson],
    ["snapshots", "Snapshots", true],
    ["storage", "Storage", true],
    ["about", "About", true],
  ];
  const links = tabs.filter(([, , shown]) => shown).map(([name, title]) => h("a", { href: linkTo(path, name), "aria-current": name === tab ? "page" : null }, title));
  root.replaceChildren(
    h("div.row", h("h1", path), details.closed && h("span.tag", "closed"), h("span.tag", details.content_type), details.profile === "state-protocol" && h("span.tag", "state-protocol"), actions(path, details, rights, run)),
    details.description ? h("p.dim", details.description) : "",
    h("nav.tabs", { "aria-label": "Views of this stream" }, links),
    place,
  );
  const messages = new MessagesView(path, details, signal);
  const contents = {
    messages: () => [appendCard(path, details, rights, run), messages.element],
    state: () => stateTab(path, details, signal),
    groups: () => groupsOfStream(path, rights, signal),
    live: () => liveTab(path, details, rights, signal),
    snapshots: () => snapshotsTab(path, rights, signal),
    storage: () => storageTab(path, signal),
    about: () => aboutTab(path, signal),
  };
  const content = Object.hasOwn(contents, tab) ? contents[/** @type {keyof typeof contents} */ (tab)] : null;
  if (!content) return root.append(h("div.empty", "A stream has no such view."));
  root.append(...content().filter((one) => one !== null));
  if (tab === "messages") messages.tail();
}

/** @param {string} type */
export const isJsonType = (type) => type.split(";")[0]?.trim().toLowerCase() === "application/json";
/** @param {string} type */
const isText = (type) => type.startsWith("text/") || isJsonType(type);

/**
 * @param {string} path
 * @param {any} details
 * @param {import("../lib/session.js").Rights} rights
 * @param {(action: () => unknown) => Promise<void>} run
 */
function actions(path, details, rights, run) {
  return h(
    "span.push.row",
    rights.write && !details.closed && button("Close", () => run(() => close(path)), { title: "Nothing more can be appended" }),
    rights.delete && button("Clear", () => run(() => clear(path)), { kind: "danger", title: "Drop all messages, keep the stream" }),
    rights.delete && button("Delete", () => run(() => remove(path)), { kind: "danger" }),
  );
}

/**
 * @param {string} path
 * @param {any} details
 * @param {import("../lib/session.js").Rights} rights
 * @param {(action: () => unknown) => Promise<void>} run
 */
function appendCard(path, details, rights, run) {
  if (details.closed || !isText(details.content_type)) return null;
  if (!rights.write) return h("p.dim", "Your key may read this stream and not append to it.");
  const example = isJsonType(details.content_type) ? '{"id": 1}, or [ … ] for several messages' : "text";
  const body = /** @type {HTMLTextAreaElement} */ (h("textarea", { placeholder: example, "aria-label": "Message to append", spellcheck: "false" }));
  const append = async () => {
    await send("POST", streamUrl(path), { body: body.value, headers: { "Content-Type": details.content_type } });
    body.value = "";
  };
  body.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run(append);
  });
  return h("details.card.append", h("summary", "Append a message"), body, h("div.row.tools", button("Append", () => run(append), { kind: "first" }), h("span.dim", "Ctrl+Enter")));
}

/** @param {string} path */
async function close(path) {
  const warning = h("p", "Nothing can be appended to a closed stream, ever. Readers see that it ends.");
  if (!(await ask(`Close ${path}?`, warning, "Close it", { danger: true }))) return;
  await send("POST", streamUrl(path), { headers: { "Stream-Closed": "true" } });
  location.reload();
}

/** @param {string} path */
async function clear(path) {
  if (!(await confirmed(`Clear ${path}?`, "All its messages are dropped. Settings, groups and producers stay. This cannot be undone.", path, "Clear it"))) return;
  await send("POST", `${streamUrl(path)}/_clear`);
  location.reload();
}

/** @param {string} path */
async function remove(path) {
  if (!(await confirmed(`Delete ${path}?`, "All its messages and groups go with it. It can be brought back for a while: see History and storage.", path, "Delete it"))) return;
  await send("DELETE", streamUrl(path));
  location.hash = "#/streams";
}

/**
 * Ask for the path, so that nobody deletes the wrong thing.
 * @param {string} title
 * @param {string} warning
 * @param {string} path
 * @param {string} action
 */
async function confirmed(title, warning, path, action) {
  const field = input({ name: "path", required: true, autocomplete: "off" });
  field.addEventListener("input", () => field.setCustomValidity(field.value === path ? "" : "This is not its path."));
  const answer = await ask(title, [h("p", warning), h("label", "Type its path to go on", field)], action, { danger: true });
  return answer?.path === path;
}

