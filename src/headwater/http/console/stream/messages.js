// The messages of a stream: following its tail, going through its past, and searching.

import { get, messages, position, streamUrl } from "../lib/api.js";
import { announce, button, h, input, runner, select } from "../lib/dom.js";
import { download } from "../lib/files.js";
import { number } from "../lib/format.js";
import { bytesOf } from "./bytes.js";
import { contentOf, messageRow, wholeOf } from "./row.js";
import { stepBack } from "./scan.js";
import { search } from "./search.js";
import { follow, KEPT } from "./tail.js";

/**
 * @typedef {import("../lib/api.js").Message} Message
 * @typedef {import("../lib/api.js").Place} Place
 */

const PAGE = 100;

/** What is on the screen, newest first, and how to get to what is not. */
export class MessagesView {
  /** @type {Message[]} */
  #rows = [];
  /** @type {Place | null} where what is shown begins and ends, while it is a page */
  #start = null;
  /** @type {Place | null} */
  #end = null;
  #work = new AbortController();
  #list = h("div.messages");
  #status = h("span.dim", { role: "status" });
  #progress = h("div.row");
  #runner = runner();
  #producers = input({ type: "checkbox", onchange: () => this.#again() });
  #offsets = input({ type: "checkbox", onchange: () => this.#list.classList.toggle("with-offsets", this.#offsets.checked) });
  #live = button("Pause", () => this.#toggle());
  #mode = "tail";
  #tailOffset = "now";

  /**
   * @param {string} path
   * @param {any} details
   * @param {AbortSignal} signal
   */
  constructor(path, details, signal) {
    this.path = path;
    this.details = details;
    this.signal = signal;
    signal.addEventListener("abort", () => this.#work.abort());
    this.element = h("section.card", { "aria-label": "Messages" }, this.#ways(), this.#searching(), this.#runner.place, this.#progress, h("div.row.tools", this.#status), this.#list);
  }

  // ── What can be done ───────────────────────────────────────────────────────────────────────

  #ways() {
    const kinds = select({ "aria-label": "Go to" }, [["number", "Message number"], ["offset", "Offset"], ["time", "Time"]]);
    const where = input({ "aria-label": "Where to go", required: true, inputmode: "numeric", placeholder: "0", class: "where" });
    kinds.addEventListener("change", () => {
      where.type = kinds.value === "time" ? "datetime-local" : "text";
      where.step = "1";
      where.placeholder = kinds.value === "number" ? "0" : "0000000000000001_0000000000000042";
    });
    const go = (/** @type {Event} */ event) => {
      event.preventDefault();
      this.#run(() => this.#jump(kinds.value, where.value));
    };
    return h(
      "div.row.tools",
      this.#live,
      h(
        "span.choice",
        { role: "group", "aria-label": "Pages" },
        button("Oldest", () => this.#run(() => this.#showFrom({ offset: "-1", skip: 0 }))),
        button("Older", () => this.#run(() => this.#older())),
        button("Newer", () => this.#run(() => this.#newer())),
        button("Newest", () => this.tail()),
      ),
      h("form.inline", { onsubmit: go }, kinds, where, h("button", "Go")),
      h("label.check", this.#offsets, "Offsets"),
      h("label.check", this.#producers, "Producers"),
      button("Download", () => this.#run(() => this.#save()), { title: "Save the messages that are shown, one a line" }),
    );
  }

  #searching() {
    const text = input({ type: "search", placeholder: "Contains …", "aria-label": "Text to search for" });
    const condition = input({ placeholder: "total > 20, items[0].name = tea", "aria-label": "Condition on a value in JSON", class: "condition", spellcheck: "false" });
    const order = select({ "aria-label": "Order" }, [["back", "newest first"], ["on", "oldest first"]]);
    const begin = (/** @type {Event} */ event) => {
      event.preventDefault();
      this.#run(() => this.#search(text.value, condition.value, order.value === "back"));
    };
    return h("form.inline.tools", { role: "search", onsubmit: begin }, text, condition, order, h("button.first", "Search"));
  }

  /** @param {() => unknown} action */
  #run(action) {
    return this.#runner.run(action);
  }

  /** A new thing begins, and what went on before ends. @returns {AbortSignal} */
  #begin() {
    this.#work.abort();
    this.#work = new AbortController();
    if (this.signal.aborted) this.#work.abort();
    this.#progress.replaceChildren();
    return this.#work.signal;
  }

  // ── The tail ───────────────────────────────────────────────────────────────────────────────

  /** Follow what comes, from the last messages on. */
  tail() {
    this.#rows = [];
    this.#tailOffset = "";
    this.#list.replaceChildren();
    return this.#run(() => this.#follow());
  }

  async #follow() {
    const signal = this.#begin();
    this.#setMode("tail");
    let total = 0;
    const add = (/** @type {Message[]} */ rows, /** @type {number} */ many, /** @type {boolean} */ fresh) => {
      total += fresh ? many : 0;
      this.#rows = [...rows.toReversed(), ...this.#rows].slice(0, KEPT);
      this.#list.prepend(...rows.slice(-KEPT).toReversed().map((row) => messageRow(this.path, row, { fresh })));
      while (this.#list.childElementCount > KEPT) this.#list.lastElementChild?.remove();
      this.#say(this.#rows.length ? `the last ${number(this.#rows.length)}, newest first${total ? `; ${number(total)} came since` : ""}` : "");
      if (rows.length) this.#list.querySelector(".empty")?.remove();
    };
    this.#say("");
    if (!this.#rows.length) this.#list.replaceChildren(h("div.empty", this.details.closed ? "It ended without a message." : "Nothing yet. New messages appear by themselves."));
    await follow(this.path, this.#tailOffset, { closed: this.details.closed, producers: () => this.#producers.checked, moved: (offset) => (this.#tailOffset = offset), add }, signal);
    if (!signal.aborted) this.#setMode("ended");
  }

  #toggle() {
    if (this.#mode === "tail") {
      this.#begin();
      this.#setMode("paused");
    } else if (this.#mode === "paused") this.#run(() => this.#follow());
    else this.tail();
  }

  /** @param {"tail" | "paused" | "page" | "search" | "ended"} mode */
  #setMode(mode) {
    this.#mode = mode;
    const words = { tail: "Pause", paused: "Go on", page: "Follow live", search: "Follow live", ended: "Ended" };
    this.#live.textContent = words[mode];
    this.#live.disabled = mode === "ended";
    this.#live.className = mode === "tail" ? "live" : "";
    if (mode === "paused") announce("paused");
  }

  // ── Pages ──────────────────────────────────────────────────────────────────────────────────

  /** Show again what is shown, with or without producers. */
  #again() {
    this.#list.classList.toggle("with-producers", this.#producers.checked);
    const start = this.#start;
    if (this.#mode === "page" && start) return this.#run(() => this.#showFrom(start));
    return this.#mode === "search" ? undefined : this.tail();
  }

  /** @param {Place} place */
  async #showFrom(place) {
    const signal = this.#begin();
    const { rows, end } = await this.#read(place, signal);
    const first = rows[0];
    this.#start = first ? { offset: first.offset, skip: first.index } : place;
    this.#end = end;
    await this.#showPage(rows.toReversed(), signal);
  }

  /**
   * @param {Place} place
   * @param {AbortSignal} signal
   * @returns {Promise<{rows: Message[], end: Place}>}
   */
  async #read(place, signal) {
    /** @type {Message[]} */
    let rows = [];
    let { offset, skip } = place;
    while (rows.length < PAGE) {
      const found = await messages(this.path, { offset, producers: this.#producers.checked }, signal);
      rows = rows.concat(found.rows.slice(skip));
      skip = Math.max(0, skip - found.rows.length);
      if (found.next === offset || !found.rows.length) return { rows, end: { offset: found.next, skip: 0 } };
      offset = found.next;
    }
    const next = rows[PAGE];
    return { rows: rows.slice(0, PAGE), end: next ? { offset: next.offset, skip: next.index } : { offset, skip: 0 } };
  }

  async #older() {
    const last = this.#rows.at(-1);
    const before = this.#mode !== "page" && last ? { offset: last.offset, skip: last.index } : this.#start;
    if (!before) return;
    const signal = this.#begin();
    const found = await stepBack(this.path, before, PAGE, signal, { producers: this.#producers.checked });
    if (!found.rows.length) return announce("There is nothing older."), this.#say("this is the beginning of the stream");
    this.#start = found.place;
    this.#end = before;
    await this.#showPage(found.rows, signal);
  }

  async #newer() {
    if (this.#mode !== "page" || !this.#end) return;
    const { rows, end } = await this.#read(this.#end, this.#begin());
    if (!rows.length) return this.tail();
    this.#start = this.#end;
    this.#end = end;
    await this.#showPage(rows.toReversed(), this.#work.signal);
  }

  /** @param {Message[]} rows newest first @param {AbortSignal} signal */
  async #showPage(rows, signal) {
    this.#setMode("page");
    this.#rows = rows;
    this.#list.replaceChildren(...rows.map((row) => messageRow(this.path, row)));
    if (!rows.length) this.#list.replaceChildren(h("div.empty", "There is nothing here, or nothing any more."));
    const oldest = rows.at(-1);
    if (!oldest) return this.#say("");
    const query = new URLSearchParams({ offset: oldest.offset, max_bytes: "1", files: "false" });
    const { ranges } = await get(`${streamUrl(this.path)}/_segments?${query}`, signal).catch(() => ({ ranges: [] }));
    const first = (ranges[0]?.first_message ?? 0) + oldest.index;
    this.#say(`messages ${number(first)} to ${number(first + rows.length - 1)}, newest first`);
  }

  /** @param {string} kind @param {string} text */
  async #jump(kind, text) {
    if (kind === "offset") {
      const [offset = "", skip = "0"] = text.trim().split("/");
      return this.#showFrom({ offset, skip: Number(skip) || 0 });
    }
    const question = kind === "time" ? { at: new Date(text).getTime() } : { number: text.replace(/[\s,_]/g, "") };
    return this.#showFrom(await position(this.path, /** @type {any} */ (question), this.#begin()));
  }

  // ── Searching ──────────────────────────────────────────────────────────────────────────────

  /** @param {string} text @param {string} condition @param {boolean} backwards */
  async #search(text, condition, backwards) {
    const signal = this.#begin();
    this.#setMode("search");
    this.#rows = [];
    this.#list.replaceChildren();
    this.#say("");
    const found = (/** @type {Message} */ row) => {
      this.#rows.push(row);
      this.#list.append(messageRow(this.path, row));
    };
    const options = { text, condition, backwards, total: this.details.messages, producers: this.#producers.checked };
    await search(this.path, options, { found, progress: this.#progress, stop: () => this.#work.abort() }, signal);
    if (!this.#rows.length) this.#list.replaceChildren(h("div.empty", "No message matches."));
  }

  // ── Saying and saving ──────────────────────────────────────────────────────────────────────

  /** @param {string} text */
  #say(text) {
    if (this.#status.textContent !== text) this.#status.textContent = text;
  }

  /** What is shown, oldest first: JSON one a line, anything else as it is. */
  async #save() {
    /** @type {Message[]} */
    const rows = [];
    for (const row of this.#rows.toReversed()) rows.push(await wholeOf(this.path, row));
    const isJson = rows[0]?.text !== undefined;
    const parts = rows.map((row) => (isJson ? `${contentOf(row)}\n` : bytesOf(row.base64 ?? "")));
    download(`${this.path}${isJson ? ".ndjson" : ".bin"}`, /** @type {BlobPart[]} */ (parts));
  }
}
