// The keyboard: "/" searches, "g" and a letter goes somewhere, "?" says what there is.

import { h, tell } from "./dom.js";

const TOGETHER_MS = 1_500;
const PATIENCE_MS = 20_000;

/** @type {[key: string, place: string, name: string][]} */
export const PLACES = [
  ["o", "#/", "Overview"],
  ["s", "#/streams", "Streams"],
  ["g", "#/groups", "Groups"],
  ["u", "#/subscriptions", "Subscriptions"],
  ["l", "#/live", "Live queries"],
  ["h", "#/storage", "History and storage"],
  ["p", "#/pipelines", "Pipelines"],
  ["q", "#/sql", "SQL"],
  ["c", "#/cluster", "Cluster"],
];

let pressedG = 0;

/** @param {KeyboardEvent} event */
function press(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (target.matches("input, textarea, select")) {
    if (event.key === "Escape") target.blur();
    return;
  }
  const afterG = event.timeStamp - pressedG < TOGETHER_MS;
  pressedG = 0;
  const place = afterG && PLACES.find(([key]) => key === event.key)?.[1];
  if (place) location.hash = place;
  else if (event.key === "g") pressedG = event.timeStamp;
  else if (event.key === "/") search();
  else if (event.key === "?") help();
  else return;
  event.preventDefault();
}

function search() {
  if (focusSearch()) return;
  location.hash = "#/streams";
  // The page is not there yet.
  const waiting = new MutationObserver(() => focusSearch() && waiting.disconnect());
  waiting.observe(document.body, { childList: true, subtree: true });
  setTimeout(() => waiting.disconnect(), PATIENCE_MS);
}

function focusSearch() {
  const field = /** @type {HTMLInputElement | null} */ (document.querySelector("main input[type=search]"));
  field?.focus();
  return field !== null;
}

export function help() {
  const rows = [
    ["/", "Search on this page, or for a stream"],
    ...PLACES.map(([key, , name]) => [`g ${key}`, name]),
    ["Esc", "Leave a field"],
    ["← →", "On a chart: from point to point"],
    ["?", "This list"],
  ];
  tell("Keyboard", h("dl.keys", rows.map(([key, text]) => [h("dt", (key ?? "").split(" ").map((one) => h("kbd", one))), h("dd", text)])));
}

export const listenToKeys = () => addEventListener("keydown", press);
