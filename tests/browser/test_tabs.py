"""The module in a real browser: tabs share one connection, and nothing is lost or repeated."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import StartServer
from tests.support.browser import PATIENCE_S, Browser, Page
from tests.support.server import ServerProcess

FOLLOW = """
    const { Headwater } = await import('/js/headwater.js');
    window.headwater ??= new Headwater(args.options);
    window.seen ??= {};
    window.failed ??= {};
    for (const name of args.names) {
        seen[name] = [];
        (async () => {
            const batches = headwater.stream(name).follow();
            for await (const batch of batches) seen[name].push(...batch.messages);
        })().catch((error) => (failed[name] = error.status));
    }
"""
NAMES = ["a", "b", "c", "d", "e", "f", "g", "h"]


class Streams:
    """The server's side: streams, and who reads them."""

    def __init__(self, server: ServerProcess) -> None:
        self._client = httpx.Client(base_url=f"{server.url}/v1/stream/", trust_env=False)
        for name in NAMES:
            self._client.put(name, headers={"Content-Type": "application/json"}).raise_for_status()

    def append(self, name: str, *messages: int) -> None:
        self._client.post(name, json=list(messages)).raise_for_status()

    def readers(self, name: str) -> int:
        return int(self._client.get(f"{name}/_details").json()["readers"])

    def wait_for_readers(self, name: str, count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.readers(name) != count:
            assert time.monotonic() < deadline, f"{name} has {self.readers(name)} readers"
            time.sleep(0.02)

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def server(start_server: StartServer, tmp_path: Path) -> ServerProcess:
    return start_server("--data", str(tmp_path / "data"))


@pytest.fixture
def streams(server: ServerProcess) -> Iterator[Streams]:
    streams = Streams(server)
    yield streams
    streams.close()


def open_tabs(browser: Browser, server: ServerProcess, count: int) -> list[Page]:
    first = browser.open(f"{server.url}/healthz")
    return [first, *(first.tab(f"{server.url}/healthz") for _ in range(count - 1))]


def saw(page: Page, name: str, messages: list[int]) -> None:
    page.wait_for(
        "return JSON.stringify(seen[args.name]) === JSON.stringify(args.messages)",
        name=name,
        messages=messages,
    )


def close(tabs: list[Page]) -> None:
    for tab in tabs:
        assert tab.errors == []
        tab.close()


def test_eight_tabs_follow_eight_streams_over_one_connection(
    browser: Browser, server: ServerProcess, streams: Streams
) -> None:
    """Browsers allow six to an address: without sharing, this page would not even load."""
    for name in NAMES:
        streams.append(name, 0)
    tabs = open_tabs(browser, server, 8)
    for tab in tabs:
        tab.evaluate(FOLLOW, names=NAMES)
    for tab in tabs:
        saw(tab, "h", [0])
    for number in range(1, 4):
        for name in NAMES:
            streams.append(name, number)
    for tab in tabs:
        for name in NAMES:
            saw(tab, name, [0, 1, 2, 3])
    assert [streams.readers(name) for name in NAMES] == [1] * 8
    leaders = [tab.evaluate("return headwater.isLeader") for tab in tabs]
    assert leaders.count(True) == 1
    # The leader goes: another takes over, and nothing is lost or repeated.
    tabs.pop(leaders.index(True)).close()
    streams.append("a", 4)
    for tab in tabs:
        saw(tab, "a", [0, 1, 2, 3, 4])
    assert [tab.evaluate("return headwater.isLeader") for tab in tabs].count(True) == 1
    streams.wait_for_readers("a", 1)
    close(tabs)
    streams.wait_for_readers("a", 0)


def test_tabs_outlive_kill_9_of_the_server(
    browser: Browser, server: ServerProcess, streams: Streams
) -> None:
    tabs = open_tabs(browser, server, 2)
    for tab in tabs:
        tab.evaluate(FOLLOW, names=["a"])
    streams.append("a", 1)
    for tab in tabs:
        saw(tab, "a", [1])
    server.kill()
    server.start()
    streams.append("a", 2)
    for tab in tabs:
        saw(tab, "a", [1, 2])
    close(tabs)


def test_a_deleted_stream_is_told_to_every_tab_and_others_go_on(
    browser: Browser, server: ServerProcess, streams: Streams
) -> None:
    tabs = open_tabs(browser, server, 2)
    for tab in tabs:
        tab.evaluate(FOLLOW, names=["a", "b"])
    streams.append("b", 1)
    for tab in tabs:
        saw(tab, "b", [1])
    httpx.delete(server.stream_url("a")).raise_for_status()
    for tab in tabs:
        tab.wait_for("return failed.a === 404")
    streams.append("b", 2)
    for tab in tabs:
        saw(tab, "b", [1, 2])
    close(tabs)


def test_what_no_tab_follows_any_more_is_left(
    browser: Browser, server: ServerProcess, streams: Streams
) -> None:
    keep, leave = open_tabs(browser, server, 2)
    keep.evaluate(FOLLOW, names=["a"])
    leave.evaluate(FOLLOW, names=["b"])
    streams.append("b", 1)
    saw(leave, "b", [1])
    streams.wait_for_readers("b", 1)
    leave.run("await page.goto('about:blank')")
    # The leader knows of it once it has had the lock of that tab.
    keep.wait_for("""
        const { held, pending } = await navigator.locks.query();
        return held.length === 2 && !pending.length;
    """)
    streams.append("a", 1)
    saw(keep, "a", [1])
    # The connection is opened anew when another stream joins it, and without those that left.
    keep.evaluate(FOLLOW, names=["c"])
    streams.wait_for_readers("c", 1)
    streams.wait_for_readers("b", 0)
    close([keep, leave])


def test_a_tab_whose_lock_comes_late_is_not_taken_for_gone(
    browser: Browser, server: ServerProcess, streams: Streams
) -> None:
    leader, late = open_tabs(browser, server, 2)
    leader.evaluate(FOLLOW, names=["a"])
    streams.wait_for_readers("a", 1)
    late.evaluate("""
        const request = navigator.locks.request.bind(navigator.locks);
        let late = new Promise((resolve) => setTimeout(resolve, 1000));
        navigator.locks.request = (...wanted) => {
            const before = late;
            late = undefined;
            return Promise.resolve(before).then(() => request(...wanted));
        };
    """)
    late.evaluate(FOLLOW, names=["b"])
    streams.wait_for_readers("b", 1)
    streams.append("b", 1)
    saw(late, "b", [1])
    close([leader, late])


def test_tabs_of_different_callers_share_nothing(
    browser: Browser, server: ServerProcess, streams: Streams
) -> None:
    tabs = open_tabs(browser, server, 3)
    for tab, key in zip(tabs, ("one", "two", "two"), strict=True):
        options = {"headers": {"X-Request-Id": key}}
        tab.evaluate(FOLLOW, names=["a"], options=options)
    streams.append("a", 1)
    for tab in tabs:
        saw(tab, "a", [1])
    streams.wait_for_readers("a", 2)
    close(tabs)


def test_writes_show_in_every_tab_and_live_queries_run_again(
    browser: Browser, server: ServerProcess, streams: Streams
) -> None:
    tabs = open_tabs(browser, server, 3)
    tabs[0].evaluate(
        "const { Headwater } = await import('/js/headwater.js');"
        "await new Headwater().stream('a').live().enable()"
    )
    for tab in tabs:
        tab.evaluate("""
            const { Headwater } = await import('/js/headwater.js');
            window.headwater = new Headwater();
            const stream = headwater.stream('a');
            window.state = stream.state();
            window.rows = state.collection('todos');
            window.counts = [];
            await state.ready;
            const open = () => rows.values.filter((row) => row.status === 'open').length;
            const options = {entity: 'todos', where: {status: 'open'}, membershipOnly: true};
            (async () => {
                for await (const count of stream.live().query(open, options)) counts.push(count);
            })();
        """)
    for number, tab in enumerate(tabs):
        tab.evaluate("await rows.insert(String(args.number), {status: 'open'})", number=number)
    for tab in tabs:
        tab.wait_for("return rows.size === 3 && counts.length > 1")
    tabs[1].evaluate("await rows.delete('0')")
    for tab in tabs:
        tab.wait_for("return rows.size === 2 && state.pending === 0")
    close(tabs)
