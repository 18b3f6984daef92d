// Building pages. Text always goes in as text, so nothing that a stream holds can become markup.

/** An element: h("td.number", {title: "…"}, "12"). Listeners are attributes that begin with "on". */
export function h(selector, ...rest) {
  const [tag, ...classes] = selector.split(".");
  const element = document.createElement(tag || "div");
  if (classes.length) element.className = classes.join(" ");
  const [first] = rest;
  const isAttributes = first && Object.getPrototypeOf(first) === Object.prototype;
  for (const [name, value] of Object.entries(isAttributes ? rest.shift() : {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...rest.flat(Infinity).filter((child) => child != null && child !== false));
  return element;
}

/** A table. Columns are [title, cell of a row, class]. */
export function table(columns, rows, whenEmpty) {
  if (!rows.length) return h("div.empty", whenEmpty);
  return h(
    "div.scroll",
    h(
      "table",
      h("thead", h("tr", columns.map(([title, , kind]) => h(kind ? `th.${kind}` : "th", title)))),
      h("tbody", rows.map((row) => h("tr", cells(columns, row)))),
    ),
  );
}

const cells = (columns, row) =>
  columns.map(([, cell, kind]) => h(kind ? `td.${kind}` : "td", cell(row)));

/** Names with what they stand for. */
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value != null && value !== "");
  return h("dl", known.map(([name, value]) => [h("dt", name), h("dd", value)]));
}

export function problem(error) {
  return h("div.card.problem", h("h2.bad", error.code ?? "Something went wrong"), h("div", error.message));
}

/** Ask in a dialog. Resolves to the form's fields, or to null if the person thinks better of it. */
export function ask(title, fields, action, { danger = false } = {}) {
  const dialog = document.getElementById("dialog");
  return new Promise((resolve) => {
    let answer = null;
    const form = h(
      "form",
      {
        onsubmit: (event) => {
          event.preventDefault();
          answer = Object.fromEntries(new FormData(form));
          dialog.close();
        },
      },
      h("h2", title),
      fields,
      h(
        "div.row",
        h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
        h(danger ? "button.danger" : "button.first", action),
      ),
    );
    dialog.replaceChildren(form);
    dialog.onclose = () => resolve(answer);
    dialog.showModal();
  });
}
