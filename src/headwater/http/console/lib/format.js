// Numbers, sizes and times for people.

import { h } from "./dom.js";

const count = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** @param {number | null | undefined} value */
export const number = (value) => (value == null ? "–" : count.format(value));

/** @param {number | null | undefined} bytes */
export function size(bytes) {
  if (bytes == null) return "–";
  let unit = 0;
  let value = bytes;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${short.format(value)} ${UNITS[unit]}`;
}

/** @param {number} perSecond */
export const rate = (perSecond) => `${short.format(perSecond)}/s`;
/** @param {number} perSecond */
export const sizeRate = (perSecond) => `${size(perSecond)}/s`;
/** @param {number} value */
export const percent = (value) => `${short.format(value)} %`;

/** @param {number | null | undefined} ms */
export function duration(ms) {
  if (ms == null) return "–";
  if (ms < 1000) return `${short.format(ms)} ms`;
  let value = ms / 1000;
  for (const [unit, many] of /** @type {[string, number][]} */ ([["s", 60], ["min", 60], ["h", 24]])) {
    if (value < many) return `${short.format(value)} ${unit}`;
    value /= many;
  }
  return `${short.format(value)} d`;
}

/** @param {number} value @param {number} [width] */
const padded = (value, width = 2) => String(value).padStart(width, "0");

/** @param {Date} when */
export const dayOf = (when) => `${when.getFullYear()}-${padded(when.getMonth() + 1)}-${padded(when.getDate())}`;
/** @param {Date} when */
export const clockOf = (when) => `${padded(when.getHours())}:${padded(when.getMinutes())}:${padded(when.getSeconds())}`;
/** @param {Date} when */
export const utcOf = (when) => when.toISOString().slice(11, 19);

/**
 * A moment in local time; UTC is shown when the pointer rests on it.
 * @param {number | null | undefined} ms
 * @param {{precise?: boolean}} [options]
 */
export function instant(ms, { precise = false } = {}) {
  if (ms == null) return "–";
  const when = new Date(ms);
  if (Number.isNaN(when.getTime())) return String(ms);
  const text = `${dayOf(when)} ${clockOf(when)}${precise ? `.${padded(when.getMilliseconds(), 3)}` : ""}`;
  const utc = when.toISOString();
  return h("time", { datetime: utc, title: `${utc.replace("T", " ").replace("Z", "")} UTC` }, text);
}

/** @param {number | null | undefined} ms */
export const ago = (ms) => (ms == null ? "–" : `${duration(Math.max(0, Date.now() - ms))} ago`);
