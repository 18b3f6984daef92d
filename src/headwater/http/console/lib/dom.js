// Building pages. Text always goes in as text, so nothing that a stream holds can become markup.

/** @typedef {Node | string | number | false | null | undefined} Piece */
/** @typedef {Piece | readonly any[]} Content */

/**
 * An element: h("td.number", {title: "…"}, "12"). Listeners are attributes that begin with "on".
 * @param {string} selector
 * @param {...(Record<string, any> | Content)} rest
 * @returns {HTMLElement}
 */
export function h(selector, ...rest) {
  const [tag, ...classes] = selector.split(".");
  const element = document.createElement(tag || "div");
  if (classes.length) element.className = classes.join(" ");
  const [first] = rest;
  if (first && Object.getPrototypeOf(first) === Object.prototype) {
    rest.shift();
    for (const [name, value] of Object.entries(first)) setAttribute(element, name, value);
  }
  const children = /** @type {any[]} */ (rest).flat(Infinity);
  element.append(...children.filter((child) => child != null && child !== false).map(asNode));
  return element;
}

/** @param {Node | string | number} child */
const asNode = (child) => (typeof child === "number" ? String(child) : child);

/**
 * @param {HTMLElement} element
 * @param {string} name
 * @param {any} value
 */
function setAttribute(element, name, value) {
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (value === true) element.setAttribute(name, "");
  else if (value !== false && value != null) element.setAttribute(name, value);
}

/**
 * @param {Record<string, any>} attributes
 * @returns {HTMLInputElement}
 */
export const input = (attributes) => /** @type {HTMLInputElement} */ (h("input", attributes));

/**
 * @param {Record<string, any>} attributes
 * @param {[string, string][]} options value and what people read
 * @returns {HTMLSelectElement}
 */
export const select = (attributes, options) =>
  /** @type {HTMLSelectElement} */ (h("select", attributes, options.map(([value, text]) => h("option", { value }, text))));

/**
 * @param {string} text
 * @param {(event: MouseEvent) => unknown} onclick
 * @param {{kind?: "first" | "danger" | "quiet", title?: string}} [options]
 * @returns {HTMLButtonElement}
 */
export const button = (text, onclick, { kind, title } = {}) =>
  /** @type {HTMLButtonElement} */ (h(kind ? `button.${kind}` : "button", { type: "button", onclick, title }, text));

/**
 * @template T
 * @typedef {[title: string, cell: (row: T) => Content, kind?: string]} Column
 */

/**
 * A table of rows, or what to say when there are none.
 * @template T
 * @param {string} caption for those who cannot see where the table is
 * @param {Column<T>[]} columns
 * @param {T[]} rows
 * @param {Content} whenEmpty
 */
export function table(caption, columns, rows, whenEmpty) {
  if (!rows.length) return h("div.empty", whenEmpty);
  const heads = columns.map(([title, , kind]) => h(kind ? `th.${kind}` : "th", { scope: "col" }, title || h("span.hidden", "Actions")));
  const lines = rows.map((row) => h("tr", columns.map(([, cell, kind]) => h(kind ? `td.${kind}` : "td", cell(row)))));
  return scrolled(caption, h("table", h("caption.hidden", caption), h("thead", h("tr", heads)), h("tbody", lines)));
}

/**
 * What may be wider or longer than its place, and can be scrolled with the keyboard too.
 * @param {string} label
 * @param {Content} content
 */
export const scrolled = (label, content) => h("div.scroll", { tabindex: "0", role: "group", "aria-label": label }, content);

/**
 * Names with what they stand for; what is not known is left out.
 * @param {[string, Content][]} pairs
 */
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value != null && value !== "" && value !== false);
  return h("dl", known.map(([name, value]) => [h("dt", name), h("dd", value)]));
}

/** @param {any} error */
export function problem(error) {
  return h("div.card.problem", { role: "alert" }, h("h2.bad", error.code ?? "Something went wrong"), h("div", error.message));
}

/**
 * A box with a heading, and what can be done in it at the right.
 * @param {string} title
 * @param {Content} content
 * @param {Content} [actions]
 */
export const card = (title, content, actions) =>
  h("section.card", { "aria-label": title }, h("div.row", h("h2", title), actions ? h("span.push.row", actions) : null), content);

/** @returns {HTMLDialogElement} */
const dialogOfPage = () => /** @type {HTMLDialogElement} */ (document.getElementById("dialog"));

/**
 * Ask in a dialog. Resolves to the form's fields, or to null if the person thinks better of it.
 * @param {string} title
 * @param {Content} fields
 * @param {string} action
 * @param {{danger?: boolean}} [options]
 * @returns {Promise<Record<string, string> | null>}
 */
export function ask(title, fields, action, { danger = false } = {}) {
  const dialog = dialogOfPage();
  return new Promise((resolve) => {
    /** @type {Record<string, string> | null} */
    let answer = null;
    const form = /** @type {HTMLFormElement} */ (h(
      "form",
      {
        onsubmit: (/** @type {Event} */ event) => {
          event.preventDefault();
          answer = /** @type {Record<string, string>} */ (Object.fromEntries(new FormData(form)));
          dialog.close();
        },
      },
      h("h2", { id: "dialog-title" }, title),
      fields,
      h("div.row", button("Cancel", () => dialog.close()), h(danger ? "button.danger" : "button.first", action)),
    ));
    dialog.replaceChildren(form);
    dialog.onclose = () => resolve(answer);
    dialog.showModal();
  });
}

/**
 * Tell something in a dialog.
 * @param {string} title
 * @param {Content} content
 */
export function tell(title, content) {
  const dialog = dialogOfPage();
  dialog.onclose = null;
  dialog.replaceChildren(h("div.told", h("h2", { id: "dialog-title" }, title), content, h("div.row.end", button("Close", () => dialog.close(), { kind: "first" }))));
  dialog.showModal();
}

/**
 * A place for problems, and a way to run actions so that theirs are shown there.
 * @returns {{place: HTMLElement, run: (action: () => unknown) => Promise<void>}}
 */
export function runner() {
  const place = h("div");
  const run = async (/** @type {() => unknown} */ action) => {
    place.replaceChildren();
    try {
      await action();
    } catch (error) {
      if (!(error instanceof DOMException && error.name === "AbortError")) place.replaceChildren(problem(error));
    }
  };
  return { place, run };
}

/**
 * Say something to people who listen rather than look.
 * @param {string} text
 */
export function announce(text) {
  const place = document.getElementById("announcer");
  if (place) place.textContent = text;
}
