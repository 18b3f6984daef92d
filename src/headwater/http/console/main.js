// Which page is shown, whether the server answers, and who is asking.

import { ApiError, get, hasToken, REFUSED, send } from "./lib/api.js";
import { button, h, problem } from "./lib/dom.js";
import { help, listenToKeys, PLACES } from "./lib/keys.js";
import { parseHash } from "./lib/routes.js";
import { administers, caller, identify, signOut } from "./lib/session.js";
import { pause } from "./lib/waiting.js";
import { account, signInPage } from "./pages/account.js";
import { cluster } from "./pages/cluster.js";
import { group } from "./pages/group.js";
import { groups } from "./pages/groups.js";
import { live } from "./pages/live.js";
import { overview } from "./pages/overview.js";
import { pipelines } from "./pages/pipelines.js";
import { sql } from "./pages/sql.js";
import { storage } from "./pages/storage.js";
import { stream } from "./pages/stream.js";
import { streams } from "./pages/streams.js";
import { subscription } from "./pages/subscription.js";
import { subscriptions } from "./pages/subscriptions.js";

const HEALTH_EVERY_MS = 5_000;
const AGAIN_MS = 2_000;

/**
 * A page fills its root and lives until the signal; it is told the parts of its address.
 * @typedef {(root: HTMLElement, signal: AbortSignal, parts: string[], query: URLSearchParams) => Promise<void>} Page
 */

/** @type {Record<string, {title: string, page: Page, above?: string, forAdministrators?: boolean}>} */
const PAGES = {
  "": { title: "Overview", page: overview },
  streams: { title: "Streams", page: streams },
  stream: { title: "Stream", page: stream, above: "#/streams" },
  groups: { title: "Groups", page: groups },
  group: { title: "Group", page: group, above: "#/groups" },
  subscriptions: { title: "Subscriptions", page: subscriptions, forAdministrators: true },
  subscription: { title: "Subscription", page: subscription, above: "#/subscriptions", forAdministrators: true },
  live: { title: "Live queries", page: live },
  storage: { title: "History and storage", page: storage, forAdministrators: true },
  pipelines: { title: "Pipelines", page: pipelines, forAdministrators: true },
  sql: { title: "SQL", page: sql, forAdministrators: true },
  cluster: { title: "Cluster", page: cluster, forAdministrators: true },
  account: { title: "You", page: account },
};

let leaving = new AbortController();
let hasCluster = false;
let looked = false;
let shownPlace = "";

/** @param {string} id */
const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const root = byId("view");
  const { parts, query } = parseHash(location.hash);
  const [name = "", ...rest] = parts;
  const found = Object.hasOwn(PAGES, name) ? PAGES[name] : undefined;
  document.title = `${[...rest.slice(0, 2).reverse(), found?.title ?? "Not found"].join(" · ")} · Headwater`;
  try {
    if (!caller()) await identify();
    shownPlace = found?.above ?? `#/${name}`;
    drawNavigation(shownPlace);
    lookForCluster();
    if (!found) root.replaceChildren(h("h1", "Not found"), h("div.empty", "There is no such page."));
    else if (found.forAdministrators && !administers()) root.replaceChildren(h("h1", found.title), refusal());
    else await found.page(root, signal, rest, query);
  } catch (error) {
    if (!signal.aborted) explain(root, error, signal);
  }
}

const refusal = () =>
  h("div.card", "This page is about the whole server. It needs a key or token that may administer everything (", h("code", "admin"), " over ", h("code", "**"), "), and yours may not.");

/** @param {string} current */
function drawNavigation(current) {
  const places = PLACES.filter(([, place]) => {
    const page = PAGES[place.slice(2)];
    if (place === "#/cluster" && !hasCluster) return false;
    return !page?.forAdministrators || administers();
  });
  const links = places.map(([key, place, name]) =>
    h("a", { href: place, title: `g ${key}`, "aria-current": place === current ? "page" : null }, name),
  );
  byId("nav").replaceChildren(...links);
  const you = caller();
  byId("account").replaceChildren(
    ...(you?.access ? [h("a", { href: "#/account" }, you.name ?? "you"), " ", button("Sign out", leave, { kind: "quiet" })] : []),
  );
}

function leave() {
  signOut();
  byId("account").replaceChildren();
  byId("nav").replaceChildren();
  show();
}

/** @param {HTMLElement} root @param {unknown} error @param {AbortSignal} signal */
async function explain(root, error, signal) {
  if (error instanceof ApiError && error.status === 401) return askWho("");
  root.replaceChildren(problem(error), h("div.row", button("Try again", show)));
  const isAway = error instanceof ApiError && error.status === 0;
  if (isAway && (await pause(AGAIN_MS, signal))) show();
}

/** @param {string} why what to say to somebody who was in already */
function askWho(why) {
  leaving.abort();
  signOut();
  byId("account").replaceChildren();
  byId("nav").replaceChildren();
  /** @type {HTMLDialogElement} */ (byId("dialog")).close();
  document.title = "Sign in · Headwater";
  signInPage(byId("view"), show, why);
}

async function watchHealth() {
  const health = byId("health");
  const status = await fetch("/readyz", { cache: "no-store" }).then((one) => one.json(), () => ({ status: "no answer" }));
  const text = status.status ?? status.error?.code ?? "no answer";
  if (health.textContent !== text) health.textContent = text;
  health.className = text === "ready" ? "good" : text === "degraded" ? "warn" : "bad";
  health.title = Object.entries(status.problems ?? {}).map(([name, why]) => `${name}: ${why}`).join("\n");
  setTimeout(watchHealth, HEALTH_EVERY_MS);
}

async function nameVersion() {
  const { info } = await (await send("GET", "/openapi.json")).json();
  byId("version").textContent = info.version;
}

/** Most servers are alone; the page of the nodes is offered where there are some. */
async function lookForCluster() {
  if (looked || !administers()) return;
  looked = true;
  hasCluster = await get("/v1/cluster").then(() => true, () => false);
  if (hasCluster) drawNavigation(shownPlace);
}

addEventListener("hashchange", () => {
  show();
  byId("view").focus({ preventScroll: true });
  scrollTo(0, 0);
});
byId("help").addEventListener("click", help);
document.querySelector(".skip")?.addEventListener("click", (event) => {
  event.preventDefault();
  byId("view").focus();
});
// A key expires or is revoked while somebody looks at a page, or the server asks for one from now on.
addEventListener(REFUSED, () => {
  if (caller()) askWho(hasToken() ? "Your key or token is no longer accepted: it has expired or was revoked." : "");
});
listenToKeys();
show();
watchHealth();
nameVersion().catch(() => {});
