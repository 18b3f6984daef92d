// Following a stream. However fast it is, the page holds the last few messages and counts the rest.

import { news, position } from "../lib/api.js";
import { pause } from "../lib/waiting.js";
import { between } from "./scan.js";

/** @typedef {import("../lib/api.js").Message} Message */

export const KEPT = 200;
const BREATH_MS = 250;
const AGAIN_MS = 2_000;

/**
 * @param {string} path
 * @param {string} from an offset, or nothing for the last messages
 * @param {{closed: boolean, producers: () => boolean, moved: (offset: string) => void,
 *   add: (rows: Message[], many: number, fresh: boolean) => void}} page
 * @param {AbortSignal} signal ends it
 */
export async function follow(path, from, page, signal) {
  let offset = from;
  if (!offset) {
    const { tail } = await position(path, { offset: "-1", messages: 1 }, signal);
    page.add(await last(path, tail, page, signal), 0, false);
    page.moved((offset = tail));
  }
  while (!signal.aborted) {
    try {
      const ahead = await position(path, { offset }, signal);
      if (ahead.messages) {
        const place = ahead.messages > KEPT ? null : { offset, skip: 0 };
        const rows = place ? await all(path, { ...place, until: ahead.tail }, page, signal) : await last(path, ahead.tail, page, signal);
        page.add(rows, ahead.messages, true);
        page.moved((offset = ahead.tail));
        await pause(BREATH_MS, signal);
      } else if (ahead.closed) return;
      else await news(path, offset, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (isOver(error)) throw error;
      await pause(AGAIN_MS, signal);
    }
  }
}

/** Whether trying again would not help. @param {any} error */
const isOver = (error) => [400, 401, 403, 404, 410].includes(error.status);

/**
 * @param {string} path
 * @param {string} until
 * @param {{producers: () => boolean}} page
 * @param {AbortSignal} signal
 */
async function last(path, until, page, signal) {
  const place = await position(path, { last: KEPT, until }, signal);
  return all(path, { ...place, until }, page, signal);
}

/**
 * @param {string} path
 * @param {{offset: string, skip: number, until: string}} where
 * @param {{producers: () => boolean}} page
 * @param {AbortSignal} signal
 */
async function all(path, where, page, signal) {
  /** @type {Message[]} */
  let rows = [];
  for await (const part of between(path, { ...where, producers: page.producers() }, signal)) {
    rows = rows.concat(part.rows).slice(-KEPT);
  }
  return rows;
}
