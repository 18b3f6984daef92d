// Signing in, and what the key or token may do.

import { facts, h, input } from "../lib/dom.js";
import { instant } from "../lib/format.js";
import { caller, signIn } from "../lib/session.js";

/**
 * @param {HTMLElement} root
 * @param {() => unknown} then
 * @param {string} why what ended the last visit, if something did
 */
export function signInPage(root, then, why) {
  const field = input({ name: "token", type: "password", autocomplete: "off", required: true, "aria-describedby": "sign-in-problem" });
  const trouble = h("p.bad", { id: "sign-in-problem", role: "alert" }, why);
  const submit = h("button.first", "Sign in");
  const enter = async (/** @type {Event} */ event) => {
    event.preventDefault();
    trouble.textContent = "";
    submit.toggleAttribute("disabled", true);
    try {
      await signIn(field.value.trim());
      await then();
    } catch (error) {
      trouble.textContent = /** @type {Error} */ (error).message;
      field.select();
    } finally {
      submit.toggleAttribute("disabled", false);
    }
  };
  root.replaceChildren(
    h(
      "form.card.sign-in",
      { onsubmit: enter },
      h("h1", "Sign in"),
      h("p", "This server has access control. Enter a key (", h("code", "hw_…"), ") or a token. It stays in this tab and is forgotten when you close it."),
      h("label", "Key or token", field),
      trouble,
      submit,
      h("p.dim", "Keys are made where the server runs: ", h("code", "headwater keys create"), "."),
    ),
  );
  field.focus();
}

/** @type {import("../main.js").Page} */
export async function account(root) {
  const you = caller();
  if (!you?.access) return root.replaceChildren(h("h1", "You"), h("div.card", "This server has no access control: whoever can connect may do everything."));
  const patterns = Object.entries(you.grants ?? {});
  root.replaceChildren(
    h("h1", "You"),
    h(
      "div.card",
      facts([
        ["Name", you.name],
        ["Valid until", you.expires_at_ms ? instant(you.expires_at_ms) : "it is revoked"],
        ["The whole server", you.administers ? "may administer it" : "may not administer it"],
        ...patterns.map(([permission, streams]) => /** @type {[string, Node]} */ ([`May ${permission}`, h("span", streams.map((one) => [h("code", one), " "]))])),
      ]),
      patterns.length ? null : h("p.warn", "It may do nothing."),
    ),
  );
}
