"""Sealing into object storage in the running log, on the PostgreSQL engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headwater.core.limits import Limits
from headwater.service import background
from headwater.service.log import Log
from headwater.store.history.policies import ArchivePolicy
from headwater.store.history.sealing import Recording
from headwater.store.postgresql.engine import PostgresqlEngine
from headwater.store.postgresql.history import PostgresqlHistory
from tests.history.test_sealing import fill
from tests.support.archiving import in_rows, objects
from tests.support.logs import data, read_all, until
from tests.support.postgresql import LEASE_MS, EngineDatabase
from tests.support.sealing import AT_ONCE

LIMITS = Limits(hot_bytes_per_stream_max=0, chunk_bytes_max=1_000)


@asynccontextmanager
async def running(url: str, directory: Path) -> AsyncIterator[tuple[Log, PostgresqlHistory]]:
    engine = PostgresqlEngine(url, lease_ms=LEASE_MS, cache=directory / "node")
    archive = ArchivePolicy((directory / "objects").as_uri(), 0, 0, unused_kept_ms=0)
    log = await Log.start(engine, LIMITS, sealing=AT_ONCE, archive=archive)
    try:
        assert engine.history is not None
        yield log, engine.history
    finally:
        await log.stop()


async def test_everything_goes_to_object_storage_and_reads_the_same(
    database: EngineDatabase, tmp_path: Path
) -> None:
    async with running(database.url, tmp_path) as (log, history):
        content = {path: await fill(log, path) for path in ("a", "b")}
        await until(lambda: in_rows(history) == [])
        for path, wanted in content.items():
            assert await read_all(log, path) == wanted
        await log.append("a", data(b"more"))
        assert await read_all(log, "a") == content["a"] + b"more"
        assert log.archiving is not None
        assert log.archiving.uploads == len(objects(tmp_path)) > 0
    async with running(database.url, tmp_path) as (log, _):
        assert await read_all(log, "a") == content["a"] + b"more"
        assert await read_all(log, "b") == content["b"]


async def test_appends_go_on_while_object_storage_is_away(
    database: EngineDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_PAUSE_AFTER_FAILURE_S", 0.05)
    monkeypatch.setattr(background, "_PAUSE_AFTER_FAILURE_S_MAX", 0.05)
    async with running(database.url, tmp_path) as (log, history):
        (tmp_path / "objects").rename(tmp_path / "away")
        (tmp_path / "objects").write_bytes(b"in the way")
        content = await fill(log, "a")
        await until(lambda: {"sealing", "archiving"} <= log.problems().keys())
        assert await read_all(log, "a") == content
        assert len(in_rows(history)) == 1
        (tmp_path / "objects").unlink()
        (tmp_path / "away").rename(tmp_path / "objects")
        await until(lambda: in_rows(history) == [])
        assert await read_all(log, "a") == content
        await until(lambda: log.archiving is not None and not log.archiving.is_failing)
        assert "sealing" not in log.problems()


async def test_a_directory_that_was_emptied_costs_nothing_but_time(
    database: EngineDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, emptied = PostgresqlHistory.publish, False

    def publish_later(history: PostgresqlHistory, recording: Recording) -> None:
        nonlocal emptied
        if not emptied:
            emptied = True
            (history.directory / recording.draft.name).unlink()
        publish(history, recording)

    monkeypatch.setattr(PostgresqlHistory, "publish", publish_later)
    async with running(database.url, tmp_path) as (log, history):
        content = await fill(log, "a")
        await until(lambda: in_rows(history) == [])
        assert await read_all(log, "a") == content
        assert emptied
