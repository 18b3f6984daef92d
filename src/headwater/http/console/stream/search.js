// Searching a stream, in steps: what is found appears at once, and somebody can stop it.

import { position } from "../lib/api.js";
import { announce, button, h } from "../lib/dom.js";
import { number, size } from "../lib/format.js";
import { matcher } from "./filter.js";
import { contentOf } from "./row.js";
import { between, SCANNED_BYTES_MAX, SCANNED_MAX, STEP_MESSAGES, stepBack } from "./scan.js";

/**
 * @typedef {import("../lib/api.js").Message} Message
 * @typedef {import("../lib/api.js").Test} Test
 * @typedef {{text: string, condition: string, backwards: boolean, total: number, producers: boolean}} Wanted
 * @typedef {{found: (row: Message) => void, progress: HTMLElement, stop: () => void}} Page
 */

const FOUND_MAX = 500;

/** How far a search is, and when it should ask whether to go on. */
class Progress {
  scanned = 0;
  bytes = 0;
  found = 0;
  #bar = /** @type {HTMLProgressElement} */ (h("progress", { "aria-label": "Searched" }));
  #text = h("span.dim", { role: "status" });
  #most = SCANNED_MAX;
  #mostBytes = SCANNED_BYTES_MAX;
  #mostFound = FOUND_MAX;

  /** @param {HTMLElement} place @param {number} total @param {() => void} stop */
  constructor(place, total, stop) {
    this.place = place;
    this.total = total;
    this.stop = button("Stop", stop);
    place.replaceChildren(this.#bar, this.#text, this.stop);
    this.show();
  }

  show() {
    this.#bar.max = Math.max(1, this.total);
    this.#bar.value = this.scanned;
    this.#text.textContent = `${number(this.scanned)} of ${number(this.total)} searched (${size(this.bytes)}), ${number(this.found)} found`;
  }

  get isEnough() {
    return this.scanned >= this.#most || this.bytes >= this.#mostBytes || this.found >= this.#mostFound;
  }

  /** @param {string} why @param {(() => void) | null} goOn */
  end(why, goOn) {
    this.#bar.remove();
    this.#text.textContent = `${this.#text.textContent}${why}`;
    this.stop.remove();
    announce(this.#text.textContent ?? "");
    if (goOn) this.place.append(button("Search on", goOn));
  }

  /** Room for as much again. */
  extend() {
    this.#most += SCANNED_MAX;
    this.#mostBytes += SCANNED_BYTES_MAX;
    this.#mostFound += FOUND_MAX;
    this.place.replaceChildren(this.#bar, this.#text, this.stop);
  }
}

/**
 * @param {string} path
 * @param {Wanted} wanted
 * @param {Page} page
 * @param {AbortSignal} signal
 */
export async function search(path, wanted, page, signal) {
  const matches = matcher(wanted.text, wanted.condition);
  const progress = new Progress(page.progress, wanted.total, page.stop);
  /** @type {Test} */
  const test = (row) => matches(contentOf(row));
  const steps = wanted.backwards ? backwards(path, wanted, test, signal) : onwards(path, wanted, test, signal);
  for (;;) {
    const over = await proceed(steps, progress, page, signal);
    if (signal.aborted) return progress.end("; stopped", null);
    if (over) return progress.end("", null);
    const goOn = await new Promise((resolve) => {
      signal.addEventListener("abort", () => resolve(false), { once: true });
      progress.end("; that is enough for once", () => resolve(true));
    });
    if (!goOn) return;
    progress.extend();
  }
}

/** @typedef {{rows: Message[], scanned: number, bytes: number}} Step */

/**
 * @param {AsyncGenerator<Step>} steps
 * @param {Progress} progress
 * @param {Page} page
 * @param {AbortSignal} signal
 * @returns {Promise<boolean>} whether everything was searched
 */
async function proceed(steps, progress, page, signal) {
  while (!progress.isEnough) {
    const { done, value } = await steps.next().catch((error) => {
      if (signal.aborted) return { done: true, value: undefined };
      throw error;
    });
    if (done || !value) return true;
    progress.scanned += value.scanned;
    progress.bytes += value.bytes;
    progress.found += value.rows.length;
    value.rows.forEach(page.found);
    progress.show();
  }
  return false;
}

/**
 * @param {string} path
 * @param {Wanted} wanted
 * @param {Test} test
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<Step>}
 */
async function* backwards(path, { producers }, test, signal) {
  const { tail } = await position(path, { offset: "now" }, signal);
  let place = { offset: tail, skip: 0 };
  for (;;) {
    const step = await stepBack(path, place, STEP_MESSAGES, signal, { producers, test });
    if (!step.scanned) return;
    yield step;
    place = step.place;
  }
}

/**
 * @param {string} path
 * @param {Wanted} wanted
 * @param {Test} test
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<Step>}
 */
async function* onwards(path, { producers }, test, signal) {
  const { tail } = await position(path, { offset: "now" }, signal);
  for await (const { rows, bytes } of between(path, { offset: "-1", skip: 0, until: tail, producers, test }, signal)) {
    yield { rows: rows.filter((row) => row.matches), scanned: rows.length, bytes };
  }
}
