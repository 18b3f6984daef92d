"""Reads of history by whoever has the same database and object storage: as the owner's, or none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from headwater.core.decisions import Create
from headwater.core.expiry import Lifetime
from headwater.core.limits import KIB, Limits
from headwater.core.offsets import Anchor, Offset, parse_offset
from headwater.service.chunks import Chunk
from headwater.service.log import Log
from headwater.service.sealed_reads import SealedReads
from headwater.store.engine.appends import FileRange
from headwater.store.history.policies import ArchivePolicy
from headwater.store.postgresql.engine import PostgresqlEngine
from headwater.store.postgresql.history import PostgresqlHistory
from headwater.store.postgresql.readers import Readers
from tests.support.archiving import compact, seal, tidy
from tests.support.logs import data, fork
from tests.support.postgresql import LEASE_MS, EngineDatabase

LIMITS = Limits(hot_bytes_per_stream_max=0, chunk_bytes_max=1_000)
LONG_S = 1e6


class Desk:
    """A log, and reads that do not ask it."""

    def __init__(self, log: Log, history: PostgresqlHistory) -> None:
        self.log = log
        self._history = history
        self.reads = SealedReads(log, settled_s=0)
        self._random = Random(3)

    async def fill(self, path: str, count: int = 60, size: int = 300) -> None:
        for number in range(count):
            body = bytes([number % 251]) * self._random.randint(1, size)
            await self.log.append(path, data(body))

    async def made(self, path: str, **settings: object) -> None:
        await self.log.create(Create(path, **settings))  # type: ignore[arg-type]
        await self.fill(path)

    async def seal(self) -> None:
        await self.log.writer.run(lambda: seal(self._history, 4 * KIB))

    async def compact(self) -> None:
        """Make one file of all, and remove the others."""

        def rewrite() -> None:
            assert compact(self._history) == 1
            tidy(self._history)

        await self.log.writer.run(rewrite)

    async def chunks(self, path: str) -> list[Chunk]:
        """What the owner answers, one after the other."""
        found: list[Chunk] = []
        offset: Anchor | Offset = Anchor.START
        while not found or not found[-1].up_to_date:
            found.append(await self.log.read_pieces(await self.log.entry(path), offset))
            offset = parse_offset(found[-1].next_offset)
        return found

    async def found(self, path: str) -> list[bool]:
        """Which of them are found without asking. Those are the same."""
        found: list[bool] = []
        offset: Anchor | Offset = Anchor.START
        for wanted in await self.chunks(path):
            first, again = [await self.reads.read(path, offset) for _ in range(2)]
            for chunk in (first, again):
                assert chunk is None or shown(chunk) == shown(wanted)
            found.append(again is not None)
            offset = parse_offset(wanted.next_offset)
        return found


def shown(chunk: Chunk) -> object:
    """All that an answer is made of."""
    assert chunk.pieces is not None
    content = b"".join(
        piece.read() if isinstance(piece, FileRange) else piece for piece in chunk.pieces
    )
    where = chunk.start, chunk.end, chunk.next_offset
    return chunk.config, where, content, chunk.up_to_date, chunk.closed, chunk.is_history


@asynccontextmanager
async def running(url: str, directory: Path) -> AsyncIterator[Desk]:
    engine = PostgresqlEngine(url, lease_ms=LEASE_MS, cache=directory / "node")
    archive = ArchivePolicy((directory / "objects").as_uri(), 0, 0)
    log = await Log.start(engine, LIMITS, archive=archive)
    try:
        assert engine.history is not None
        yield Desk(log, engine.history)
    finally:
        await log.stop()


@pytest.fixture
async def desk(database: EngineDatabase, tmp_path: Path) -> AsyncIterator[Desk]:
    async with running(database.url, tmp_path) as desk:
        yield desk


async def test_all_but_the_end_of_an_open_stream(desk: Desk) -> None:
    await desk.made("s")
    assert not any(await desk.found("s")), "it is in rows"
    await desk.seal()
    *before, last = await desk.found("s")
    assert len(before) > 5
    assert all(before)
    assert not last, "where it ends is the owner's to say"
    await desk.fill("s", 20)
    found = await desk.found("s")
    sealed = found.index(False)
    assert len(before) - 1 <= sealed < len(found) - 1
    assert not any(found[sealed:]), "what is partly in rows is as good as in rows"


async def test_a_stream_that_was_closed_a_while_ago(desk: Desk) -> None:
    await desk.made("s")
    await desk.log.append("s", data(b"the end", close=True))
    await desk.seal()
    assert all(await desk.found("s"))
    desk.reads = SealedReads(desk.log, LONG_S)
    *before, last = await desk.found("s")
    assert all(before)
    assert not last, "the owner may not show it yet"


async def test_files_that_were_rewritten(desk: Desk) -> None:
    await desk.made("s")
    await desk.log.append("s", data(b"the end", close=True))
    await desk.seal()
    before = [shown(chunk) for chunk in await desk.chunks("s")]
    assert all(await desk.found("s"))
    await desk.compact()
    assert all(await desk.found("s"))
    assert [shown(chunk) for chunk in await desk.chunks("s")] == before


async def test_forks(desk: Desk) -> None:
    await desk.made("s")
    middle = (await desk.chunks("s"))[3]
    await desk.log.create(fork("f", "s", middle.next_offset))
    await desk.fill("f")
    await desk.log.append("f", data(b"the end", close=True))
    await desk.seal()
    assert all(await desk.found("f"))
    await desk.log.delete("s")
    assert all(await desk.found("f")), "the fork is still there"
    assert await desk.reads.read("s", Anchor.START) is None
    await desk.log.delete("f")
    assert await desk.reads.read("f", Anchor.START) is None


async def test_another_stream_at_the_same_path(desk: Desk) -> None:
    await desk.made("s")
    await desk.seal()
    first = parse_offset((await desk.chunks("s"))[0].next_offset)
    assert await desk.reads.read("s", first) is not None
    await desk.log.delete("s")
    assert await desk.reads.read("s", first) is None
    assert await desk.reads.read("s", Anchor.START) is None
    await desk.made("s")
    assert await desk.reads.read("s", Anchor.START) is None, "the new one is in rows"
    await desk.seal()
    assert await desk.reads.read("s", first) is None
    assert all((await desk.found("s"))[:-1])
    await desk.log.delete("s", purge=True)
    assert await desk.reads.read("s", Anchor.START) is None


async def test_what_was_trimmed_is_gone_at_once(desk: Desk) -> None:
    await desk.made("s")
    await desk.seal()
    chunks = await desk.chunks("s")
    offsets = [parse_offset(chunk.next_offset) for chunk in chunks]
    await desk.log.clear("s", chunks[0].config.id, chunks[3].end)
    assert [await desk.reads.read("s", offset) for offset in offsets[:4]] == [None] * 4
    assert await desk.reads.read("s", Anchor.START) is None, "where it begins is the owner's to say"
    first, *following = await desk.found("s")
    assert not first
    assert all(following[:-1])
    assert desk.reads.may_have("s", offsets[4])


@pytest.mark.parametrize(
    "lifetime", [Lifetime(ttl_s=3600), Lifetime(None, 2**50, "5000-01-01T00:00:00Z")]
)
async def test_a_stream_whose_life_ends_is_the_owners(desk: Desk, lifetime: Lifetime) -> None:
    await desk.made("s", lifetime=lifetime)
    await desk.seal()
    assert not any(await desk.found("s"))


async def test_offsets_between_two_appends_only(desk: Desk) -> None:
    await desk.log.create(Create("s"))
    for number in range(40):
        await desk.log.append("s", data(bytes([number]) * 90))
    run = (await desk.chunks("s"))[0].config.id
    await desk.seal()
    for start, end in pairwise(range(0, 1_800, 90)):
        assert await desk.reads.read("s", Offset(run if start else 0, start)) is not None
        for inside in (start + 1, end - 1):
            assert await desk.reads.read("s", Offset(run, inside)) is None
    for nonsense in (Offset(run + 1, 90), Offset(run, 10**9)):
        assert await desk.reads.read("s", nonsense) is None
    assert desk.reads.may_have("s", Anchor.START)


async def test_whoever_follows_a_stream_does_not_ask_first_each_time(desk: Desk) -> None:
    await desk.made("s")
    await desk.seal()
    *_, last = await desk.chunks("s")
    end = Offset(last.config.id, last.start)
    assert desk.reads.may_have("s", end)
    assert await desk.reads.read("s", end) is None
    assert not desk.reads.may_have("s", end)
    assert not desk.reads.may_have("s", parse_offset(last.next_offset))
    assert desk.reads.may_have("s", Offset(last.config.id, last.start - 1))
    assert desk.reads.may_have("s", Anchor.START)
    assert desk.reads.may_have("t", end)


@pytest.mark.parametrize("size", [300, 200 * KIB])
async def test_what_was_read_before_costs_one_question(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    await desk.log.create(Create("s"))
    await desk.fill("s", 8, size)
    await desk.seal()
    first = await desk.reads.read("s", Anchor.START)
    assert first is not None
    asked: list[str] = []
    ask = Readers._ask

    def counted(readers: Readers, sql: str, values: tuple[object, ...]) -> object:
        asked.append(sql)
        return ask(readers, sql, values)

    monkeypatch.setattr(Readers, "_ask", counted)
    again = await desk.reads.read("s", Anchor.START)
    assert again is not None
    assert shown(again) == shown(first)
    assert len(asked) == 1


async def test_without_object_storage_the_owner_is_asked(desk: Desk, tmp_path: Path) -> None:
    await desk.made("s")
    await desk.seal()
    (tmp_path / "objects").rename(tmp_path / "away")
    assert await desk.reads.read("s", Anchor.START) is None
    (tmp_path / "away").rename(tmp_path / "objects")
    assert desk.reads.may_have("s", Anchor.START)
