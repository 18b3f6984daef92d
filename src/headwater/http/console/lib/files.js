// Taking things out of the page: into the clipboard, or into a file.

import { announce, button } from "./dom.js";

const SHOWN_MS = 1_500;

/**
 * Save bytes or text under a name. The type is always that of plain bytes: a browser that shows the
 * file instead of saving it must not run it as a part of this site.
 * @param {string} name
 * @param {BlobPart[]} parts
 */
export function download(name, parts) {
  const url = URL.createObjectURL(new Blob(parts, { type: "application/octet-stream" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name.replace(/[^\w.-]+/g, "_").slice(-100);
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/**
 * A button that copies a text.
 * @param {string} label
 * @param {() => string | Promise<string>} text
 */
export function copyButton(label, text) {
  const made = button(label, async () => {
    const copied = await copy(await text());
    made.textContent = copied ? "Copied" : "Could not copy";
    announce(made.textContent);
    setTimeout(() => (made.textContent = label), SHOWN_MS);
  });
  return made;
}

/**
 * The clipboard is there on https and localhost only; elsewhere the old way still works.
 * @param {string} text
 */
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text).then(() => true, () => byHand(text));
  return byHand(text);
}

/** @param {string} text */
function byHand(text) {
  const field = document.createElement("textarea");
  field.value = text;
  (document.querySelector("dialog[open]") ?? document.body).append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  return copied;
}
