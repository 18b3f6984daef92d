"""Sealing in the running log: behind the commits, in their gaps, and without losing anything."""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headwater.core.decisions import Create
from headwater.core.errors import DataCorrupt, StorageUnavailable, StreamNotFound
from headwater.core.limits import KIB, Limits
from headwater.core.offsets import Anchor, Offset
from headwater.service import background
from headwater.service.log import Log
from headwater.store.engine import Problem
from headwater.store.engine.figures import HistoryFigures
from headwater.store.history import sealing as history_module
from headwater.store.history.policies import SealPolicy
from headwater.store.history.segment_writer import SegmentBuilder
from headwater.store.rows import Query
from headwater.store.sqlite import segments
from headwater.store.sqlite.engine import SqliteEngine
from headwater.store.sqlite.history import SqliteHistory
from headwater.store.sqlite.segments import history_figures
from tests.support.logs import ManualClock, begin, data, fork, read_all, turns, until
from tests.support.sealing import AT_ONCE, in_rows

LIMITS = Limits(hot_bytes_per_stream_max=0, chunk_bytes_max=1_000)


def files(directory: Path) -> list[Path]:
    return sorted((directory / "segments").glob("*")) if directory.exists() else []


@asynccontextmanager
async def running(
    directory: Path, policy: SealPolicy | None = AT_ONCE, clock: ManualClock | None = None
) -> AsyncIterator[tuple[Log, SqliteEngine]]:
    engine = SqliteEngine(directory)
    log = await Log.start(engine, LIMITS, sealing=policy, clock=clock or ManualClock())
    try:
        yield log, engine
    finally:
        await log.stop()
    with_problems = SqliteEngine(directory)
    try:
        assert [line for line in with_problems.verify() if isinstance(line, Problem)] == []
    finally:
        with_problems.close()


def all_sealed(engine: SqliteEngine) -> Callable[[], bool]:
    return lambda: not in_rows(engine)


async def fill(log: Log, path: str, count: int = 20) -> bytes:
    await log.create(Create(path))
    bodies = [b"%s %d;" % (path.encode(), number) * 20 for number in range(count)]
    await asyncio.gather(*(log.append(path, data(body)) for body in bodies))
    return b"".join(bodies)


async def test_everything_becomes_history_and_reads_the_same(tmp_path: Path) -> None:
    async with running(tmp_path) as (log, engine):
        content = {path: await fill(log, path) for path in ("a", "b", "c")}
        await until(all_sealed(engine))
        assert files(tmp_path)
        for path, wanted in content.items():
            assert await read_all(log, path) == wanted
        await log.append("a", data(b"more"))
        assert await read_all(log, "a") == content["a"] + b"more"
        content["a"] += b"more"
    # And after a restart, without a row left to tell where a stream ends.
    async with running(tmp_path) as (log, engine):
        await until(all_sealed(engine))
    async with running(tmp_path, None) as (log, engine):
        for path, wanted in content.items():
            assert await read_all(log, path) == wanted
            await log.append(path, data(b"!"))
            assert await read_all(log, path) == wanted + b"!"


async def test_files_are_counted_again_only_after_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as (log, engine):
        assert engine.figures().history.local_files == 0
        await fill(log, "a")
        await until(all_sealed(engine))
        # The last transaction may still be ending.
        await until(lambda: engine.figures().history.local_files == len(files(tmp_path)))
        before = engine.figures().history
        assert before.local_bytes == sum(file.stat().st_size for file in files(tmp_path))
        counted = 0

        def count(query: Query) -> HistoryFigures:
            nonlocal counted
            counted += 1
            return history_figures(query)

        monkeypatch.setattr(segments, "history_figures", count)
        for _ in range(10):
            assert engine.figures().history == before
        assert counted <= 1
        await fill(log, "b")
        await until(all_sealed(engine))
        await until(lambda: engine.figures().history.local_files > before.local_files)


async def test_nothing_is_sealed_when_that_is_switched_off(tmp_path: Path) -> None:
    async with running(tmp_path, None) as (log, engine):
        await fill(log, "a")
        await turns(50)
        assert in_rows(engine)
    assert not (tmp_path / "segments").exists()


async def test_what_is_neither_old_nor_large_stays(tmp_path: Path) -> None:
    clock = ManualClock()
    policy = SealPolicy(after_bytes=10 * KIB, after_ms=60_000)
    async with running(tmp_path, policy, clock) as (log, engine):
        await fill(log, "small")
        await fill(log, "large", 200)
        await until(lambda: [one.run for one in in_rows(engine)] == [1])
        clock.now_ms += 60_000
        await until(all_sealed(engine))


async def test_what_was_there_before_the_start_is_found(tmp_path: Path) -> None:
    async with running(tmp_path, None) as (log, engine):
        content = await fill(log, "a")
    async with running(tmp_path) as (log, engine):
        await until(all_sealed(engine))
        assert await read_all(log, "a") == content


async def test_appends_go_on_between_the_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are dropped a few at a time; whoever appends meanwhile waits for one slice at most."""
    monkeypatch.setattr(history_module, "_SLICE_APPENDS", 10)
    monkeypatch.setattr("headwater.store.history.gathering.SLICE_APPENDS", 1)
    order: list[str] = []
    record, commit = SqliteHistory.record, SqliteEngine.commit

    def noted_record(history: SqliteHistory, *arguments: object) -> bool:
        order.append("slice")
        return record(history, *arguments)  # type: ignore[arg-type]

    def noted_commit(engine: SqliteEngine, mutations: list[object]) -> None:
        order.append("commit")
        commit(engine, mutations)  # type: ignore[arg-type]

    async with running(tmp_path, None) as (log, _):
        content = await fill(log, "a", 200)
    monkeypatch.setattr(SqliteHistory, "record", noted_record)
    monkeypatch.setattr(SqliteEngine, "commit", noted_commit)
    async with running(tmp_path) as (log, _):
        appended = 0
        while order.count("slice") < 20:
            await log.append("a", data(b"x"))
            appended += 1
        assert await read_all(log, "a") == content + b"x" * appended
    assert re.search("slice (commit )+slice", " ".join(order))


async def test_streams_that_are_deleted_while_they_are_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is written, and then there is no stream any more: its file goes too."""
    gathered, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    gather = SqliteHistory.gather

    def held(history: SqliteHistory, *arguments: object) -> object:
        recording = gather(history, *arguments)  # type: ignore[arg-type]
        loop.call_soon_threadsafe(gathered.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(60)
        return recording

    monkeypatch.setattr(SqliteHistory, "gather", held)
    async with running(tmp_path) as (log, engine):
        await fill(log, "gone")
        await fill(log, "stays")
        await gathered.wait()
        await log.delete("gone")
        await until(lambda: engine._query("SELECT 1 FROM streams WHERE id = 1") == [])
        go_on.set()
        await until(all_sealed(engine))
        with pytest.raises(StreamNotFound):
            await log.read("gone", Anchor.START)
        await log.delete("stays")
        await until(lambda: files(tmp_path) == [])


async def test_a_fork_keeps_what_it_inherits_and_its_file(tmp_path: Path) -> None:
    async with running(tmp_path) as (log, engine):
        content = await fill(log, "source")
        await log.create(fork("copy", "source"))
        await log.append("copy", data(b"own"))
        await until(all_sealed(engine))
        await log.delete("source")
        assert await read_all(log, "copy") == content + b"own"
        await log.delete("copy")
        await until(lambda: files(tmp_path) == [])


# ── Trouble ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""
    monkeypatch.setattr(background, "_PAUSE_AFTER_FAILURE_S", 0.001)
    monkeypatch.setattr(background, "_PAUSE_AFTER_FAILURE_S_MAX", 0.001)


@pytest.mark.usefixtures("impatient")
async def test_a_disk_that_is_full_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = 0
    finish = SegmentBuilder.finish

    def full(builder: SegmentBuilder) -> object:
        nonlocal failures
        failures += 1
        if failures < 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return finish(builder)

    monkeypatch.setattr(SegmentBuilder, "finish", full)
    async with running(tmp_path) as (log, engine):
        content = await fill(log, "a")
        assert await read_all(log, "a") == content
        await until(all_sealed(engine))
        assert failures >= 4
        assert await read_all(log, "a") == content
    assert len(files(tmp_path)) == len({path.name[:10] for path in files(tmp_path)})
    assert not [path for path in files(tmp_path) if path.suffix == ".new"]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("stored", [False, True], ids=["not stored", "stored all the same"])
async def test_a_database_that_refuses_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    """It is not known whether a refused commit is there, so the same is tried again."""
    failures = 0
    record = SqliteHistory.record

    def refuse(history: SqliteHistory, *arguments: object) -> bool:
        nonlocal failures
        failures += 1
        if failures > 3:
            return record(history, *arguments)  # type: ignore[arg-type]
        if stored:
            recording = arguments[0]
            done = recording.done  # type: ignore[attr-defined]
            recording.done = lambda *_, **__: None  # type: ignore[attr-defined]
            record(history, *arguments)  # type: ignore[arg-type]
            recording.done = done  # type: ignore[attr-defined]
        raise StorageUnavailable

    monkeypatch.setattr(SqliteHistory, "record", refuse)
    async with running(tmp_path) as (log, engine):
        content = await fill(log, "a")
        await until(all_sealed(engine))
        assert await read_all(log, "a") == content
    names = {path.name for path in files(tmp_path)}
    engine = SqliteEngine(tmp_path)
    assert names == {row[0] for row in engine._query("SELECT name FROM segments")}
    engine.close()


async def test_rows_that_are_damaged_are_not_sealed(tmp_path: Path) -> None:
    async with running(tmp_path, None) as (log, _):
        content, other = await fill(log, "a"), await fill(log, "b")
    engine = SqliteEngine(tmp_path)
    engine._writer.execute(
        "UPDATE ops SET checksum = 0 WHERE stream_id = 1 AND start ="
        " (SELECT max(start) FROM ops WHERE stream_id = 1 AND start < 900)"
    )
    log = await Log.start(engine, LIMITS, sealing=AT_ONCE)
    try:
        await until(lambda: [one.run for one in in_rows(engine)] == [1])
        assert await read_all(log, "b") == other
        # What lies before it was sealed and is good.
        before = engine._query("SELECT until FROM extents WHERE run = 1")[0][0]
        chunk = await log.read_cold(await log.entry("a"), Anchor.START, before)
        assert b"".join(chunk.bodies) == content[:before]
        with pytest.raises(DataCorrupt):
            await read_all(log, "a", chunk.next_offset)
        await log.append("a", data(b"goes on"))
    finally:
        await log.stop()


async def test_stopping_in_the_middle_is_no_trouble(tmp_path: Path) -> None:
    content = b""
    for round_ in range(5):
        async with running(tmp_path) as (log, _):
            if round_ == 0:
                await log.create(Create("a"))
            for number in range(30):
                body = b"%d/%d;" % (round_, number) * 10
                waiting = begin(log.append("a", data(body)))
                content += body
                await waiting
    async with running(tmp_path, None) as (log, _):
        assert await read_all(log, "a") == content


# ── Damage ───────────────────────────────────────────────────────────────────────────────────


async def damaged(directory: Path, harm: Callable[[Path], object]) -> None:
    """Something happens to the file of a stream: an error from then on, and never other bytes."""
    async with running(directory) as (log, engine):
        content = await fill(log, "a")
        await until(all_sealed(engine))
    for path in files(directory):
        harm(path)
    engine = SqliteEngine(directory)
    log = await Log.start(engine, LIMITS)
    try:
        assert [line for line in engine.verify() if isinstance(line, Problem)]
        for _ in range(2):
            with pytest.raises(DataCorrupt):
                await read_all(log, "a")
        await log.append("a", data(b"goes on"))
        await log.create(Create("b"))
        chunk = await log.read("a", Offset(1, len(content)))
        assert chunk.bodies == [b"goes on"]
    finally:
        await log.stop()


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[20] ^= 4
    path.write_bytes(content)


async def test_a_file_with_a_flipped_bit(tmp_path: Path) -> None:
    await damaged(tmp_path, flip_a_bit)


async def test_a_file_that_is_missing(tmp_path: Path) -> None:
    await damaged(tmp_path, Path.unlink)


async def test_a_file_that_is_empty(tmp_path: Path) -> None:
    await damaged(tmp_path, lambda path: path.write_bytes(b""))
