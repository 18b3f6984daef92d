// Bars by name.

import { h } from "./dom.js";
import { number } from "./format.js";

/**
 * @param {string} title
 * @param {string[]} names
 * @param {(number | null)[]} values
 */
export function bars(title, names, values) {
  const top = Math.max(...values.map((value) => Math.abs(value ?? 0))) || 1;
  const lines = names.map((name, at) => {
    const value = values[at] ?? 0;
    // The pattern draws itself: a meter needs neither a style nor a script.
    return [h("dt", name), h("dd", h("meter", { min: 0, max: top, value: Math.max(0, value), "aria-label": `${name}: ${number(value)}` }), " ", number(value))];
  });
  return h("div", h("div.dim", title), h("dl.bars", lines));
}
