"""The hot tail: whatever of a stream is in memory, readers get the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.decisions import Append, Create
from headwater.core.errors import StreamNotFound
from headwater.core.limits import Limits
from headwater.core.offsets import Anchor, Offset
from headwater.service.entries import Entry
from headwater.service.hot_tail import HotTail
from headwater.service.log import Log
from headwater.store.memory.engine import MemoryEngine
from tests.service.conftest import StartLog
from tests.support.faulty_engine import FaultyEngine
from tests.support.logs import BYTES, ManualClock, begin, data, fork, outcome, read_all
from tests.support.properties import NORMAL, THOROUGH

bodies = st.lists(st.binary(min_size=1, max_size=9), max_size=25)


@THOROUGH
@given(bodies, st.integers(0, 30), st.integers(0, 40), st.integers(0, 100))
def test_it_holds_the_last_part_and_gives_whole_appends(
    pushed: list[bytes], start: int, max_bytes: int, chunk_bytes: int
) -> None:
    hot = HotTail(start)
    starts: list[int] = []
    end = start
    for body in pushed:
        starts.append(end)
        end += len(body)
        hot.push(body, max_bytes)
        assert (hot.end, hot.size_bytes) == (end, end - hot.start)
        assert hot.size_bytes <= max(max_bytes + max_bytes // 4, len(body)), "it is bounded"
    for position in range(end + 2):
        held = [begin for begin in [*starts, end] if hot.start <= begin <= position]
        assert hot.boundary(position) == (held[-1] if held else None)
        found = hot.read(position, chunk_bytes)
        if position not in starts or position < hot.start:
            assert found is None
            continue
        first = starts.index(position)
        assert found is not None
        assert found == pushed[first : first + len(found)]
        size = sum(map(len, found))
        following = pushed[first + len(found) : first + len(found) + 1]
        assert len(found) == 1 or size <= chunk_bytes
        assert not following or size + len(following[0]) > chunk_bytes, "as much as fits"


def test_many_tiny_appends_are_bounded_in_number() -> None:
    hot = HotTail(0)
    for _ in range(40_000):
        hot.push(b"x", 10**9)
    assert hot.size_bytes <= 16_384
    assert hot.read(39_999, 10) == [b"x"]


def test_forgetting_everything_keeps_the_place() -> None:
    hot = HotTail(5)
    hot.push(b"abc", 100)
    hot.clear()
    assert (hot.start, hot.end, hot.size_bytes) == (8, 8, 0)
    assert hot.read(5, 10) is None
    hot.push(b"de", 100)
    assert hot.read(8, 10) == [b"de"]


# ── Through the log ──────────────────────────────────────────────────────────────────────────


@st.composite
def plans(draw: st.DrawFn) -> list[tuple[str, int, bytes]]:
    """Appends to and forks of the streams made so far, the first of which is there already."""
    plan: list[tuple[str, int, bytes]] = []
    streams = 1
    for _ in range(draw(st.integers(1, 20))):
        which = draw(st.integers(0, streams - 1))
        body = draw(st.binary(min_size=1, max_size=6))
        if streams < 4 and draw(st.integers(0, 5)) == 0:
            plan.append(("fork", which, body))
            streams += 1
        else:
            plan.append(("append", which, body))
    return plan


async def carry_out(log: Log, plan: list[tuple[str, int, bytes]]) -> list[bytes]:
    """Returns what each stream should hold."""
    contents = [b""]
    await log.create(Create("0", BYTES))
    for what, which, body in plan:
        if what == "append":
            await log.append(str(which), data(body))
            contents[which] += body
        else:
            await log.create(fork(str(len(contents)), str(which)))
            contents.append(contents[which])
    return contents


async def compare_all_reads(log: Log, entry: Entry, content: bytes, chunk_bytes: int) -> int:
    """Ask for every position; returns how many were answered without the engine."""
    view = log.view(entry)
    hot_reads = 0
    for position in range(len(content) + 1):
        offset = view.config.lineage.offset_at(position)
        hot = log.read_hot(entry, offset)
        if position == len(content):
            assert hot is not None
            assert (hot.bodies, hot.up_to_date) == ([], True)
            continue
        cold = await log.read_cold(entry, offset)
        read = b"".join(cold.bodies)
        assert content[cold.start :].startswith(read)
        assert cold.start <= position < cold.start + len(cold.bodies[0])
        assert len(read) <= chunk_bytes or len(cold.bodies) == 1
        assert cold.up_to_date == (cold.end == len(content))
        if hot is not None:
            assert hot == cold
            hot_reads += 1
    return hot_reads


@NORMAL
@given(plans(), st.integers(1, 12), st.integers(1, 12))
def test_small_tails_and_small_chunks_read_as_the_engine_does(
    plan: list[tuple[str, int, bytes]], hot_bytes: int, chunk_bytes: int
) -> None:
    async def run() -> None:
        limits = Limits(hot_bytes_per_stream_max=hot_bytes, chunk_bytes_max=chunk_bytes)
        log = await Log.start(MemoryEngine(), limits, clock=ManualClock())
        try:
            for number, content in enumerate(await carry_out(log, plan)):
                entry = await log.entry(str(number))
                await compare_all_reads(log, entry, content, chunk_bytes)
                assert await read_all(log, str(number)) == content
        finally:
            await log.stop()

    asyncio.run(run())


async def test_the_tail_is_in_memory_and_the_beginning_is_not(start_log: StartLog) -> None:
    log = await start_log(Limits(hot_bytes_per_stream_max=10, chunk_bytes_max=4))
    contents = await carry_out(log, [("append", 0, b"%02d" % n) for n in range(40)])
    entry = await log.entry("0")
    hot_reads = await compare_all_reads(log, entry, contents[0], 4)
    assert 0 < hot_reads <= 12, "the positions in ten bytes and a quarter more"


async def test_memory_is_given_back_least_recently_used_first(start_log: StartLog) -> None:
    log = await start_log(Limits(hot_bytes_per_stream_max=100, hot_bytes_max=250))
    for path in "abcd":
        await log.create(Create(path, body=path.encode() * 100))
        if path == "a":
            (await log.entry(path)).listeners.add(lambda event: None)
    watched, *others = [await log.entry(path) for path in "abcd"]
    sizes = [log.view(entry).hot.size_bytes for entry in (watched, *others)]
    assert sizes == [100, 0, 0, 100], "readers keep what they follow, the latest stays"
    for path in "abcd":
        assert await read_all(log, path) == path.encode() * 100


async def test_memory_is_bounded_for_streams_that_are_followed_too(start_log: StartLog) -> None:
    log = await start_log(Limits(hot_bytes_per_stream_max=100, hot_bytes_max=250))
    for number in range(20):
        await log.create(Create(str(number), body=b"x" * 100))
        (await log.entry(str(number))).listeners.add(lambda event: None)
        assert log.hot_bytes <= 250
    for number in range(20):
        await log.append(str(number), data(b"y" * 10))
        assert await read_all(log, str(number)) == b"x" * 100 + b"y" * 10
    assert log.hot_bytes <= 250


async def test_what_is_held_is_counted_without_looking_at_every_stream(
    start_log: StartLog,
) -> None:
    log = await start_log(Limits(hot_bytes_per_stream_max=50))
    for number in range(10):
        await log.create(Create(str(number), body=b"x" * 10))
        for _ in range(number):
            await log.append(str(number), data(b"y" * 10))
    await log.delete("3")
    views = [log.view(await log.entry(str(number))) for number in range(10) if number != 3]
    assert log.hot_bytes == sum(view.hot.size_bytes for view in views) > 0


async def test_a_stream_that_is_deleted_while_it_is_read_is_not_found(
    start_log: StartLog, engine: FaultyEngine
) -> None:
    """Its data may be gone already, but that is no fault of the offset."""
    log = await start_log(Limits(hot_bytes_per_stream_max=1))
    await log.create(Create("s", body=b"first"))
    await log.append("s", data(b"second"))
    gate = engine.gate("read")
    gate.shut()
    reading = begin(outcome(read_all(log, "s")))
    await gate.arrival()
    await log.delete("s")
    gate.open()
    assert await reading is StreamNotFound


# ── Finding a place ──────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def numbered(log: Log, clock: ManualClock) -> Log:
    """`s` holds messages 0 to 8 in appends of one to three, a second apart; `f` the first 5."""
    clock.now_ms = 0
    await log.create(Create("s", "application/json"))
    for body in (b"0", b"[1,2]", b"[3,4,5]", b"6", b"[7,8]"):
        clock.now_ms += 1_000
        await log.append("s", Append(body, "application/json"))
    view = log.view(await log.entry("s"))
    await log.create(fork("f", "s", str(view.config.lineage.offset_at(6)), 2))
    clock.now_ms = 10_000
    await log.append("f", Append(b"[50,60]", "application/json"))
    return log


@pytest.mark.parametrize("path, expected", [("s", "012345678"), ("f", "01234")])
async def test_the_last_messages_are_found(numbered: Log, path: str, expected: str) -> None:
    messages = [*expected, *(("50", "60") if path == "f" else ())]
    for count in range(len(messages) + 3):
        offset, skip = await numbered.find_last(path, count)
        found = (await read_all(numbered, path, str(offset))).decode().split(",")[:-1]
        assert found[skip:] == messages[max(0, len(messages) - count) :]


async def test_a_moment_is_found(numbered: Log) -> None:
    times = {0: 9, 1_000: 9, 1_001: 8, 2_000: 8, 2_001: 6, 3_000: 6, 4_500: 2, 5_000: 2, 5_001: 0}
    for at_ms, messages in times.items():
        offset = await numbered.find_time("s", at_ms)
        assert (await read_all(numbered, "s", str(offset))).count(b",") == messages, at_ms
    for at_ms, messages in {0: 7, 2_500: 4, 3_000: 4, 3_001: 2, 10_000: 2, 10_001: 0}.items():
        offset = await numbered.find_time("f", at_ms)
        assert (await read_all(numbered, "f", str(offset))).count(b",") == messages, at_ms


async def test_an_empty_stream_begins_and_ends_at_once(log: Log) -> None:
    await log.create(Create("s"))
    looks: list[Callable[[], Awaitable[Offset]]] = [
        lambda: log.find_time("s", 0),
        lambda: log.find_time("s", 10**15),
    ]
    for look in looks:
        assert str(await look()) == "0000000000000000_0000000000000000"
    assert await log.find_last("s", 5) == (Offset(0, 0), 0)
    chunk = await log.read("s", Anchor.START)
    assert (chunk.bodies, chunk.up_to_date, chunk.closed) == ([], True, False)
