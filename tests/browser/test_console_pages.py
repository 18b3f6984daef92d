"""Every page of the console: it shows what it is about, shuts nobody out, and fits any screen."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.browser.console import NARROW, TOUR, Console, Shop
from tests.http.client import eventually
from tests.support.browser import Browser
from tests.support.server import free_port

MINUTE = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)
ASK = "SELECT window_start, messages FROM rollup ORDER BY window_start"

# What each page shows when it is there, and under which name it is in the tour.
PAGES = {
    "overview": ("#/", "Messages", "Time of a commit", "Engine", "shop/orders"),
    "streams": ("#/streams", "shop/customers", "application/octet-stream"),
    "messages": ("#/stream/shop%2Forders", "the last 200, newest first", "every order of the shop"),
    "state": ("#/stream/shop%2Fcustomers/state", "c003", "after 31 messages"),
    "stream-groups": ("#/stream/shop%2Forders/groups", "kitchen", "shop/failed"),
    "live": ("#/stream/shop%2Fcustomers/live", "name (string)", "Templates followed"),
    "snapshots": ("#/stream/shop%2Fcustomers/snapshots", "application/json", "Delete"),
    "stream-storage": ("#/stream/shop%2Forders/storage", "the database"),
    "about": ("#/stream/shop%2Forders/about", "Next offset", "Live readers now"),
    "groups": ("#/groups", "kitchen", "shop/orders"),
    "group": ("#/group/shop%2Forders/kitchen", "Dead letters", "max_deliveries", "ann"),
    "subscriptions": ("#/subscriptions", "mail", "shop/*"),
    "subscription": ("#/subscription/mail", "pull-wake", "shop/orders"),
    "live-queries": ("#/live", "shop/customers"),
    "storage": ("#/storage", "shop/gone", "Undelete", "sealing"),
    "pipelines": ("#/pipelines", "archive", "3 (2 s)", "rollup", "the disk said no"),
    "sql": (f"#/sql?ask={ASK.replace(' ', '+')}", "5 rows", "window_start", "Chart"),
    "account": ("#/account", "no access control"),
    "nowhere": ("#/nowhere", "There is no such page."),
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with tables beside it."""
    root = tmp_path_factory.mktemp("console")
    windows = [MINUTE + timedelta(minutes=at) for at in range(5)]
    counts = {"window_start": windows, "messages": [3, 9, 4, 12, 7], "stream": ["shop/orders"] * 5}
    write_deltalake(root / "lake" / "rollup", pa.table(counts))
    items = {"item": ["tea", "cake", "bread"], "sold": [12, 7, 3]}
    write_deltalake(root / "lake" / "archive" / "shop.items", pa.table(items))
    port = free_port()
    command = [sys.executable, "-m", "headwater", "up", "--no-pipelines", "--port", str(port)]
    places = ["--data", str(root / "data"), "--lake", str(root / "lake")]
    process = subprocess.Popen([*command, *places], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert b"listens on" in process.stdout.readline()
        address = f"http://127.0.0.1:{port}"
        shop = Shop(address)
        shop.open()
        report = {"name": "archive-all", "kind": "archive", "batch": 7, "rows": 500}
        speed = {"rows_per_s": 250.0, "batch_ms": 2000, "lag_messages": 3, "lag_s": 2.0}
        shop.post(f"{address}/v1/pipelines", report | speed | {"error": "the disk said no"})
        yield address
        shop.http.close()
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def console(browser: Browser, url: str) -> Iterator[Console]:
    opened = Console(browser, url)
    yield opened
    opened.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page(console: Console, name: str) -> None:
    place, *texts = PAGES[name]
    console.show(place, *texts)
    console.check()
    assert console.page.evaluate("return document.title").endswith("Headwater")
    if name != "overview":
        console.picture(name)
    # The same in the dark and on a telephone.
    console.show(place, *texts, size=NARROW, dark=True)
    console.check()


EVIL = (
    "javascript:stolen=1;",
    '"><x-evil onclick=stolen=1><img src=x onerror=globalThis.stolen=1>',
)
# Every text that the server says: a link if it were one, and markup if it were parsed. What the
# console asks with next is taken for what it was before.
DISTORT = """
  const [before, after] = args.evil;
  const marks = args.evil.map(encodeURIComponent);
  const asked = (url) => marks.reduce((to, mark) => to.replaceAll(mark, ""), url);
  const kept = /offset|tail|kind|_at$|created|profile/;
  const evil = (value, name) => {
    if (Array.isArray(value)) return value.map((one) => evil(one, name));
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, evil(one, key)]));
    if (typeof value !== "string" || kept.test(name)) return value;
    return before + value + after;
  };
  const line = (text) => {
    try { return JSON.stringify(evil(JSON.parse(text), "")); } catch { return text; }
  };
  await context.addInitScript(() => {
    globalThis.refused = [];
    addEventListener("securitypolicyviolation", (event) => refused.push(event.violatedDirective));
  });
  await page.route(/\\/(v1|readyz|openapi)/, async (route) => {
    try {
      const response = await route.fetch({ url: asked(route.request().url()) });
      const text = await response.text();
      const lines = response.headers()["content-type"]?.includes("ndjson");
      const body = lines ? text.split("\\n").map(line).join("\\n") : line(text);
      await route.fulfill({ response, body });
    } catch { await route.abort().catch(() => {}); }
  });
"""
# What could only be there if something was parsed, ran, or leads out of the page.
PARSED = """
  const all = [...document.querySelectorAll("*")];
  const listens = /^on/;
  const known = /^(#|icon.svg$|style.css$|main.js$|blob:)/;
  const foreign = "x-evil, main script, main iframe, main img:not(.picture)";
  const leads = (one) => one.getAttribute("href") ?? one.getAttribute("src");
  return {
    evil: all.filter((one) => one.matches(foreign)).length,
    links: all.map(leads).filter((to) => to !== null && !known.test(to)),
    listening: all.flatMap((one) => one.getAttributeNames().filter((name) => listens.test(name))),
    stolen: globalThis.stolen ?? null,
    refused,
  };
"""


@pytest.mark.parametrize("name", PAGES)
def test_nothing_that_a_server_says_becomes_a_part_of_the_page(
    browser: Browser, url: str, name: str
) -> None:
    console = Console(browser, url)
    console.page.run(DISTORT, evil=EVIL)
    console.show(PAGES[name][0])
    text = {"account": "You", "nowhere": "Not found"}.get(name, "<x-evil onclick=")
    shown = "return document.querySelector('main').innerText.includes(args.text)"
    console.page.wait_for(shown, text=text)
    console.page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    nothing: dict[str, object] = {"evil": 0, "links": [], "listening": [], "stolen": None}
    assert console.page.evaluate(PARSED) == nothing | {"refused": []}
    console.page.close()


def cluster_of(*nodes: int, counter: int) -> str:
    """What a cluster says of itself; four shards are shared out among its nodes."""
    address, shards = "http://10.0.0.{}:4437", range(4)
    listed = [
        {
            "id": node,
            "name": f"n{node}",
            "address": address.format(node),
            "epoch": 1,
            "lease_ms": 60_000,
            "draining": node == 2,
            "labels": ["region=eu"],
            "shards": sum(nodes[shard % len(nodes)] == node for shard in shards),
        }
        for node in nodes
    ]
    owned = [
        {"id": shard, "owner": nodes[shard % len(nodes)], "epoch": 1, "label": None}
        for shard in shards
    ]
    leases = [{"node": node, "lease_ms": 60_000, "counter": counter} for node in nodes]
    bindings = [{"prefix": "eu", "label": "region=eu", "shards": 1}]
    found = {"node": 1, "nodes": listed, "shards": owned, "bindings": bindings, "leases": leases}
    return json.dumps(found)


def test_a_page_of_nodes_where_there_are_some(console: Console) -> None:
    console.show("#/", "Overview")
    assert not console.has("Cluster")

    def answer(body: str) -> None:
        console.page.run(
            "await page.unroute('**/v1/cluster');"
            "await page.route('**/v1/cluster', (route) => route.fulfill({body: args.body,"
            " contentType: 'application/json'}))",
            body=body,
        )

    answer(cluster_of(1, 2, counter=1))
    console.show("#/cluster", "2 of 2 nodes running", "all 4 shards have an owner", "10.0.0.2:4437")
    assert console.has("Cluster")
    console.show("#/cluster", "this page", "draining", "region=eu", "Nothing yet.")
    console.check()
    # One that is gone is in no answer any more, but still on the page.
    answer(cluster_of(1, counter=2))
    for text in (
        "1 of 2 nodes running",
        "10.0.0.2:4437 is gone",
        "10.0.0.1:4437 has 2 more shards",
    ):
        console.page.wait_for("return document.body.innerText.includes(args.text)", text=text)
    console.check()
    answer(cluster_of(1, 2, counter=3))
    text = "10.0.0.2:4437 joined"
    console.page.wait_for("return document.body.innerText.includes(args.text)", text=text)
    console.page.run("await page.unroute('**/v1/cluster')")
    console.show("#/cluster", "not a node of a cluster")


def test_charts_tell_their_points(console: Console) -> None:
    if TOUR is not None:
        shop = Shop(console.url)
        shop.put("shop/events")
        shop.bustle(75)
        shop.http.close()
    console.show("#/", "Requests")
    described = "return document.querySelector('.figure svg').getAttribute('aria-label')"
    console.page.wait_for(f"{described.replace('return', 'return (')}).includes('from')")
    console.page.run("await page.locator('.figure svg').first().focus()")
    console.keys("ArrowLeft")
    shown = "return document.querySelector('.figure .scale').textContent"
    assert re.match(r"\d\d:\d\d:\d\d · \d\d:\d\d:\d\d UTC", console.page.evaluate(shown))
    said = "return document.querySelector('.figure svg').getAttribute('aria-valuetext')"
    assert console.page.evaluate(said).endswith("UTC")
    console.keys("Home")
    first = "return document.querySelector('.figure svg').getAttribute('aria-valuenow')"
    assert console.page.evaluate(first) == "0"
    console.press("5 min")
    console.picture("overview")
    pressed = "return document.querySelector('.choice [aria-pressed=true]').textContent"
    assert console.page.evaluate(pressed) == "5 min"


def test_bars_by_name(console: Console) -> None:
    console.show("#/sql?ask=SELECT+*+FROM+items", "cake", "Chart")
    assert console.page.evaluate("return document.querySelectorAll('meter').length") == 3
    console.check()


def test_a_pipeline_is_told_what_to_do(console: Console) -> None:
    console.show("#/pipelines", "the disk said no", "failing")
    console.press("Pause")
    console.press("Reset")
    console.sees("No table takes in a message twice")
    console.check()
    console.choose("Read on from", "latest")
    console.press("Reset it")
    orders = [{"pipeline": "archive-all", "do": "pause"}]
    orders += [{"pipeline": "archive-all", "do": "reset", "to": "latest"}]
    shop = Shop(console.url)
    eventually(lambda: shop.http.get("pipelines/control?offset=-1").json() == orders)
    shop.http.close()


def test_a_question_that_is_refused(console: Console) -> None:
    console.show("#/sql", "Question")
    console.write("Question in SQL", "DROP TABLE rollup")
    console.keys("Control+Enter")
    console.sees("only questions are answered")
    console.write("Question in SQL", "SELECT 41 + 1 AS answer")
    console.press("Ask")
    console.sees("42")


def test_the_keyboard_goes_everywhere(console: Console) -> None:
    console.show("#/", "Overview")
    console.go("s", "#/streams")
    console.sees("New stream")
    console.sees("shop/orders")
    console.keys("/")
    console.page.wait_for("return document.activeElement?.type === 'search'")
    console.page.run("await page.keyboard.type('shop/p')")
    console.page.wait_for("return document.querySelectorAll('tbody tr').length === 1")
    console.keys("Escape", "?")
    console.sees("Search on this page")
    console.check()
    console.press("Close")
    console.go("g", "#/groups")
    console.sees("kitchen")
