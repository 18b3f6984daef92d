// Which view is shown, whether the server answers, and who is asking.

import { ApiError, send, setToken } from "./api.js";
import { ask, h, problem } from "./dom.js";
import { overview } from "./overview.js";
import { pipelines } from "./pipelines.js";
import { stream } from "./stream.js";
import { streams } from "./streams.js";
import { subscriptions } from "./subscriptions.js";

const HEALTH_EVERY_MS = 5_000;

const views = [
  [/^#\/streams$/, streams],
  [/^#\/stream\/(.+)$/, stream],
  [/^#\/subscriptions$/, subscriptions],
  [/^#\/pipelines$/, pipelines],
  [/^(#\/?)?$/, overview],
];

let leaving = new AbortController();

async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const root = document.getElementById("view");
  const hash = location.hash;
  for (const link of document.querySelectorAll("nav a")) {
    link.toggleAttribute("aria-current", isBelow(hash, link.getAttribute("href")));
  }
  const [pattern, view] = views.find(([one]) => one.test(hash)) ?? [null, nowhere];
  const parts = (pattern ? hash.match(pattern) : []).slice(1).map(decodeURIComponent);
  try {
    await view(root, signal, ...parts);
  } catch (error) {
    if (!signal.aborted) await explain(root, error);
  }
}

const isBelow = (hash, target) =>
  target === "#/" ? hash === "" || hash === "#/" : hash.startsWith(target.replace(/s$/, ""));

const nowhere = async (root) => root.replaceChildren(h("div.empty", "There is no such page."));

async function explain(root, error) {
  if (error instanceof ApiError && error.status === 401) {
    root.replaceChildren(h("div.empty", "This server wants to know who you are."));
    const field = h("input", { name: "token", type: "password", autocomplete: "off", required: true });
    const answer = await ask("Sign in", [h("label", "Key or token", field)], "Go on");
    if (answer) {
      setToken(answer.token);
      await show();
    }
    return;
  }
  root.replaceChildren(problem(error), h("div.row", h("button", { onclick: show }, "Try again")));
}

async function watchHealth() {
  const health = document.getElementById("health");
  const answered = await fetch("/readyz", { cache: "no-store" }).then((one) => one.ok, () => false);
  health.textContent = answered ? "ready" : "no answer";
  health.className = answered ? "good" : "bad";
  setTimeout(watchHealth, HEALTH_EVERY_MS);
}

async function nameVersion() {
  const { info } = await (await send("GET", "/openapi.json")).json();
  document.getElementById("version").textContent = info.version;
}

addEventListener("hashchange", show);
show();
watchHealth();
nameVersion().catch(() => {});
