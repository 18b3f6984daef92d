// Reading through a stream in bounded steps, forwards or backwards.

import { messages, position } from "../lib/api.js";

/** @typedef {import("../lib/api.js").Message} Message */

export const STEP_MESSAGES = 2_000;
const STEP_BYTES = 4 * 1024 * 1024;
/** After so much, somebody is asked whether to go on. */
export const SCANNED_MAX = 200_000;
export const SCANNED_BYTES_MAX = 128 * 1024 * 1024;

/**
 * All messages between two places, in order.
 * @param {string} path
 * @param {{offset: string, skip: number, until: string, producers?: boolean, test?: import("../lib/api.js").Test}} where
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<{rows: Message[], bytes: number}>}
 */
export async function* between(path, { offset, skip, until, producers, test }, signal) {
  let at = offset;
  let left = skip;
  while (at !== until && !signal.aborted) {
    const found = await messages(path, { offset: at, until, producers, test, bytes: STEP_BYTES }, signal);
    if (found.next === at) return;
    const dropped = Math.min(left, found.rows.length);
    left -= dropped;
    yield { rows: found.rows.slice(dropped), bytes: found.bytes };
    at = found.next;
  }
}

/**
 * The messages before an offset, newest first, in steps; and where to go on.
 * @param {string} path
 * @param {{offset: string, skip: number}} before a place: what lies before it counts
 * @param {number} count
 * @param {AbortSignal} signal
 * @param {{producers?: boolean, test?: import("../lib/api.js").Test}} [options]
 * @returns {Promise<{rows: Message[], place: import("../lib/api.js").Place, scanned: number, bytes: number}>}
 */
export async function stepBack(path, before, count, signal, { producers, test } = {}) {
  const beyond = before.skip > 0;
  const wanted = Math.max(0, count - before.skip);
  const place = /** @type {import("../lib/api.js").Place} */ (await position(path, { last: wanted, until: before.offset }, signal));
  /** @type {Message[]} */
  let rows = [];
  let scanned = 0;
  let bytes = 0;
  const take = (/** @type {Message[]} */ found) => {
    scanned += found.length;
    rows = rows.concat(found.filter((row) => row.matches));
  };
  if (wanted) {
    for await (const part of between(path, { ...place, until: before.offset, producers, test }, signal)) {
      bytes += part.bytes;
      take(part.rows);
    }
  }
  if (beyond) {
    // The append that the place lies in, as far as that.
    const found = await messages(path, { offset: before.offset, bytes: 1, producers, test }, signal);
    bytes += found.bytes;
    take(found.rows.filter((row) => row.offset === before.offset && row.index < before.skip).slice(-count));
  }
  const start = beyond && wanted === 0 ? { offset: before.offset, skip: before.skip - count } : place;
  return { rows: rows.reverse(), place: start, scanned, bytes };
}
