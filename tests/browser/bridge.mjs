// Drives a browser for `tests/support/browser.py`: one JSON object per line comes in, one goes out.
//
//   {"do": "open", "beside": 1?}                      → a page's number; beside: a tab of the same browser
//   {"do": "node", "page": 1, "script", "args"}       → runs the script here, with Playwright's `page`
//   {"do": "page", "page": 1, "script", "args"}       → runs it in the page
//   {"do": "wait", "page": 1, "script", "args", "ms"} → runs it in the page until it returns something true
//   {"do": "errors", "page": 1}                       → what the page threw and nobody caught
//   {"do": "close", "page": 1}
//
// Answers are {"value"} or {"error"}. It ends when its input does, and takes the browser with it.

import { createInterface } from "node:readline";
import { chromium } from "playwright-core";
import { findChromium, FLAGS } from "./chromium.mjs";

const AsyncFunction = (async () => {}).constructor;
const POLL_MS = 25;
// A machine that is busy may take longer over a page than the usual half a minute.
const PATIENCE_MS = 60_000;
const pages = new Map();
let last = 0;
let browser;

const commands = {
  async open({ beside }) {
    const context = beside ? at(beside).page.context() : await browser.newContext();
    context.setDefaultTimeout(PATIENCE_MS);
    const page = await context.newPage();
    const errors = [];
    page.on("pageerror", (error) => errors.push(String(error.stack ?? error)));
    pages.set(++last, { page, errors });
    return last;
  },
  node: ({ page, script, args }) =>
    new AsyncFunction("page", "context", "args", script)(at(page).page, at(page).page.context(), args),
  page: ({ page, script, args }) => inPage(at(page).page, script, args),
  async wait({ page, script, args, ms }) {
    const deadline = Date.now() + ms;
    for (let seen; ; ) {
      try {
        seen = await inPage(at(page).page, script, args);
        if (seen) return seen;
      } catch (error) {
        // While a page goes from one document to the next there is nowhere to run anything.
        if (!/context was destroyed|navigat/i.test(error.message)) throw error;
      }
      if (Date.now() > deadline) throw new Error(await whatIsThere(at(page), script, seen));
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  },
  errors: ({ page }) => at(page).errors,
  async close({ page }) {
    const { page: closing } = at(page);
    pages.delete(page);
    const context = closing.context();
    await closing.close();
    if (!context.pages().length) await context.close();
  },
};

function at(number) {
  const entry = pages.get(number);
  if (!entry) throw new Error("the page is closed");
  return entry;
}

// As an expression over the debugging protocol, which a page's content security policy does not forbid.
const inPage = (page, script, args) =>
  page.evaluate(`(async (args) => { ${script}\n})(${JSON.stringify(args ?? {})})`);

async function whatIsThere({ page, errors }, script, seen) {
  const text = await page.evaluate("document.body?.innerText ?? ''").catch(() => "");
  return `never true: ${script}\nlast: ${JSON.stringify(seen)}\nerrors: ${errors.join("\n")}\nthe page says: ${text.slice(0, 2000)}`;
}

const answer = (object) => process.stdout.write(`${JSON.stringify(object)}\n`);

try {
  const { program, env } = await findChromium();
  browser = await chromium.launch({ executablePath: program, env, args: FLAGS, timeout: PATIENCE_MS });
  answer({ value: browser.version() });
} catch (error) {
  answer({ error: String(error.message ?? error).split("\n")[0] });
  process.exit(1);
}
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  try {
    answer({ value: (await commands[command.do](command)) ?? null });
  } catch (error) {
    answer({ error: String(error.stack ?? error) });
  }
}
await browser.close();
