"""Snapshots while commits fail and streams come and go."""

from __future__ import annotations

import asyncio

import pytest

from headwater.core.decisions import Create
from headwater.core.errors import SnapshotNotFound, StorageUnavailable
from headwater.core.offsets import Offset
from headwater.service.log import Log
from headwater.service.snapshots import Snapshots
from tests.support.faulty_engine import Fault, FaultyEngine
from tests.support.logs import data

BEGINNING = Offset(0, 0)


async def test_a_snapshot_that_is_not_committed_is_not_there(
    log: Log, engine: FaultyEngine
) -> None:
    snapshots = Snapshots(log)
    await log.create(Create("s", body=b"old"))
    engine.fail_next(Fault.BEFORE)
    with pytest.raises(StorageUnavailable):
        await snapshots.take("s", BEGINNING, "text/plain", b"state")
    with pytest.raises(SnapshotNotFound):
        await snapshots.load("s", None)
    assert log.writer.queued_bytes == 0
    assert await snapshots.take("s", BEGINNING, "text/plain", b"state")
    await log.append("s", data(b"new"))
    offset, found = await snapshots.load("s", None)
    assert (offset, found.body) == (BEGINNING, b"state")


async def test_a_stream_that_goes_meanwhile(log: Log, engine: FaultyEngine) -> None:
    """What the engine says is about a stream that went; the one that came has that offset too."""
    snapshots = Snapshots(log)
    await log.create(Create("s"))
    engine.gate("snapshots").shut()
    taking = asyncio.ensure_future(snapshots.take("s", BEGINNING, "text/plain", b"state"))
    await engine.gate("snapshots").arrival()
    await log.delete("s")
    await log.create(Create("s", body=b"another"))
    engine.gate("snapshots").open()
    assert await taking
    assert engine.snapshots.of_stream(1) == []
    assert len(engine.snapshots.of_stream(2)) == 1
