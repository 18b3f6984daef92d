// Messages that are not JSON: as text, as a hex dump, or as a picture.

import { h } from "../lib/dom.js";
import { number } from "../lib/format.js";

const DUMPED_MAX = 16 * 1024;
/** Pictures by how they begin. Only formats that are nothing but pictures. @type {[string, number[]][]} */
const PICTURES = [
  ["image/png", [0x89, 0x50, 0x4e, 0x47]],
  ["image/jpeg", [0xff, 0xd8, 0xff]],
  ["image/gif", [0x47, 0x49, 0x46, 0x38]],
  ["image/webp", [0x52, 0x49, 0x46, 0x46]],
];

/** @param {string} base64 */
export const bytesOf = (base64) => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));

/**
 * @param {Uint8Array} bytes
 * @returns {string | null} null if they are no text
 */
export function textOf(bytes) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    // eslint-disable-next-line no-control-regex
    return /[\0-\x08\x0e-\x1a]/.test(text) ? null : text;
  } catch {
    return null;
  }
}

/** @param {Uint8Array} bytes */
export const pictureType = (bytes) => PICTURES.find(([, start]) => start.every((byte, index) => bytes[index] === byte))?.[0];

/**
 * @param {Uint8Array} bytes
 * @param {string} type
 */
export function picture(bytes, type) {
  const url = URL.createObjectURL(new Blob([/** @type {BlobPart} */ (bytes)], { type }));
  const free = () => URL.revokeObjectURL(url);
  return h("img.picture", { src: url, alt: `a picture of ${number(bytes.length)} bytes`, onload: free, onerror: free });
}

/** @param {Uint8Array} bytes */
export function hexDump(bytes) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, DUMPED_MAX); at += 16) {
    const part = [...bytes.slice(at, at + 16)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  if (bytes.length > DUMPED_MAX) lines.push(`… ${number(bytes.length - DUMPED_MAX)} more bytes; download them to see all`);
  return h("pre.dump", lines.join("\n"));
}
