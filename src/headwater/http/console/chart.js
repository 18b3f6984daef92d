// A figure with the line it drew over the last minutes.

import { h } from "./dom.js";

const POINTS = 150;
const SVG = "http://www.w3.org/2000/svg";

export class Figure {
  #values = [];
  #shown = h("b", "…");
  #line = document.createElementNS(SVG, "polyline");

  constructor(title, format) {
    this.format = format;
    const drawing = document.createElementNS(SVG, "svg");
    drawing.setAttribute("viewBox", `0 0 ${POINTS - 1} 40`);
    drawing.setAttribute("preserveAspectRatio", "none");
    drawing.setAttribute("aria-hidden", "true");
    drawing.append(this.#line);
    this.element = h("div.card.figure", h("span.dim", title), this.#shown, drawing);
  }

  add(value) {
    this.#values = [...this.#values, value].slice(-POINTS);
    this.#shown.textContent = this.format(value);
    const top = Math.max(...this.#values) || 1;
    const from = POINTS - this.#values.length;
    const points = this.#values.map((one, index) => `${from + index},${38 - (one / top) * 36}`);
    this.#line.setAttribute("points", points.join(" "));
  }
}
