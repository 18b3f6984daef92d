// Server-Sent Events over fetch: EventSource can neither send headers nor begin at an offset.

import { piecesOf } from "./requests.js";

/** @typedef {{name: string, data: string}} ServerEvent */

/**
 * The events of an answer, until it ends. A comment comes as an event without a name. An event that is
 * cut off by the end does not come: its reader starts again from the last offset that it was told.
 * @param {Response} response @param {AbortSignal} [signal] @returns {AsyncGenerator<ServerEvent>}
 */
export async function* eventsOf(response, signal) {
  const parser = new EventParser();
  const decoder = new TextDecoder();
  for await (const piece of piecesOf(response, signal)) yield* parser.feed(decoder.decode(piece, { stream: true }));
}

export class EventParser {
  #text = "";
  #name = "message";
  /** @type {string[]} */
  #data = [];

  /** @param {string} text @returns {ServerEvent[]} the events that this completes */
  feed(text) {
    /** @type {ServerEvent[]} */
    const events = [];
    // A CR at the very end may be the first half of a CRLF, so it waits for what follows.
    const lines = (this.#text + text).split(/\r\n|\r(?!$)|\n/);
    this.#text = lines.pop() ?? "";
    for (const line of lines) this.#take(line, events);
    return events;
  }

  /** @param {string} line @param {ServerEvent[]} events */
  #take(line, events) {
    if (!line) {
      if (this.#data.length) events.push({ name: this.#name, data: this.#data.join("\n") });
      this.#name = "message";
      this.#data = [];
      return;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (colon === 0) events.push({ name: "", data: "" });
    else if (field === "event") this.#name = value;
    else if (field === "data") this.#data.push(value);
  }
}
