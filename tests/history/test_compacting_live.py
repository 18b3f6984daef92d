"""Compaction in the running log: slowly, behind everything else, and without anyone noticing."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.core.decisions import Create
from headwater.core.errors import DataCorrupt, HistoryUnavailable, StorageUnavailable
from headwater.core.limits import Limits
from headwater.core.lineage import Span
from headwater.service import background
from headwater.service.history import archiving as archiving_module
from headwater.service.history import compacting as compacting_module
from headwater.service.history.compacting import Compacting
from headwater.service.log import Log
from headwater.store.engine import Problem
from headwater.store.engine.appends import FileRange
from headwater.store.history import compaction as rewriting_module
from headwater.store.history.compaction import Rewriting
from headwater.store.history.object_storage import Remote
from headwater.store.history.policies import ArchivePolicy, SealPolicy
from headwater.store.history.segment_writer import SegmentBuilder
from headwater.store.sqlite.engine import SqliteEngine
from tests.history.test_compacting import require_whole
from tests.history.test_sealing import all_sealed
from tests.support.logs import begin, data, fork, read_all, turns, until
from tests.support.sealing import AT_ONCE

LIMITS = Limits(hot_bytes_per_stream_max=0, chunk_bytes_max=1_000)
NOT_AT_ALL = replace(AT_ONCE, compact_bytes_per_second=0)
FEW = 10
"""Seven of a size at most are left to themselves."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacting_module, "_PAUSE_S", 0.005)
    monkeypatch.setattr(compacting_module, "_AWAITED_S", 0.005)
    monkeypatch.setattr(compacting_module, "_REST_PER_LOOK", 0)
    monkeypatch.setattr(archiving_module, "_PAUSE_S", 0.005)
    monkeypatch.setattr(archiving_module, "_CATALOG_SOON_S", 0.005)
    monkeypatch.setattr(archiving_module, "_REST_PER_CATALOG", 0)
    monkeypatch.setattr(background, "_PAUSE_AFTER_FAILURE_S", 0.001)
    monkeypatch.setattr(background, "_PAUSE_AFTER_FAILURE_S_MAX", 0.001)


@asynccontextmanager
async def running(
    directory: Path, policy: SealPolicy = AT_ONCE, far: Path | None = None
) -> AsyncIterator[tuple[Log, SqliteEngine]]:
    engine = SqliteEngine(directory)
    archive = ArchivePolicy(far.as_uri()) if far else None
    log = await Log.start(engine, LIMITS, sealing=policy, archive=archive)
    try:
        yield log, engine
    finally:
        await log.stop()
    again = SqliteEngine(directory)
    try:
        assert [line for line in again.verify() if isinstance(line, Problem)] == []
    finally:
        again.close()


def names(directory: Path) -> set[str]:
    return {path.name for path in (directory / "segments").glob("*")}


async def scatter(log: Log, engine: SqliteEngine, rounds: int = 12) -> dict[str, bytes]:
    """Two streams and a fork, in as many files as there are rounds or more."""
    content = {"a": b"", "b": b""}
    for path in content:
        await log.create(Create(path))
    for number in range(rounds):
        for path in content:
            # Files of one of these or of two are about the same size.
            body = b"%s %04d;" % (path.encode(), number) * 100
            await log.append(path, data(body))
            content[path] += body
        if number == rounds // 2:
            await log.create(fork("fork", "a"))
            content["fork"] = content["a"]
        await until(all_sealed(engine))
    return content


async def require_content(log: Log, content: dict[str, bytes]) -> None:
    for path, wanted in content.items():
        assert await read_all(log, path) == wanted


def is_tidy(engine: SqliteEngine) -> Callable[[], bool]:
    """Few files are left, and each holds something."""
    history = engine.history
    return lambda: (
        engine._query("SELECT count(*) FROM segments")[0][0] < FEW
        and not history.making
        and not engine._query(
            "SELECT 1 FROM segments WHERE id NOT IN (SELECT segment_id FROM extents)"
        )
    )


async def test_many_files_become_few_and_read_the_same(tmp_path: Path) -> None:
    async with running(tmp_path) as (log, engine):
        content = await scatter(log, engine, 20)
        await until(is_tidy(engine))
        await require_content(log, content)
        assert names(tmp_path) == {row[0] for row in engine._query("SELECT name FROM segments")}
        assert log.compacting is not None
        assert log.compacting.files >= 8
        assert log.compacting.size_bytes >= len(content["a"])
        assert log.compacting.failures == 0
    async with running(tmp_path) as (log, engine):
        await require_content(log, content)


async def test_readers_and_writers_meanwhile(tmp_path: Path) -> None:
    async with running(tmp_path, NOT_AT_ALL) as (log, engine):
        content = await scatter(log, engine)
    async with running(tmp_path) as (log, engine):
        await log.create(Create("new"))
        new = b""
        assert log.compacting is not None
        while log.compacting.files < 2 * 8:
            number = b"%d;" % len(new)
            reads = [begin(read_all(log, path)) for path in content]
            await log.append("new", data(number))
            new += number
            assert await asyncio.gather(*reads) == [*content.values()]
        assert await read_all(log, "new") == new


async def test_who_holds_an_old_file_can_read_it_to_its_end(tmp_path: Path) -> None:
    async with running(tmp_path, NOT_AT_ALL) as (log, engine):
        content = await scatter(log, engine)
    async with running(tmp_path) as (log, engine):
        before = names(tmp_path)
        held = engine.appends.read_pieces(Span(1, 0, len(content["a"])), 10**6)
        assert len([piece for piece in held if isinstance(piece, FileRange)]) > FEW
        await until(is_tidy(engine))
        assert not before & names(tmp_path)
        parts = [piece.read() if isinstance(piece, FileRange) else piece for piece in held]
        assert b"".join(parts) == content["a"]


async def test_it_can_be_switched_off(tmp_path: Path) -> None:
    async with running(tmp_path, NOT_AT_ALL) as (log, engine):
        await scatter(log, engine)
        assert log.compacting is None
        assert len(names(tmp_path)) >= 12


async def test_it_keeps_to_its_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it copies is followed by a rest that is long enough."""
    rested_s: list[float] = []

    async def pause(task: Compacting, length_s: float) -> None:
        rested_s.append(length_s)
        await asyncio.sleep(0)

    monkeypatch.setattr(rewriting_module, "_SLICE_BYTES", 500)
    async with running(tmp_path, NOT_AT_ALL) as (log, engine):
        await scatter(log, engine)
    monkeypatch.setattr(Compacting, "pause", pause)
    async with running(tmp_path, replace(AT_ONCE, compact_bytes_per_second=100)) as (log, engine):
        await until(is_tidy(engine))
        assert log.compacting is not None
        assert log.compacting.size_bytes > 2_000
        assert sum(rested_s) >= log.compacting.size_bytes / 100
        assert max(rested_s) <= 1_000 / 100, "a slice is an append here"


async def test_streams_that_go_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied, and then there is no stream any more."""
    finished, go_on = asyncio.Event(), asyncio.Event()
    loop, finish = asyncio.get_running_loop(), Rewriting.finish

    def held(rewriting: Rewriting) -> object:
        draft = finish(rewriting)
        loop.call_soon_threadsafe(finished.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(60)
        return draft

    monkeypatch.setattr(Rewriting, "finish", held)
    async with running(tmp_path, NOT_AT_ALL) as (log, engine):
        content = await scatter(log, engine)
    async with running(tmp_path) as (log, engine):
        await finished.wait()
        await log.delete("b")
        await until(lambda: not engine._query("SELECT 1 FROM extents WHERE run = 2"))
        go_on.set()
        await until(is_tidy(engine))
        assert not engine._query("SELECT 1 FROM extents WHERE run = 2")
        assert await read_all(log, "a") == content["a"]
        for path in ("a", "fork"):
            await log.delete(path)
        await until(lambda: names(tmp_path) == set())


async def test_what_hardly_anyone_needs_is_rewritten(tmp_path: Path) -> None:
    async with running(tmp_path, replace(NOT_AT_ALL, after_bytes=10**9, after_ms=10**9)) as (
        log,
        _,
    ):
        # Neither is large enough for a file of its own.
        for path, length in (("small", 1_000), ("large", 200_000)):
            await log.create(Create(path))
            await log.append(path, data(b"x" * length))
    async with running(tmp_path, NOT_AT_ALL) as (log, engine):
        await until(all_sealed(engine))
        before = names(tmp_path)
        await log.delete("large")
        await until(lambda: not engine._query("SELECT 1 FROM extents WHERE run = 2"))
    async with running(tmp_path) as (log, engine):
        size = "SELECT sum(size) FROM segments"
        await until(lambda: engine._query(size)[0][0] < 10_000)
        await until(lambda: not before & names(tmp_path))
        assert await read_all(log, "small") == b"x" * 1_000


# ── Trouble ──────────────────────────────────────────────────────────────────────────────────


async def test_a_disk_that_is_full_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, NOT_AT_ALL) as (log, engine):
        content = await scatter(log, engine)
    failures, add_all = 0, SegmentBuilder.add_all

    def full(builder: SegmentBuilder, *arguments: object) -> None:
        nonlocal failures
        failures += 1
        if failures < 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        add_all(builder, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SegmentBuilder, "add_all", full)
    async with running(tmp_path) as (log, engine):
        await until(is_tidy(engine))
        assert log.compacting is not None
        assert log.compacting.failures == 4
        await require_content(log, content)
        assert names(tmp_path) == {row[0] for row in engine._query("SELECT name FROM segments")}


@pytest.mark.parametrize("stored", [False, True], ids=["not stored", "stored all the same"])
async def test_a_database_that_refuses_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    async with running(tmp_path, NOT_AT_ALL) as (log, engine):
        content = await scatter(log, engine)
    failures, record = 0, Rewriting.record

    def refuse(rewriting: Rewriting, *, uploads: bool) -> bool:
        nonlocal failures
        failures += 1
        if failures > 3:
            return record(rewriting, uploads=uploads)
        if stored:
            recorded = rewriting._recorded
            record(rewriting, uploads=uploads)
            rewriting._recorded = recorded
        raise StorageUnavailable

    monkeypatch.setattr(Rewriting, "record", refuse)
    async with running(tmp_path) as (log, engine):
        await until(is_tidy(engine))
        assert failures > 3
        await require_content(log, content)


async def test_a_damaged_file_stays_and_the_others_are_rewritten(tmp_path: Path) -> None:
    async with running(tmp_path, NOT_AT_ALL) as (log, engine):
        await scatter(log, engine)
    damaged = sorted((tmp_path / "segments").iterdir())[4]
    content = bytearray(damaged.read_bytes())
    content[20] ^= 1
    damaged.write_bytes(content)
    engine = SqliteEngine(tmp_path)
    log = await Log.start(engine, LIMITS, sealing=AT_ONCE)
    try:
        await until(is_tidy(engine))
        assert damaged.name in names(tmp_path)
        with pytest.raises(DataCorrupt):
            await read_all(log, "a")
    finally:
        await log.stop()


async def test_stopping_in_the_middle_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting_module, "_SLICE_BYTES", 100)
    monkeypatch.setattr(rewriting_module, "_SLICE_EXTENTS", 1)
    async with running(tmp_path, NOT_AT_ALL) as (log, engine):
        content = await scatter(log, engine)
    for waiting in range(1, 40, 3):
        async with running(tmp_path) as (log, engine):
            for _ in range(waiting):
                await log.append("a", data(b"x"))
                content["a"] += b"x"
    async with running(tmp_path) as (log, engine):
        assert log.compacting is not None
        # How many files are left depends on how often it was stopped; nothing is left to do.
        compacting = log.compacting
        await until(lambda: not compacting._look() and not engine.history.making)
        await require_content(log, content)


# ── Object storage ───────────────────────────────────────────────────────────────────────────


async def test_what_is_in_object_storage_goes_there_first(tmp_path: Path) -> None:
    data_, far = tmp_path / "data", tmp_path / "far"
    async with running(data_, NOT_AT_ALL, far) as (log, engine):
        content = await scatter(log, engine)
        await until(lambda: names(data_) == names(far))
    before, remote = names(far), Remote(far.as_uri())
    async with running(data_, AT_ONCE, far) as (log, engine):
        tidy = is_tidy(engine)
        while not tidy():
            for name in remote.catalogs()[-1:]:
                require_whole(remote, name)
            await turns(20)
        await require_content(log, content)
        await until(lambda: names(far) == names(data_))
        assert not names(far) & before
        for name in remote.catalogs():
            require_whole(remote, name)


async def test_while_object_storage_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New files wait for it, and what they would take the place of stays."""
    data_, far = tmp_path / "data", tmp_path / "far"
    async with running(data_, NOT_AT_ALL, far) as (log, engine):
        content = await scatter(log, engine)
        await until(lambda: names(data_) == names(far))
    before, refusals, upload = names(far), 0, Remote.upload

    def refuse(remote: Remote, path: Path) -> None:
        nonlocal refusals
        refusals += 1
        raise HistoryUnavailable("it is switched off")

    monkeypatch.setattr(Remote, "upload", refuse)
    async with running(data_, AT_ONCE, far) as (log, engine):
        await until(lambda: refusals > 3)
        assert before == names(far)
        assert before < names(data_)
        await require_content(log, content)
    # What was begun is unused at the next start, and so it goes.
    async with running(data_, NOT_AT_ALL, far) as (log, engine):
        await until(lambda: names(data_) == before)
    monkeypatch.setattr(Remote, "upload", upload)
    async with running(data_, AT_ONCE, far) as (log, engine):
        await until(is_tidy(engine))
        await until(lambda: names(far) == names(data_))
        await require_content(log, content)


async def test_without_its_store_a_server_leaves_what_is_there_alone(tmp_path: Path) -> None:
    data_, far = tmp_path / "data", tmp_path / "far"
    async with running(data_, NOT_AT_ALL, far) as (log, engine):
        content = await scatter(log, engine)
        await until(lambda: names(data_) == names(far))
    before = names(data_)
    async with running(data_) as (log, engine):
        more = b""
        for number in range(20):
            await log.append("b", data(b"%d" % number))
            more += b"%d" % number
            await until(all_sealed(engine))
        assert log.compacting is not None
        await until(lambda: log.compacting is not None and log.compacting.files >= 8)
        assert before < names(data_)
        assert await read_all(log, "b") == content["b"] + more
