"""The JavaScript of the documentation, in a browser, on one server.

A snippet is the middle of a program. What a page around it would have stands before it here, and
after it what it should have done.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from tests.docs.markdown import DOCS, Block, Page
from tests.docs.pasting import DOCUMENTED_PORT
from tests.support import browser as browsers
from tests.support.browser import Browser
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

MODEL = "https://api.openai.com/v1/chat/completions"
PATIENCE_MS = 60_000
AROUND = """
const { Headwater } = await import("/js/headwater.js");
const enough = new Error("enough");
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const until = async (condition) => { while (!condition()) await pause(20); };
const shown = [];
const made = async (name) => {
  const stream = new Headwater().stream(name);
  await stream.create();
  return stream;
};
BEFORE
const snippet = async () => {
SNIPPET
AFTER
};
const late = pause(PATIENCE).then(() => { throw new Error("it never ended"); });
try {
  await Promise.race([snippet(), late]);
} catch (error) {
  if (error !== enough) throw error;
}
late.catch(() => {});
return shown;
"""


class Case(NamedTuple):
    page: str
    start: str
    before: str
    after: str
    shown: list[Any]


CASES = (
    Case(
        *("access", "const events"),
        'await (await made("signed")).append(1); const signedAddress = "/v1/stream/signed?";',
        'events.addEventListener("data", (event) => shown.push(JSON.parse(event.data)));'
        "await until(() => shown.length); events.close();",
        [[1]],
    ),
    Case(
        *("browser", "const ended"),
        'const stream = await made("followed"); await stream.append([{ n: 1 }, { n: 2 }]);'
        "await stream.close(); const show = (messages) => shown.push(...messages);",
        "shown.push(localStorage.offset === (await stream.info()).offset);",
        [{"n": 1}, {"n": 2}, True],
    ),
    Case(
        *("browser", "const producer"),
        'const stream = await made("written");',
        "shown.push(...(await stream.read()).messages); await producer.close?.();",
        [{"text": "hello"}],
    ),
    Case(
        *("browser", "const state = new"),
        'await made("shop"); const render = (products) => shown.splice(0, 1, ...products);',
        "state.close?.();",
        [{"name": "Kettle", "stock": 3}],
    ),
    Case(
        *("browser", "const state = stream.state"),
        'const stream = await made("backed");'
        "const fetch = async (address, { body }) => {"
        "  const { changes, txid } = JSON.parse(body);"
        # The state is through as soon as the change is in the stream, and may not wait for this.
        "  shown.push(address); await stream.append(changes);"
        "  return Response.json({ txid });"
        "};",
        'await state.collection("product").upsert("1", { name: "Pot" });'
        'shown.push(state.collection("product").get("1")); state.close?.();',
        ["/api/products", {"name": "Pot"}],
    ),
    Case(
        *("browser", "const live"),
        'const changes = await made("shop/changes");'
        'const profile = { kind: "state-protocol", touch: { enabled: true } };'
        'const set = await window.fetch("/v1/stream/shop/changes/_profile", { method: "POST",'
        '  headers: { "Content-Type": "application/json" }, body: JSON.stringify({ profile }) });'
        "if (!set.ok) throw new Error(await set.text());"
        "const fetch = async () => Response.json([shown.length]);"
        'const todo = { type: "todos", key: "1", value: { tenant: "acme" },'
        '  headers: { operation: "insert" } };'
        "const render = (todos) => {"
        "  shown.push(todos); if (shown.length > 1) throw enough; void changes.append(todo);"
        "};",
        "",
        [[0], [1]],
    ),
    Case(
        *("browser", "const group"),
        'const stream = await made("meals"); await stream.append(["soup", "pie", "end"]);'
        'await stream.group("kitchen").ensure();'
        'const cook = async (meal) => { if (meal === "end") throw enough; shown.push(meal); };',
        "",
        ["soup", "pie"],
    ),
    Case(
        *("browser", "const response"),
        "const headwater = new Headwater(); const headers = {}; const body = '{}';"
        "const show = (piece) => shown.push(piece);",
        "shown.push(await headwater.response(sessionStorage.answer).text());",
        ["data: hello\n\n", "data: hello\n\n"],
    ),
    Case(
        *("browser", "const headwater = new"),
        "const token = async ({ fresh }) => { shown.push(fresh); return 'key'; };",
        "await headwater.stream('keyed').create();",
        [False],
    ),
    Case(
        *("fastapi", "const { url }"),
        'await (await made("parcels")).append({ order: 1 });'
        'const fetch = async () => Response.json({ url: "/v1/stream/parcels?" });'
        "const show = (messages) => shown.push(messages);",
        "await until(() => shown.length); events.close();",
        [[{"order": 1}]],
    ),
    Case(
        *("responses", "const response"),
        "const answer = await new Headwater().fetch(MODEL, { method: 'POST', body: '{}' });"
        "for await (const piece of answer.pieces()) void piece;"
        "const url = answer.location;",
        "shown.push(text.includes('hello'), next !== null, over);",
        [True, True, True],
    ),
)


def executes(page: str, block: Block) -> bool:
    if block.language == "html":
        return page == "browser"
    return any(case.page == page and block.text.startswith(case.start) for case in CASES)


class Stage(NamedTuple):
    server: ServerProcess
    page: browsers.Page
    model: str


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with (
        Browser() as browser,
        Upstream() as upstream,
        ServerProcess("--memory", "--proxy-allow", "http://127.0.0.1:*") as server,
    ):
        upstream.on("/v1/chat/completions", lambda peer: peer.answer(b"data: hello\n\n"))
        page = browser.open(f"{server.url}/console/")
        yield Stage(server, page, f"http://127.0.0.1:{upstream.port}/v1/chat/completions")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.page}-{case.start}")
def test_a_snippet(case: Case, stage: Stage) -> None:
    (block,) = [
        block
        for block in Page(DOCS / "howto" / f"{case.page}.md").blocks
        if block.language == "js" and block.text.startswith(case.start)
    ]
    script = AROUND.replace("BEFORE", case.before).replace("SNIPPET", block.text)
    script = script.replace("AFTER", case.after).replace("PATIENCE", str(PATIENCE_MS))
    script = script.replace(MODEL, stage.model).replace("MODEL", json.dumps(stage.model))
    assert stage.page.evaluate(script) == case.shown


def test_the_page_that_lists_orders(stage: Stage) -> None:
    (block,) = [b for b in Page(DOCS / "howto" / "browser.md").blocks if b.language == "html"]
    orders = f"{stage.server.url}/v1/stream/orders"
    httpx.put(orders, json=[{"title": "Tea"}, {"title": "Cake"}]).raise_for_status()
    page = stage.page.tab()
    page.run(
        "await page.route('**/orders.html', (route) =>"
        " route.fulfill({ contentType: 'text/html', body: args.body }));"
        "await page.goto(args.url)",
        body=block.text.replace(DOCUMENTED_PORT, f":{stage.server.port}"),
        url=f"{stage.server.url}/orders.html",
    )
    page.wait_for_text("Cake")
    page.close()
