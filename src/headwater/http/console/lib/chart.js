// Small line charts in SVG: a figure, the line it drew, and its value where the pointer is.

import { h } from "./dom.js";
import { clockOf, dayOf, instant } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [600, 120];
const DAY_MS = 86_400_000;

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
 * A line over time.
 * @typedef {{times: number[], values: (number | null)[]}} Series
 */

/** A figure with its chart. Left and right arrow keys move from point to point, as the pointer does. */
export class Chart {
  /** @type {Series} */
  #series = { times: [], values: [] };
  #from = 0;
  #until = 1;
  #top = 1;
  #at = -1;
  #shown = h("b", "…");
  #when = h("span.dim");
  #scale = h("span.scale.dim");
  #axis = [h("span"), h("span")];
  #line = shape("path", { class: "line" });
  #area = shape("path", { class: "area" });
  #mark = shape("line", { class: "mark", y1: 0, y2: HEIGHT });

  /**
   * @param {string} title
   * @param {(value: number) => string} format
   */
  constructor(title, format) {
    this.title = title;
    this.format = format;
    this.drawing = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", tabindex: 0 });
    this.drawing.append(this.#area, this.#line, this.#mark);
    this.drawing.addEventListener("pointermove", (event) => this.#point(/** @type {PointerEvent} */ (event)));
    this.drawing.addEventListener("pointerleave", () => this.#select(-1));
    this.drawing.addEventListener("blur", () => this.#select(-1));
    this.drawing.addEventListener("keydown", (event) => this.#step(/** @type {KeyboardEvent} */ (event)));
    this.element = h("div.card.figure", h("div.row", h("span.dim", title), this.#when), this.#shown, this.#scale, this.drawing, h("div.axis.dim", this.#axis));
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
    this.#top = roundUp(Math.max(0, ...this.#series.values.map((value) => value ?? 0)), this.format(1).includes("B"));
    this.#draw();
    this.#select(Math.min(this.#at, this.#series.times.length - 1));
  }

  /** @param {number} time */
  #x(time) {
    return ((time - this.#from) / (this.#until - this.#from)) * WIDTH;
  }

  #draw() {
    /** @type {string[][]} */
    const runs = [[]];
    this.#series.times.forEach((time, index) => {
      const value = this.#series.values[index];
      if (value == null) runs.push([]);
      else runs.at(-1)?.push(`${this.#x(time).toFixed(1)},${(HEIGHT - 2 - (value / this.#top) * (HEIGHT - 8)).toFixed(1)}`);
    });
    const drawn = runs.filter((run) => run.length);
    this.#line.setAttribute("d", drawn.map((run) => `M${run.join("L")}${run.length === 1 ? "h1" : ""}`).join(""));
    this.#area.setAttribute("d", drawn.map((run) => area(run)).join(""));
    this.#scale.textContent = this.format(this.#top);
    const ends = this.#series.times.length ? [this.#from, this.#until] : [];
    const name = this.#until - this.#from > DAY_MS ? dayOf : clockOf;
    this.#axis.forEach((one, at) => (one.textContent = ends[at] === undefined ? "" : name(new Date(ends[at]))));
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
    const steps = /** @type {Record<string, number>} */ ({ ArrowLeft: -1, ArrowRight: 1 });
    const by = steps[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const last = this.#series.times.length - 1;
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
    this.#mark.classList.toggle("shown", index >= 0 && time !== undefined);
    if (time !== undefined) {
      this.#mark.setAttribute("x1", String(this.#x(time)));
      this.#mark.setAttribute("x2", String(this.#x(time)));
    }
    this.#when.replaceChildren(index >= 0 && time !== undefined ? instant(time) : "");
    const span = times.length ? `from ${clockOf(new Date(times[0] ?? 0))} to ${clockOf(new Date(times.at(-1) ?? 0))}` : "no points yet";
    this.drawing.setAttribute("aria-label", `${this.title}: ${text}; ${span}, at most ${this.format(this.#top)}`);
  }
}

/** @param {string[]} run */
function area(run) {
  const [first, last] = [run[0]?.split(",")[0], run.at(-1)?.split(",")[0]];
  return `M${first},${HEIGHT}L${run.join("L")}L${last},${HEIGHT}Z`;
}
