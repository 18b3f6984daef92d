"""The demo feed: small, sensible, and the same however often it is started."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headwater.cli.serving import demo
from headwater.client import AsyncHeadwater, Headwater
from tests.cli.conftest import Run
from tests.conftest import StartServer

TICKS = st.integers(0, demo.TICKS_MAX)


def test_sales_are_numbered() -> None:
    numbers = [sale["sale"] for tick in range(50) for sale in demo.sales_at(tick)]
    assert numbers == [*range(1, len(numbers) + 1)]
    assert len(demo.sales_at(0)) >= 100


@given(TICKS)
def test_a_tick_is_always_the_same_and_never_empty(tick: int) -> None:
    for happening in (demo.sales_at, demo.changes_at):
        assert happening(tick) == happening(tick) != []


def test_customers_come_before_they_change_and_go() -> None:
    present: set[str] = set()
    for tick in range(200):
        for change in demo.changes_at(tick):
            match change["headers"]["operation"]:
                case "insert":
                    assert change["key"] not in present
                    present.add(change["key"])
                case "update":
                    assert change["key"] in present
                case "delete":
                    present.remove(change["key"])
        assert len(present) == 40
        assert {sale["customer"] for sale in demo.sales_at(tick)} <= present


def expected(ticks: int) -> tuple[list[Any], list[Any]]:
    sales = [one for tick in range(ticks) for one in demo.sales_at(tick)]
    return sales, [one for tick in range(ticks) for one in demo.changes_at(tick)]


def stored(url: str) -> tuple[list[Any], list[Any]]:
    with Headwater(url) as client:
        sales = client.stream(demo.SALES).read_json()
        return sales, client.stream(demo.CUSTOMERS).read_json()


def run_feed(url: str, ticks: int) -> list[str]:
    said: list[str] = []

    async def run() -> None:
        async with AsyncHeadwater(url) as client:
            await demo.feed(client, said.append, tick_s=0, ticks=ticks)

    asyncio.run(run())
    return said


def test_it_goes_on_where_it_stopped(start_server: StartServer) -> None:
    url = start_server("--memory").url
    assert run_feed(url, 3) == [
        "the demo feed has ended: it is a small one; start again for more of it"
    ]
    assert stored(url) == expected(4)
    # Somebody else's messages are none of its business.
    with Headwater(url) as client:
        client.stream(demo.SALES).append({"sale": "mine"})
    run_feed(url, 2)
    sales, changes = stored(url)
    sales.remove({"sale": "mine"})
    assert (sales, changes) == expected(6)


def test_there_is_an_end(start_server: StartServer, monkeypatch: Any) -> None:
    url = start_server("--memory").url
    monkeypatch.setattr(demo, "TICKS_MAX", 3)
    run_feed(url, 10)
    run_feed(url, 10)
    assert stored(url) == expected(3)


def test_a_stream_that_takes_no_more(start_server: StartServer) -> None:
    url = start_server("--memory").url
    run_feed(url, 1)
    with Headwater(url) as client:
        client.stream(demo.SALES).close()
    said = run_feed(url, 1)
    assert len(said) == 2
    assert said[0].startswith("the demo feed has ended: demo/sales: ")


def test_the_command_writes_and_goes_on_where_it_stopped(run: Run, client: Headwater) -> None:
    for _ in range(2):
        run("demo", "--seconds", "1", "--rate", "5")
    sales = [sale["sale"] for sale in client.stream(demo.SALES).read().messages()]
    assert sales == [*range(1, len(sales) + 1)]
    assert len(sales) == len(demo.sales_at(0)) + 10 * len(demo.sales_at(1))
    assert len([*client.stream(demo.CUSTOMERS).read().messages()]) > 40


def test_the_command_needs_a_server(run: Run) -> None:
    assert "cannot reach" in run("demo", "--url", "http://127.0.0.1:1", code=6).err
