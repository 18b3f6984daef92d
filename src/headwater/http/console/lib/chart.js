// Small line charts in SVG: a figure, the line it drew, and its value where the pointer is.

import { h } from "./dom.js";
import { clockOf, dayOf, utcOf } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [600, 120];
const [MINUTE_MS, DAY_MS] = [60_000, 86_400_000];
const TICKS_MAX = 4;
/** What people count time in, up to weeks; from there on by doubling. */
const STEPS_MS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800].map((s) => s * 1000);
/** Nearer to an end than this share of the width, a label would be cut off. */
const MARGIN = 0.07;

/**
 * @param {string} name
 * @param {Record<string, string | number>} attributes
 * @returns {SVGElement}
 */
function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  return element;
}

/**
 * The smallest round number that is no smaller: 1, 2 or 5 times a power of ten, or a power of two for bytes.
 * @param {number} value
 * @param {boolean} isBytes
 */
function roundUp(value, isBytes) {
  if (!(value > 0)) return 1;
  if (isBytes) return 2 ** Math.ceil(Math.log2(value));
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 5, 10].find((one) => one * power >= value) ?? 10;
  return step * power;
}

/**
 * Round moments between two, in local time.
 * @param {number} from
 * @param {number} until
 * @returns {{step: number, times: number[]}}
 */
function ticks(from, until) {
  let step = STEPS_MS.find((one) => (until - from) / one <= TICKS_MAX) ?? STEPS_MS.at(-1) ?? DAY_MS;
  while ((until - from) / step > TICKS_MAX) step *= 2;
  const zone = new Date(from).getTimezoneOffset() * MINUTE_MS;
  const times = [];
  for (let time = Math.ceil((from - zone) / step) * step + zone; time <= until; time += step) times.push(time);
  return { step, times };
}

/**
 * A line over time.
 * @typedef {{times: number[], values: (number | null)[]}} Series
 */

/** A figure with its chart. Arrow keys, Home and End move from point to point, as the pointer does. */
export class Chart {
  /** @type {Series} */
  #series = { times: [], values: [] };
  #from = 0;
  #until = 1;
  #top = 1;
  #bottom = 0;
  #at = -1;
  #shown = h("b", "…");
  #when = h("span");
  #scale = h("span");
  #axis = h("div.axis.dim");
  #grid = shape("path", { class: "grid" });
  #line = shape("path", { class: "line" });
  #area = shape("path", { class: "area" });
  #mark = shape("path", { class: "mark" });
  #dot = shape("path", { class: "dot" });

  /**
   * @param {string} title
   * @param {(value: number) => string} format
   */
  constructor(title, format) {
    this.title = title;
    this.format = format;
    this.drawing = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "slider", tabindex: 0 });
    this.drawing.append(this.#area, this.#grid, this.#line, this.#mark, this.#dot);
    for (const name of ["pointerdown", "pointermove"]) this.drawing.addEventListener(name, (event) => this.#point(/** @type {PointerEvent} */ (event)));
    this.drawing.addEventListener("pointerleave", () => this.#select(-1));
    this.drawing.addEventListener("blur", () => this.#select(-1));
    this.drawing.addEventListener("keydown", (event) => this.#step(/** @type {KeyboardEvent} */ (event)));
    this.element = h("div.card.figure", h("span.dim", title), this.#shown, h("div.scale.dim", this.#when, this.#scale), this.drawing, this.#axis);
  }

  /**
   * @param {Series} series
   * @param {number} from
   * @param {number} until
   */
  show(series, from, until) {
    const first = series.times.findIndex((time) => time >= from);
    const start = first < 0 ? series.times.length : first;
    this.#series = { times: series.times.slice(start), values: series.values.slice(start) };
    this.#from = from;
    this.#until = Math.max(until, from + 1);
    const values = this.#series.values.map((value) => value ?? 0);
    const isBytes = this.format(1).includes("B");
    const [most, least] = [Math.max(0, ...values), Math.min(0, ...values)];
    this.#bottom = least < 0 ? -roundUp(-least, isBytes) : 0;
    this.#top = most > 0 || least === 0 ? roundUp(most, isBytes) : 0;
    this.#draw();
    this.#select(Math.min(this.#at, this.#series.times.length - 1));
  }

  /** @param {number} time */
  #x(time) {
    return ((time - this.#from) / (this.#until - this.#from)) * WIDTH;
  }

  /** @param {number} value */
  #y(value) {
    return (HEIGHT - 1) * (1 - (value - this.#bottom) / (this.#top - this.#bottom));
  }

  #draw() {
    /** @type {string[][]} */
    const runs = [[]];
    this.#series.times.forEach((time, index) => {
      const value = this.#series.values[index];
      if (value == null) runs.push([]);
      else runs.at(-1)?.push(`${this.#x(time).toFixed(1)},${this.#y(value).toFixed(1)}`);
    });
    const drawn = runs.filter((run) => run.length);
    this.#line.setAttribute("d", drawn.map((run) => `M${run.join("L")}${run.length === 1 ? "h1" : ""}`).join(""));
    this.#area.setAttribute("d", drawn.map((run) => area(run, this.#y(0))).join(""));
    this.#scale.textContent = this.#bottom < 0 ? `${this.format(this.#bottom)} to ${this.format(this.#top)}` : this.format(this.#top);
    this.#drawGrid();
  }

  #drawGrid() {
    const { step, times } = this.#series.times.length ? ticks(this.#from, this.#until) : { step: 0, times: [] };
    const name = step >= DAY_MS ? dayOf : (/** @type {Date} */ when) => clockOf(when).slice(0, step < MINUTE_MS ? 8 : 5);
    const half = this.#y((this.#top + this.#bottom) / 2).toFixed(1);
    this.#grid.setAttribute("d", `M0,${half}H${WIDTH}${times.map((time) => `M${this.#x(time).toFixed(1)},0V${HEIGHT}`).join("")}`);
    const shares = times.map((time) => /** @type {const} */ ([time, this.#x(time) / WIDTH]));
    const labels = shares.filter(([, share]) => share >= MARGIN && share <= 1 - MARGIN);
    this.#axis.replaceChildren(...labels.map(([time, share]) => {
      const label = h("span", name(new Date(time)));
      label.style.left = `${(share * 100).toFixed(2)}%`;
      return label;
    }));
  }

  /** @param {PointerEvent} event */
  #point(event) {
    const box = this.drawing.getBoundingClientRect();
    const time = this.#from + ((event.clientX - box.left) / box.width) * (this.#until - this.#from);
    const { times } = this.#series;
    let best = times.length - 1;
    while (best > 0 && Math.abs((times[best - 1] ?? 0) - time) < Math.abs((times[best] ?? 0) - time)) best -= 1;
    this.#select(best);
  }

  /** @param {KeyboardEvent} event */
  #step(event) {
    const last = this.#series.times.length - 1;
    const steps = /** @type {Record<string, number>} */ ({ ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, Home: -last, End: last });
    const by = steps[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const from = this.#at < 0 ? last + 1 : this.#at;
    this.#select(Math.max(0, Math.min(last, from + by)));
  }

  /** @param {number} index the point to tell about; -1 for the last */
  #select(index) {
    this.#at = index;
    const { times, values } = this.#series;
    const at = index < 0 ? times.length - 1 : index;
    const [time, value] = [times[at], values[at]];
    const text = value == null ? "–" : this.format(value);
    this.#shown.textContent = text;
    const isPicked = index >= 0 && time !== undefined;
    this.#mark.setAttribute("d", isPicked ? `M${this.#x(time)},0V${HEIGHT}` : "");
    this.#dot.setAttribute("d", isPicked && value != null ? `M${this.#x(time)},${this.#y(value)}h0` : "");
    this.#when.textContent = isPicked ? moment(time, this.#until - this.#from) : "";
    this.#describe(at, time === undefined ? text : `${text} at ${moment(time, 0)}`);
  }

  /**
   * @param {number} at
   * @param {string} text
   */
  #describe(at, text) {
    const { times } = this.#series;
    const span = times.length ? `from ${clockOf(new Date(times[0] ?? 0))} to ${clockOf(new Date(times.at(-1) ?? 0))}` : "no points yet";
    const said = { "aria-label": `${this.title}, ${span}, at most ${this.format(this.#top)}`, "aria-valuemin": 0, "aria-valuemax": Math.max(0, times.length - 1), "aria-valuenow": Math.max(0, at), "aria-valuetext": text };
    for (const [name, value] of Object.entries(said)) this.drawing.setAttribute(name, String(value));
  }
}

/**
 * A moment in local time and in UTC, with its day where there are several.
 * @param {number} time
 * @param {number} span
 */
function moment(time, span) {
  const when = new Date(time);
  const day = span > DAY_MS ? `${dayOf(when)} ` : "";
  return `${day}${clockOf(when)} · ${utcOf(when)} UTC`;
}

/**
 * @param {string[]} run
 * @param {number} base
 */
function area(run, base) {
  const [first, last] = [run[0]?.split(",")[0], run.at(-1)?.split(",")[0]];
  return `M${first},${base}L${run.join("L")}L${last},${base}Z`;
}
