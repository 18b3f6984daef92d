// Live keys: 64-bit hashes that name what a query depends on. The rules are the server's own
// (`core/live/keys.py`, `core/live/encodings.py`), and both are held against the same vectors.

import { xxh3, xxh32 } from "./hashing.js";

/**
 * @typedef {"string" | "int64" | "bool" | "datetime" | "bytes"} Encoding
 * @typedef {{entity: string, fields: {name: string, encoding: Encoding}[]}} Template
 * @typedef {{project?: string[], membershipOnly?: boolean, encodings?: Record<string, Encoding>}} KeysetOptions
 * @typedef {{entity: string, keys: string[], table: string, template?: Template, templateId?: string}} Keyset
 */

const FIELDS_MAX = 3;
const NAME_CHARS_MAX = 256;
const PROJECTED_MAX = 31;
const INT64_MIN = -(2n ** 63n);
const INT64_MAX = 2n ** 63n - 1n;
const INSTANT = /^(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?\s?([Zz]|[+-]\d\d(?::?\d\d)?)?)?$/;
const encoder = new TextEncoder();

/** @param {string} entity any change of a table touches this */
export function tableKey(entity) {
  return hash("tbl", entity);
}

/** @param {string} entity @param {string[]} fields in any order */
export function templateId(entity, fields) {
  return hash("tpl", entity, ...sorted(fields));
}

/** @param {string} template its id */
export function templateKey(template) {
  return hash("tpl", number(template));
}

/** @param {string} template @param {string[]} values encoded, in the order of their sorted fields */
export function watchKey(template, values) {
  return hash("key", number(template), ...values);
}

/** @param {string} template @param {string[]} values */
export function membershipKey(template, values) {
  return hash("mem", number(template), ...values);
}

/** @param {string} template @param {string} field @param {string[]} values */
export function projectedKey(template, field, values) {
  return hash("fld", number(template), field, ...values);
}

/** The short form of a key. @param {string} text */
export function keyId(text) {
  const key = text.trim().toLowerCase();
  return /^[0-9a-f]{16}$/.test(key) ? Number(BigInt(`0x${key}`) & 0xffffffffn) : xxh32(encoder.encode(key));
}

/**
 * What a query has to wait on: its table, or a few keys if it compares one to three fields for equality.
 * @param {string} entity the table, as in the `type` of its changes
 * @param {Record<string, unknown>} [where] the fields that are compared, with their values
 * @param {KeysetOptions} [options]
 * @returns {Keyset}
 */
export function keyset(entity, where = {}, { project, membershipOnly = false, encodings = {} } = {}) {
  const table = tableKey(entity);
  const coarse = { entity, keys: [table], table };
  const names = sorted(Object.keys(where));
  if (names.length < 1 || names.length > FIELDS_MAX || ![entity, ...names].every(isName)) return coarse;
  const kinds = names.map((name) => encodings[name] ?? encodingOf(where[name]));
  const values = names.map((name, index) => kinds[index] && encodeValue(where[name], /** @type {Encoding} */ (kinds[index])));
  if (values.some((value) => value === undefined)) return coarse;
  const args = /** @type {string[]} */ (values);
  const id = templateId(entity, names);
  const fields = names.map((name, index) => ({ name, encoding: /** @type {Encoding} */ (kinds[index]) }));
  const wanted = membershipOnly ? [] : project;
  const keys =
    wanted === undefined || wanted.length > PROJECTED_MAX
      ? [watchKey(id, args)]
      : [membershipKey(id, args), ...wanted.map((field) => projectedKey(id, field, args))];
  return { entity, keys, table, template: { entity, fields }, templateId: id };
}

/** The encoding that goes with a value's type. @param {unknown} value @returns {Encoding | undefined} */
export function encodingOf(value) {
  if (typeof value === "boolean") return "bool";
  if (typeof value === "bigint" || Number.isSafeInteger(value)) return "int64";
  if (typeof value === "string") return "string";
  if (value instanceof Date) return "datetime";
  if (value instanceof Uint8Array) return "bytes";
  return undefined;
}

/** A value as it enters a key; undefined if it cannot. @param {unknown} value @param {Encoding} encoding @returns {string | undefined} */
export function encodeValue(value, encoding) {
  if (encoding === "bool") return typeof value === "boolean" ? (value ? "1" : "0") : undefined;
  if (encoding === "int64") return int64(value);
  if (encoding === "datetime") return value instanceof Date ? instant(iso(value)) : typeof value === "string" ? instant(value) : undefined;
  if (value instanceof Uint8Array) return encoding === "bytes" ? btoa(String.fromCharCode(...value)) : undefined;
  if (typeof value === "string") return value;
  if (encoding === "bytes") return undefined;
  if (value instanceof Date) return iso(value);
  return typeof value === "number" || typeof value === "boolean" || typeof value === "bigint" ? String(value) : undefined;
}

/** @param {Date} date */
function iso(date) {
  return Number.isNaN(date.getTime()) ? "" : date.toISOString();
}

/** @param {unknown} value */
function int64(value) {
  let whole;
  if (typeof value === "bigint") whole = value;
  else if (typeof value === "number" && Number.isInteger(value)) whole = BigInt(value);
  else if (typeof value === "string" && /^-?[0-9]{1,64}$/.test(value)) whole = BigInt(value);
  else return undefined;
  return whole >= INT64_MIN && whole <= INT64_MAX ? whole.toString() : undefined;
}

/** @param {string} text @returns {string | undefined} */
function instant(text) {
  const found = INSTANT.exec(text.trim());
  if (!found) return undefined;
  const [year, month, day, hour, minute, second] = found.slice(1, 7).map((part) => Number(part ?? 0));
  const moment = new Date(0);
  moment.setUTCFullYear(year, month - 1, day);
  const exists = year >= 1 && moment.getUTCMonth() === month - 1 && moment.getUTCDate() === day;
  if (!exists || hour > 23 || minute > 59 || second > 59) return undefined;
  moment.setUTCHours(hour, minute, second, Number(`${found[7] ?? ""}000`.slice(0, 3)));
  const zone = zoneMinutes(found[8]);
  if (zone === undefined) return undefined;
  moment.setTime(moment.getTime() - zone * 60_000);
  const shifted = moment.getUTCFullYear();
  return shifted >= 1 && shifted <= 9999 ? moment.toISOString() : undefined;
}

/** @param {string | undefined} text */
function zoneMinutes(text) {
  if (text === undefined || /^z$/i.test(text)) return 0;
  const hours = Number(text.slice(1, 3));
  const minutes = text.length > 3 ? Number(text.slice(-2)) : 0;
  if (hours > 23 || minutes > 59) return undefined;
  return (text[0] === "+" ? 1 : -1) * (60 * hours + minutes);
}

// Texts compare by UTF-16 code unit, as the rules have it.
/** @param {string[]} fields */
function sorted(fields) {
  return [...fields].sort((a, b) => (a < b ? -1 : Number(a > b)));
}

/** @param {string} text */
function isName(text) {
  return text.length >= 1 && text.length <= NAME_CHARS_MAX;
}

/** A template's id as 8 bytes. @param {string} template */
function number(template) {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(`0x${template}`));
  return bytes;
}

/** @param {...(string | Uint8Array)} parts */
function hash(...parts) {
  const all = parts.map((part) => (typeof part === "string" ? encoder.encode(part) : part));
  const bytes = new Uint8Array(all.reduce((sum, part) => sum + part.length + 1, -1));
  let at = 0;
  for (const part of all) {
    bytes.set(part, at);
    at += part.length + 1;
  }
  return xxh3(bytes).toString(16).padStart(16, "0");
}
