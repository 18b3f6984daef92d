"""The first picture fits what follows, and an unfinished one does no harm."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from headwater.client import AsyncHeadwater, MaterializedState
from headwater.postgres import NotPrepared, StreamUnfit
from tests.postgres.conftest import Pipe, Record, TestDatabase, until
from tests.postgres.workload import TABLES, create_tables, writers
from tests.support import seeds


def folded(records: list[Record]) -> dict[str, dict[str, Any]]:
    state = MaterializedState()
    state.apply_messages(records)
    return {table: dict(state.of_type(f"public.{table}")) for table in TABLES}


def stored(db: TestDatabase) -> dict[str, dict[str, Any]]:
    return {
        table: {str(id): {"id": id, "text": text} for id, text in db.rows(f"SELECT * FROM {table}")}
        for table in TABLES
    }


def check_that_changes_fit(records: list[Record]) -> None:
    """Behind the snapshot, every change finds the row exactly as it says it was before."""
    rows: dict[tuple[str, str], Any] = {}
    for record in records:
        if "control" in record["headers"]:
            continue
        row = (record["type"], record["key"])
        operation = record["headers"]["operation"]
        assert rows.get(row) == (None if operation == "insert" else record["old_value"])
        if operation == "delete":
            del rows[row]
        else:
            rows[row] = record["value"]


def controls(records: list[Record]) -> list[str]:
    return [r["headers"]["control"] for r in records if "control" in r["headers"]]


@pytest.mark.parametrize("seed", seeds.several(2))
async def test_a_snapshot_while_others_write(db: TestDatabase, pipe: Pipe, seed: int) -> None:
    create_tables(db)
    db.execute("INSERT INTO account SELECT n, 'old' FROM generate_series(1, 5000) n")
    with writers(db, seed) as busy:
        for writer in busy:
            await asyncio.to_thread(writer.wait_for, 10)
        await pipe.catch_up(snapshot=True)
    records = await pipe.catch_up(snapshot=True)
    assert controls(records) == ["snapshot-start", "snapshot-end"]
    assert len(records) > 5000
    check_that_changes_fit(records)
    assert folded(records) == stored(db)


async def test_a_snapshot_that_was_interrupted_is_begun_again(db: TestDatabase, pipe: Pipe) -> None:
    create_tables(db)
    db.execute("INSERT INTO account SELECT n, 'old' FROM generate_series(1, 20000) n")
    chance = random.Random(5)
    for _ in range(6):
        following = asyncio.create_task(pipe.follower(snapshot=True).run(asyncio.Event()))
        await asyncio.sleep(0.05 + chance.random() * 0.25)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        db.execute("UPDATE account SET id = -id WHERE id = (SELECT max(id) FROM account)")
    # The option is not needed to finish what was begun.
    records = await pipe.catch_up()
    assert controls(records).count("snapshot-start") > 1
    assert controls(records)[-1] == "snapshot-end"
    assert folded(records) == stored(db)
    assert len(db.rows(f"SELECT FROM pg_replication_slots WHERE slot_name = '{db.slot}'")) == 1


async def test_a_lost_slot_needs_a_new_picture(db: TestDatabase, pipe: Pipe) -> None:
    create_tables(db)
    db.execute("INSERT INTO note VALUES (1, 'a'), (2, 'b')")
    await pipe.catch_up(snapshot=True)
    db.execute(f"SELECT pg_drop_replication_slot('{db.slot}')")
    db.execute("DELETE FROM note WHERE id = 1")
    with pytest.raises(StreamUnfit, match="changed since then is lost; --snapshot"):
        await pipe.catch_up()
    records = await pipe.catch_up(snapshot=True)
    assert controls(records) == ["snapshot-start", "snapshot-end"] * 2
    assert folded(records) == stored(db)


async def test_a_snapshot_needs_a_slot_of_its_own(db: TestDatabase, pipe: Pipe) -> None:
    create_tables(db)
    db.publish()
    with pytest.raises(NotPrepared, match="a snapshot needs a new slot"):
        await pipe.catch_up(snapshot=True)
    assert await pipe.records() == []


async def test_an_unfinished_snapshot_is_left_to_its_slot(
    db: TestDatabase, client: AsyncHeadwater, pipe: Pipe
) -> None:
    create_tables(db)
    stream = client.stream(pipe.path)
    await stream.ensure(content_type="application/json")
    headers = {"control": "snapshot-start", "snapshot": "other"}
    await stream.append({"headers": {**headers, "lsn": "00000000/00000001", "seq": 0}})
    with pytest.raises(StreamUnfit, match="another slot, 'other'"):
        await pipe.catch_up(snapshot=True)


async def test_stopped_while_an_open_transaction_holds_up_the_slot(
    db: TestDatabase, pipe: Pipe
) -> None:
    create_tables(db)
    db.execute("CREATE PUBLICATION headwater FOR ALL TABLES")
    stop = asyncio.Event()
    with db.connect() as other, other.transaction():
        other.execute("INSERT INTO note VALUES (1, 'not yet committed')")
        following = asyncio.create_task(pipe.follower(snapshot=True).run(stop))
        await until(lambda: "waits for transactions" in "".join(pipe.said), following)
        stop.set()
        await following
    records = await pipe.catch_up(snapshot=True)
    assert folded(records) == stored(db)
