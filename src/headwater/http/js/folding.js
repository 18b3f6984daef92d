// The State Protocol, by the rules of `core/state_protocol.py`: which messages are records, and how they fold
// into a state. A test holds the two against each other.

/**
 * @typedef {{
 *   type: string, key: string, value?: any, old_value?: any,
 *   headers: {operation?: string, control?: string, offset?: string, txid?: string, [name: string]: unknown},
 * }} ChangeRecord
 * @typedef {Map<string, Map<string, any>>} Entities
 */

const OPERATIONS = ["insert", "update", "upsert", "delete"];
const CONTROLS = ["snapshot-start", "snapshot-end", "reset"];

/** Whether a message is a record. @param {any} message @returns {message is ChangeRecord} */
export function isRecord(message) {
  const { headers, type = "", key = "", value } = message ?? {};
  const { operation = null, control = null, offset = null } = headers ?? {};
  if ([type, key, offset ?? ""].some((text) => typeof text !== "string")) return false;
  if (operation === null) return CONTROLS.includes(control);
  return control === null && OPERATIONS.includes(operation) && type !== "" && key !== "" && (value !== undefined || operation === "delete");
}

/** Values by type and key, and what is needed to continue folding. */
export class Fold {
  /** @type {Entities} */
  entities = new Map();
  /** @type {Entities | undefined} */
  #snapshot;
  /** @type {string | null | undefined} */
  #restart;

  /** Apply messages; those that are no records mean nothing. @param {ChangeRecord[]} messages @param {string} [offset] where they end */
  apply(messages, offset) {
    if (offset !== undefined && this.#isOutdated(offset)) return;
    for (const message of messages) if (isRecord(message)) this.#take(message);
  }

  /** Whether an offset lies before the one that a reset named, if that is one of this stream. @param {string} offset */
  #isOutdated(offset) {
    return this.#restart?.length === offset.length && offset <= this.#restart;
  }

  /** @param {ChangeRecord} record */
  #take(record) {
    const { control, offset } = record.headers;
    if (!control) {
      const entities = this.#snapshot ?? this.entities;
      const ofType = entities.get(record.type) ?? new Map();
      entities.set(record.type, ofType);
      return store(ofType, record);
    }
    if (control === "snapshot-end") this.entities = this.#snapshot ?? this.entities;
    if (control === "reset") [this.entities, this.#restart] = [new Map(), offset];
    this.#snapshot = control === "snapshot-start" ? new Map() : undefined;
  }
}

/** @param {Map<string, any>} entities @param {ChangeRecord} change */
export function store(entities, { key, value, headers }) {
  if (headers.operation === "delete") entities.delete(key);
  else entities.set(key, value);
}
