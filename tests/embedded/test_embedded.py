"""The log inside one's own process: what a user of `headwater.open` relies on."""

from __future__ import annotations

import asyncio
import doctest
from pathlib import Path

import pytest

import headwater
from headwater.core.errors import StreamClosed, StreamNotFound
from headwater.core.limits import Limits
from headwater.embedded import Update


class Recorder:
    """A callback that keeps what it was told and lets a test wait for it."""

    def __init__(self) -> None:
        self.updates: list[Update] = []
        self._grown = asyncio.Condition()

    async def __call__(self, update: Update) -> None:
        async with self._grown:
            self.updates.append(update)
            self._grown.notify_all()

    async def until(self, count: int) -> list[str]:
        async with self._grown, asyncio.timeout(60):
            await self._grown.wait_for(lambda: len(self.updates) >= count)
        return [update.kind for update in self.updates]

    @property
    def messages(self) -> list[object]:
        return [m for update in self.updates if update.result for m in update.result.messages]


async def test_create_append_read_close_delete(tmp_path: Path) -> None:
    async with headwater.open(tmp_path) as log:
        assert (await log.create("orders", content_type="application/json")).new
        await log.append("orders", {"id": 1})
        await log.append("orders", [{"id": 2}, {"id": 3}])
        result = await log.read("orders")
        assert result.messages == [{"id": 1}, {"id": 2}, {"id": 3}]
        assert result.up_to_date
        await log.close("orders")
        with pytest.raises(StreamClosed):
            await log.append("orders", {"id": 4})
        await log.delete("orders")
        with pytest.raises(StreamNotFound):
            await log.read("orders")


async def test_what_was_appended_is_there_after_reopening(tmp_path: Path) -> None:
    async with headwater.open(tmp_path) as log:
        await log.create("notes", content_type="text/plain", data="one")
        reply = await log.append("notes", b" two", producer=("me", 0, 0))
    async with headwater.open(tmp_path) as log:
        result = await log.read("notes")
        assert (result.data, result.next_offset) == (b"one two", reply.next_offset)
        again = await log.append("notes", b" two", producer=("me", 0, 0))
        assert again.duplicate
        assert (await log.read("notes")).data == b"one two"


async def test_a_fork_goes_its_own_way() -> None:
    async with headwater.open(memory=True) as log:
        await log.create("main", content_type="application/json", data=[1, 2, 3])
        await log.fork("main", "branch", offset="0" * 16 + "_" + "0" * 16, sub_offset=2)
        await log.append("branch", 9)
        assert (await log.read("branch")).messages == [1, 2, 9]
        assert (await log.read("main")).messages == [1, 2, 3]


async def test_deleted_streams_come_back_unless_they_were_purged(tmp_path: Path) -> None:
    async with headwater.open(tmp_path, limits=Limits(undelete_grace_s=60)) as log:
        await log.create("a", data=b"x", content_type="text/plain")
        await log.delete("a")
        assert await log.undelete("a") == (await log.read("a")).next_offset
        assert (await log.read("a")).data == b"x"
        await log.delete("a")
        await log.delete("a", purge=True)
        for attempt in (log.undelete("a"), log.delete("a", purge=True), log.read("a")):
            with pytest.raises(StreamNotFound):
                await attempt


async def test_a_cleared_stream_begins_anew(tmp_path: Path) -> None:
    async with headwater.open(tmp_path) as log:
        await log.create("a", data=b"x", content_type="text/plain")
        end = (await log.read("a")).next_offset
        assert await log.clear("a") == end
        await log.append("a", b"y")
        assert (await log.read("a", end)).data == b"y"
        with pytest.raises(StreamNotFound):
            await log.clear("nothing")


async def test_list_pages_by_name() -> None:
    async with headwater.open(memory=True) as log:
        for name in ("a/1", "a/2", "b/1"):
            await log.create(name)
        assert [s.path for s in await log.list("a/")] == ["a/1", "a/2"]
        assert [s.path for s in await log.list(after="a/1", limit=1)] == ["a/2"]


async def test_a_subscriber_gets_what_is_there_at_once_and_what_follows() -> None:
    async with headwater.open(memory=True) as log:
        await log.create("s", content_type="application/json", data=[1])
        heard = Recorder()
        subscription = await log.subscribe("s", "-1", heard)
        await heard.until(1)
        await log.append("s", 2)
        await log.append("s", 3)
        await log.close("s")
        await subscription.finished()
        assert heard.messages == [1, 2, 3]
        assert heard.updates[-1].kind == "closed"


async def test_a_subscriber_of_a_closed_stream_at_its_tail_hears_closed_at_once() -> None:
    async with headwater.open(memory=True) as log:
        await log.create("s", content_type="text/plain", data="x", closed=True)
        heard = Recorder()
        await (await log.subscribe("s", "now", heard)).finished()
        assert [update.kind for update in heard.updates] == ["closed"]


async def test_a_subscriber_hears_of_deletion() -> None:
    async with headwater.open(memory=True) as log:
        await log.create("s")
        heard = Recorder()
        subscription = await log.subscribe("s", "now", heard)
        await log.delete("s")
        await log.create("s", data=b"another stream of that name")
        await subscription.finished()
        assert [update.kind for update in heard.updates] == ["deleted"]


async def test_a_cancelled_subscriber_hears_nothing_more() -> None:
    async with headwater.open(memory=True) as log:
        await log.create("s", content_type="application/json")
        heard = Recorder()
        async with await log.subscribe("s", "-1", heard):
            await log.append("s", 1)
            await heard.until(1)
        await log.append("s", 2)
        assert heard.messages == [1]


async def test_a_subscriber_that_lags_behind_memory_misses_nothing(tmp_path: Path) -> None:
    limits = Limits(hot_bytes_per_stream_max=64, chunk_bytes_max=100)
    async with headwater.open(tmp_path, limits=limits) as log:
        await log.create("s", content_type="application/json")
        gate = asyncio.Event()
        heard = Recorder()

        async def slow(update: Update) -> None:
            await gate.wait()
            await heard(update)

        subscription = await log.subscribe("s", "-1", slow)
        for number in range(500):
            await log.append("s", number)
        gate.set()
        await log.close("s")
        await subscription.finished()
        assert heard.messages == list(range(500))


async def test_a_callback_that_fails_ends_its_subscription_and_says_so() -> None:
    async with headwater.open(memory=True) as log:
        await log.create("s", content_type="application/json", data=[1])

        def broken(update: Update) -> None:
            raise RuntimeError("no")

        subscription = await log.subscribe("s", "-1", broken)
        with pytest.raises(RuntimeError, match="no"):
            await subscription.finished()
        await log.append("s", 2)


def test_the_example_in_the_package_docstring_runs() -> None:
    assert doctest.testmod(headwater).failed == 0


async def test_a_list_is_several_messages_and_text_is_a_value() -> None:
    async with headwater.open(memory=True) as log:
        await log.create("s", content_type="application/json", data=[0, [0]])
        await log.append("s", [1, [2]])
        await log.append("s", b"[3, [4]]")
        await log.append("s", "text")
        assert (await log.read("s")).messages == [0, [0], 1, [2], 3, [4], "text"]
