"""Background tasks: whatever they fail with, they are seen to fail, and go on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headwater.core.decisions import Create
from headwater.core.errors import StorageFull
from headwater.core.expiry import Lifetime
from headwater.service import background
from headwater.service.background import Background
from headwater.service.log import Log
from headwater.store.sqlite.engine import SqliteEngine
from tests.service.conftest import StartLog
from tests.support.faulty_engine import Fault, FaultyEngine
from tests.support.logs import ManualClock, data, outcome, until


class Flaky(Background):
    name = "flaky"

    def __init__(self, *failures: Exception) -> None:
        super().__init__()
        self._failures = list(failures)
        self.rounds = 0

    async def round(self) -> float:
        self.rounds += 1
        if self._failures:
            raise self._failures.pop(0)
        return 0.01


@pytest.mark.parametrize("error", [OSError("unlink"), RuntimeError("a bug"), StorageFull()])
async def test_a_task_that_fails_is_counted_and_goes_on(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(background, "_PAUSE_AFTER_FAILURE_S", 0.01)
    task = Flaky(error, error)
    task.start()
    await until(lambda: task.failures == 1)
    assert task.is_failing
    await until(lambda: task.rounds > 4)
    assert (task.failures, task.is_failing) == (2, False)
    await task.stop()
    assert "".join(capsys.readouterr()).count("flaky_failed") == 2


async def test_a_file_that_cannot_be_removed_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Expiry goes on, and what is wrong can be seen."""
    clock = ManualClock()
    engine = SqliteEngine(tmp_path)

    def refuse(most: int) -> bool:
        raise PermissionError("unlink")

    monkeypatch.setattr(engine.history, "remove_unused", refuse)
    log = await Log.start(engine, clock=clock)
    try:
        await log.create(Create("s", lifetime=Lifetime(ttl_s=1)))
        await until(lambda: "collection" in log.problems())
        clock.now_ms += 10_000
        await until(lambda: engine.streams.load("s") is None)
        monkeypatch.undo()
        async with asyncio.timeout(60):
            await until(lambda: log.problems() == {})
    finally:
        await log.stop()


async def test_a_full_disk_refuses_what_grows_and_takes_what_shrinks(
    start_log: StartLog, engine: FaultyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await start_log()
    await log.create(Create("s", body=b"one"))
    await log.create(Create("t", body=b"two"))
    monkeypatch.setattr(engine, "has_room", lambda: False)
    engine.fail_next(Fault.BEFORE, StorageFull())
    assert await outcome(log.append("s", data(b"more"))) is StorageFull
    commits = len(engine.commits)
    assert await outcome(log.append("s", data(b"more"))) is StorageFull
    assert await outcome(log.create(Create("u"))) is StorageFull
    assert len(engine.commits) == commits, "refused without an attempt"
    assert "disk" in log.problems()
    await log.delete("t")
    monkeypatch.setattr(engine, "has_room", lambda: True)
    await log.append("s", data(b"more"))
    assert log.problems() == {}
