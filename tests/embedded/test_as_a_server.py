"""A log in one's own process has what a server has.

That it does the same is shown by the tests of the client, which run over both. Here is what only
such a log has: an end, an event loop, and a directory that it does not share.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.client import BadRequest, StaleReceipt, StreamNotFound, TooLarge
from headwater.core.limits import Limits
from headwater.store.engine import CannotOpen

PATIENCE_S = 60


async def test_an_acknowledgement_and_what_follows_from_it_are_one_step(tmp_path: Path) -> None:
    async with headwater.open(tmp_path) as log:
        for path in ("orders", "invoices"):
            await log.stream(path).ensure()
        await log.stream("orders").append({"id": 1})
        await log.stream("orders").group("billing").ensure()
        async with log.stream("orders").group("billing").consume() as messages:
            message = await anext(messages)
            async with message.transaction() as step:
                step.publish("invoices", {"order": message.value["id"]})
    async with headwater.open(tmp_path) as log:
        assert await log.stream("invoices").read_json() == [{"order": 1}]
        info = await log.stream("orders").group("billing").info()
        assert (info.in_flight, info.lag) == (0, 0)


def test_code_that_is_not_async_has_a_blocking_client(tmp_path: Path) -> None:
    with headwater.open(tmp_path) as log:
        orders = log.stream("orders")
        orders.ensure()
        orders.append_all([{"id": 1}, {"id": 2}])
        orders.group("workers").ensure()
        with orders.group("workers").consume() as messages:
            for message in messages:
                with message:
                    if message.value["id"] == 2:
                        break
        assert [each.name for each in log.streams()] == ["orders"]
    with headwater.open(tmp_path) as log:
        assert log.stream("orders").read_json() == [{"id": 1}, {"id": 2}]
    with pytest.raises(RuntimeError, match="closed"):
        orders.append({"id": 3})


def test_a_blocking_log_is_used_from_several_threads() -> None:
    with headwater.open(memory=True) as log:
        log.stream("s").ensure()
        threads = [
            threading.Thread(target=log.stream("s").append, args=(number,)) for number in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(log.stream("s").read_json()) == list(range(8))


async def test_closed_twice_and_used_afterwards() -> None:
    opening = headwater.open(memory=True)
    async with opening as log:
        stream = log.stream("s")
        await stream.ensure()
        with pytest.raises(RuntimeError, match="open already"):
            await opening.__aenter__()
        await asyncio.gather(log.aclose(), log.aclose())
        await log.aclose()
    await opening.__aexit__(None, None, None)
    uses: list[Any] = [stream.append(1), log.append("s", 1), stream.read_json(), log.streams()]
    for use in uses:
        with pytest.raises(RuntimeError, match="the log is closed"):
            await use


async def test_another_event_loop_is_told_so() -> None:
    async with headwater.open(memory=True) as log:
        await log.stream("s").ensure()

        def elsewhere() -> None:
            for use in (log.stream("s").append, lambda value: log.append("s", value)):
                with pytest.raises(RuntimeError, match="event loop"):
                    asyncio.run(use(1))
            with pytest.raises(RuntimeError, match="event loop"):
                asyncio.run(log.aclose())

        await asyncio.to_thread(elsewhere)
        assert await log.stream("s").read_json() == []
        there = asyncio.get_running_loop()
        sent = await asyncio.to_thread(
            lambda: asyncio.run_coroutine_threadsafe(log.stream("s").append(1), there).result(
                PATIENCE_S
            )
        )
        assert sent.next_offset == (await log.stream("s").head()).next_offset


@pytest.mark.parametrize("live", ["long-poll", "sse"])
async def test_readers_hear_of_the_end(live: Any) -> None:
    async with headwater.open(memory=True) as log:
        await log.stream("s").ensure()
        await log.stream("s").append(1)
        reached = asyncio.Event()

        async def follow() -> None:
            async for _ in log.stream("s").follow(live=live).messages():
                reached.set()

        reader = asyncio.create_task(follow())
        await asyncio.wait_for(reached.wait(), PATIENCE_S)
    with pytest.raises(RuntimeError, match="the log is closed"):
        await asyncio.wait_for(reader, PATIENCE_S)


async def test_a_reader_that_falls_behind_comes_back_and_misses_nothing() -> None:
    limits = Limits(reader_buffer_bytes_max=10_000)
    async with headwater.open(memory=True, limits=limits) as log:
        stream = log.stream("s")
        await stream.ensure()
        values = [f"{number:05}" + "x" * 500 for number in range(200)]
        await stream.append(values[0])
        got: list[str] = []
        async with asyncio.timeout(PATIENCE_S):
            async for value in stream.follow(live="sse").messages():
                got.append(value)
                if len(got) == 1:
                    # Nobody reads meanwhile.
                    for each in values[1:]:
                        await stream.append(each)
                if len(got) == len(values):
                    break
        assert got == values


async def test_limits_hold_as_they_do_on_a_server() -> None:
    async with headwater.open(memory=True, limits=Limits(body_bytes_max=1_000)) as log:
        stream = log.stream("s")
        await stream.ensure()
        with pytest.raises(TooLarge):
            await stream.append("x" * 2_000)
        with pytest.raises(StreamNotFound):
            await log.stream("nothing").read_json()
        assert await stream.read_json() == []


async def test_a_caller_who_gives_up_leaves_nothing_waiting() -> None:
    async with headwater.open(memory=True) as log:
        stream = log.stream("s")
        await stream.ensure()
        await stream.group("g").ensure()
        end = (await stream.head()).next_offset or ""
        for wait in (stream.wait(end, 60), anext(stream.follow().messages())):
            waiting = asyncio.ensure_future(wait)
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        fetch = asyncio.create_task(stream.group("g").fetch(wait_s=60))
        await asyncio.sleep(0.05)
        fetch.cancel()
        await asyncio.wait([fetch])
        await stream.append(1)
        [message] = await stream.group("g").fetch(wait_s=PATIENCE_S)
        assert message.value == 1


async def test_what_needs_a_network_says_so() -> None:
    async with headwater.open(memory=True) as log:
        with pytest.raises(BadRequest, match="pull-wake"):
            await log.subscription("s").create(webhook="https://example.com/", streams=["a"])
        with pytest.raises(ValueError, match="not in this log"):
            await log.stream("http://127.0.0.1:9/v1/stream/a").head()


def run(code: str, *args: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *args]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


HOLDS = """
    import sys, headwater
    with headwater.open(sys.argv[1]) as log:
        log.stream("s").ensure()
        print("open", flush=True)
        sys.stdin.read()
"""


async def test_a_directory_has_one_process_at_a_time(tmp_path: Path) -> None:
    with run(HOLDS, str(tmp_path)) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "open\n"
        for _ in range(2):
            with pytest.raises(CannotOpen, match="another"):
                async with headwater.open(tmp_path):
                    raise AssertionError("two processes have it")
        with pytest.raises(CannotOpen, match="another"), headwater.open(tmp_path):
            raise AssertionError("two processes have it")
        other.stdin.close()
        assert other.wait(PATIENCE_S) == 0
    async with headwater.open(tmp_path) as log:
        assert [each.name for each in await log.streams()] == ["s"]


# It moves messages from one stream to two others, each with its acknowledgement.
MOVES = """
    import sys, headwater
    from headwater.client import StaleReceipt
    with headwater.open(sys.argv[1]) as log:
        for message in log.stream("in").group("movers").consume(batch=5):
            try:
                with message.transaction() as step:
                    step.publish("left", message.value)
                    step.publish("right", message.value)
            except StaleReceipt:  # it took too long, and the message comes again
                continue
            print(message.value, flush=True)
"""


async def test_killed_inside_of_transactions(tmp_path: Path) -> None:
    count = 400
    async with headwater.open(tmp_path) as log:
        for path in ("in", "left", "right"):
            await log.stream(path).ensure()
        await log.stream("in").append_all(range(count))
        await log.stream("in").group("movers").ensure(ack_timeout_s=1)
    told: list[int] = []
    for lines in (7, 31, 60):
        with run(MOVES, str(tmp_path)) as mover:
            assert mover.stdout is not None
            told += [int(mover.stdout.readline()) for _ in range(lines)]
            mover.send_signal(signal.SIGKILL)
            told += [int(line) for line in mover.stdout if line.endswith("\n")]
    async with headwater.open(tmp_path) as log:
        left = await log.stream("left").read_json()
        assert left == await log.stream("right").read_json()
        assert len(left) == len(set(left))
        assert set(told) <= set(left)
        group = log.stream("in").group("movers")
        async with asyncio.timeout(PATIENCE_S):
            while len(await log.stream("left").read_json()) < count:
                for message in await group.fetch(max=count, wait_s=3):
                    with contextlib.suppress(StaleReceipt):  # it comes again
                        async with message.transaction() as step:
                            step.publish("left", message.value)
        assert sorted(await log.stream("left").read_json()) == list(range(count))
