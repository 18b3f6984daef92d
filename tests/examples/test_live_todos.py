"""The example application does what its page says, from the database to the query."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.live_todos.app import STREAM, App
from examples.live_todos.database import Database
from examples.live_todos.relay import Relay
from examples.live_todos.web import PAGE, TENANTS, Application, Handler
from examples.local import free_port, stream_server, web_server
from headwater.client import AsyncHeadwater, MaterializedState, RetryPolicy
from tests.docs.markdown import ROOT
from tests.examples.running import running
from tests.support.browser import Browser
from tests.support.server import ServerProcess

HANG_S = 60.0
PATIENT = RetryPolicy(unreachable_after_s=HANG_S)
OPTIONS = ["--seconds", "2", "--traffic", "0.05", "--port", "0"]


@pytest.fixture
async def app(server: ServerProcess, tmp_path: Path) -> AsyncIterator[App]:
    async with AsyncHeadwater(server.url) as client:
        app = App(client, Database(tmp_path / "todos.db"))
        await app.prepare()
        yield app


async def test_queries_end_up_with_what_the_database_has(app: App) -> None:
    shown: dict[str, Any] = {}
    changed = asyncio.Event()

    async def follow(name: str, results: AsyncIterator[Any]) -> None:
        async for result in results:
            shown[name] = result
            changed.set()

    def final() -> dict[str, Any]:
        lists = {f"open {name}": app.database.todos(name, "open") for name in TENANTS}
        return lists | {f"done {name}": app.database.count(name, "done") for name in TENANTS}

    async with asyncio.timeout(HANG_S):
        tasks = [asyncio.create_task(app.relay.run())]
        for tenant in TENANTS:
            tasks.append(asyncio.create_task(follow(f"open {tenant}", app.follow_open(tenant))))
            tasks.append(asyncio.create_task(follow(f"done {tenant}", app.follow_done(tenant))))
        dice = random.Random(7)
        for _ in range(60):
            await app.change_something(dice)
        while shown != final():
            changed.clear()
            await changed.wait()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_the_stream_has_every_change_once_and_in_order(app: App) -> None:
    """Relays are killed at any moment, and at times there are two of them."""
    dice = random.Random(3)
    expected: list[dict[str, Any]] = []
    for _ in range(40):
        app.change(dice)
        expected += [record for _, records in app.database.unsent()[-1:] for record in records]
    async with asyncio.timeout(HANG_S):
        while app.database.unsent():
            relays = [asyncio.create_task(app.relay.send_some()) for _ in range(2)]
            await asyncio.wait(relays, timeout=dice.random() * 0.02)
            for relay in relays:
                relay.cancel()
            await asyncio.wait(relays)
            for relay in relays:
                with suppress(asyncio.CancelledError):
                    relay.result()
    assert await app.stream.read_json() == expected


async def test_the_stream_tells_the_whole_table(app: App) -> None:
    dice = random.Random(5)
    for _ in range(50):
        app.change(dice)
    while await app.relay.send_some():
        pass
    state = MaterializedState()
    async for _ in app.stream.read().changes(state):
        pass
    rows = {str(row["id"]): row for row in app.database.everything()}
    assert state.of_type("todos") == rows


def test_a_failed_transaction_leaves_no_record_and_no_gap(tmp_path: Path) -> None:
    database = Database(tmp_path / "todos.db")
    with database.transaction() as transaction:
        transaction.add("acme", "one")
    with suppress(RuntimeError), database.transaction() as transaction:
        transaction.add("acme", "two")
        raise RuntimeError("something else went wrong")
    with database.transaction() as transaction:
        transaction.add("acme", "three")
    assert [row["title"] for row in database.everything()] == ["one", "three"]
    assert [number for number, _ in database.unsent()] == [1, 2]
    assert Database(tmp_path / "todos.db").name() == database.name()


async def test_the_page_and_what_it_asks_for(tmp_path: Path) -> None:
    """The page is of another origin than the stream server that the example starts."""
    port = free_port()
    with stream_server("serve", "--data", str(tmp_path / "streams"), page_port=port) as server:
        async with AsyncHeadwater(server, retry=PATIENT) as client:
            app = App(client, Database(tmp_path / "todos.db"))
            await app.prepare()
            await use_the_page(app, server, port)


async def use_the_page(app: App, server: str, port: int) -> None:
    application = Application(app.database, server, STREAM, lambda: None)
    with web_server(partial(Handler, application), port) as url:
        async with httpx.AsyncClient(base_url=url, trust_env=False) as browser:
            assert (await browser.get("/")).text == PAGE.read_text()
            assert (await browser.get("/config")).json()["server"] == server
            added = await browser.post("/todos", json={"tenant": "acme", "title": "Water"})
            todo = added.json()["id"]
            assert (await browser.get("/open?tenant=acme")).json() == [
                {"id": todo, "title": "Water"}
            ]
            await browser.post(f"/todos/{todo}", json={"status": "done"})
            assert (await browser.get("/done?tenant=acme")).json() == 1
            assert (await browser.delete(f"/todos/{todo}")).status_code == 200
            assert (await browser.delete(f"/todos/{todo}")).status_code == 404
            assert (await browser.post("/todos", json={"tenant": "acme"})).status_code == 400
            assert (await browser.get("/nothing")).status_code == 404
            # What the page needs from the other origin, its browser asks for first.
            origin = url.rstrip("/")
            module = await browser.get(f"{server}/js/headwater.js", headers={"Origin": origin})
            assert module.headers["Access-Control-Allow-Origin"] == origin


def test_two_windows_show_each_others_changes(browser: Browser) -> None:
    with running("-m", "examples.live_todos", "--traffic", "0", "--port", "{port}") as url:
        first = browser.open(url)
        first.wait_for_text("Nothing is open.")
        second = first.tab(url)
        second.wait_for_text("Nothing is open.")
        for title in ("Water the plants", "Call the plumber", "Return the ladder"):
            first.fill("#add input", title)
            first.click("#add button")
            second.wait_for_text(title)
        second.run("await page.locator('li', {hasText: 'plumber'}).locator('input').check()")
        for window in (first, second):
            window.wait_for("return document.querySelectorAll('#open li').length === 2")
            window.wait_for("return document.querySelector('#done').textContent === '1'")
        first.picture(PAGE.with_suffix(".png"), width=760, height=470)
        second.click("text=globex")
        second.wait_for_text("Nothing is open.")
        for window in (first, second):
            assert window.errors == []
            window.close()


async def test_the_relay_ends_though_it_is_rung_at_that_moment(tmp_path: Path) -> None:
    async with AsyncHeadwater("http://127.0.0.1:1") as client:
        relay = Relay(client, STREAM, Database(tmp_path / "todos.db"))
        for _ in range(20):
            task = asyncio.create_task(relay.run())
            # Nothing is to be sent, so it waits for the bell.
            await asyncio.sleep(0.02)
            relay.ring()
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=60)
            assert done
            assert task.cancelled()


@pytest.mark.parametrize(
    "command", [["-m", "examples.live_todos"], ["examples/live_todos/app.py"]], ids=["-m", "script"]
)
def test_it_runs(command: list[str]) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            *command,
            *["--seconds", "2", "--traffic", "0.05", "--port", "0"],
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "Open todos of acme" in done.stdout
    assert "changes made here" in done.stdout
