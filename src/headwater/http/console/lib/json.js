// JSON for people: taken apart without losing a digit, coloured, and opened level by level.
//
// JSON.parse would turn 12345678901234567890 into another number and drop a key that is there twice.
// So the text is cut into nodes that keep their own text.

import { h } from "./dom.js";
import { number } from "./format.js";

const DEPTH_MAX = 200;
const CHILDREN_SHOWN = 100;
const BLANKS = /[ \t\n\r]*/y;
const STRING = /"(?:[^"\\]|\\.)*"/y;
const SCALAR = /-?\d[\d.eE+-]*|true|false|null/y;

/**
 * @typedef {{kind: "object" | "array", text: string, children: {name: string | null, node: JsonNode}[]}
 *   | {kind: "string" | "number" | "word", text: string, children?: undefined}} JsonNode
 */

/**
 * @param {string} text
 * @returns {JsonNode | null} null if it is no JSON, or nested too deeply to be shown level by level
 */
export function parse(text) {
  let at = 0;
  /** @param {RegExp} pattern @returns {string} */
  const take = (pattern) => {
    pattern.lastIndex = at;
    const found = pattern.exec(text)?.[0];
    if (found === undefined) throw new SyntaxError("not JSON");
    at += found.length;
    return found;
  };
  const blanks = () => void take(BLANKS);
  /** @param {string} mark @returns {boolean} */
  const skip = (mark) => {
    blanks();
    if (text[at] !== mark) return false;
    at += 1;
    return true;
  };
  /** @param {number} depth @returns {JsonNode} */
  const value = (depth) => {
    blanks();
    const first = text[at];
    if (first === '"') return { kind: "string", text: take(STRING) };
    if (first !== "{" && first !== "[") {
      const scalar = take(SCALAR);
      return { kind: /[a-z]/.test(scalar[0] ?? "") ? "word" : "number", text: scalar };
    }
    if (depth >= DEPTH_MAX) throw new RangeError("nested too deeply");
    const start = at;
    at += 1;
    const children = members(first === "{", depth);
    return { kind: first === "{" ? "object" : "array", text: text.slice(start, at), children };
  };
  /** @param {boolean} named @param {number} depth */
  const members = (named, depth) => {
    /** @type {{name: string | null, node: JsonNode}[]} */
    const found = [];
    const end = named ? "}" : "]";
    if (skip(end)) return found;
    do {
      blanks();
      const name = named ? take(STRING) : null;
      if (named && !skip(":")) throw new SyntaxError("not JSON");
      found.push({ name, node: value(depth + 1) });
    } while (skip(","));
    if (!skip(end)) throw new SyntaxError("not JSON");
    return found;
  };
  try {
    const root = value(0);
    blanks();
    return at === text.length ? root : null;
  } catch {
    return null;
  }
}

/**
 * A text in one line with its colours, cut when it is long.
 * @param {string} text
 * @param {number} most
 */
export function preview(text, most) {
  const shown = text.length > most ? text.slice(0, most) : text;
  const pieces = shown.split(/("(?:[^"\\]|\\.)*"(?:\s*:)?|-?\b\d[\d.eE+-]*\b|\b(?:true|false|null)\b)/);
  const coloured = pieces.map((piece, index) => {
    if (index % 2 === 0) return piece;
    const kind = piece.endsWith(":") ? "name" : piece.startsWith('"') ? "string" : /[a-z]/.test(piece[0] ?? "") ? "word" : "number";
    return h(`span.json-${kind}`, piece);
  });
  return h("code.json", coloured, text.length > most ? "…" : null);
}

/**
 * A tree that opens level by level; what is not open yet is not built yet.
 * @param {JsonNode} node
 * @param {string | null} [name]
 * @param {boolean} [open]
 * @returns {HTMLElement}
 */
export function tree(node, name = null, open = true) {
  const label = name === null ? null : [h("span.json-name", name), ": "];
  if (node.children === undefined) return h("div.json-leaf", label, h(`span.json-${node.kind}`, node.text));
  const { children, kind } = node;
  const [first, last] = kind === "object" ? ["{", "}"] : ["[", "]"];
  const many = kind === "object" ? `${number(children.length)} keys` : `${number(children.length)} items`;
  if (!children.length) return h("div.json-leaf", label, `${first}${last}`);
  const below = h("div.json-below");
  const details = /** @type {HTMLDetailsElement} */ (h("details", h("summary", label, first, h("span.dim", ` ${many} `), last), below));
  const fill = () => {
    if (details.open && !below.firstChild) grow(below, children, 0, kind === "array");
  };
  details.addEventListener("toggle", fill);
  details.open = open;
  fill();
  return details;
}

/**
 * @param {HTMLElement} place
 * @param {{name: string | null, node: JsonNode}[]} children
 * @param {number} from
 * @param {boolean} numbered
 */
function grow(place, children, from, numbered) {
  const until = Math.min(children.length, from + CHILDREN_SHOWN);
  for (let index = from; index < until; index += 1) {
    const child = children[index];
    if (child) place.append(tree(child.node, numbered ? String(index) : child.name, children.length <= 20 && from === 0 && child.node.text.length < 2_000));
  }
  if (until === children.length) return;
  const more = h("button.quiet", { type: "button" }, `${number(children.length - until)} more`);
  more.addEventListener("click", () => {
    more.remove();
    grow(place, children, until, numbered);
  });
  place.append(more);
}

/** @param {string} text @returns {string} the same with line breaks, digits untouched; as it is if it is no JSON */
export function pretty(text) {
  const root = parse(text);
  return root ? indented(root, "") : text;
}

/** @param {JsonNode} node @param {string} indent @returns {string} */
function indented(node, indent) {
  if (node.children === undefined) return node.text;
  const [first, last] = node.kind === "object" ? ["{", "}"] : ["[", "]"];
  if (!node.children.length) return `${first}${last}`;
  const deeper = `${indent}  `;
  const lines = node.children.map(({ name, node: child }) => `${deeper}${name === null ? "" : `${name}: `}${indented(child, deeper)}`);
  return `${first}\n${lines.join(",\n")}\n${indent}${last}`;
}
