"""Runs that overlap: what an earlier one left on its way is stored once or refused."""

from __future__ import annotations

import uuid

import msgspec
import pytest

from headwater.client import AsyncHeadwater
from headwater.postgres.buffer import Batch
from headwater.postgres.position import CHANGES, LastRecord, Position, format_lsn
from headwater.postgres.sink import Overtaken, Sink


def batch(*seqs: int) -> Batch:
    records = [
        msgspec.json.encode({"n": seq, "headers": {"lsn": format_lsn(1), "seq": seq}})
        for seq in seqs
    ]
    return Batch(records, Position(1, CHANGES, seqs[-1]))


@pytest.fixture
def path() -> str:
    return f"sink/{uuid.uuid4().hex}"


async def run_of(client: AsyncHeadwater, path: str) -> Sink:
    sink = Sink(client, path, slot="s")
    await sink.check(create=True)
    await sink.find_last()
    return sink


async def numbers(client: AsyncHeadwater, path: str) -> list[int]:
    return [record["n"] for record in await client.stream(path).read_json() if "n" in record]


async def test_a_late_append_before_the_first_of_the_next_run(
    client: AsyncHeadwater, path: str
) -> None:
    old = await run_of(client, path)
    await old.append(batch(0))
    new = await run_of(client, path)
    await old.append(batch(1, 2, 3))  # was on its way
    with pytest.raises(Overtaken):
        await new.append(batch(1))
    assert await new.find_last() == LastRecord(Position(1, CHANGES, 3))
    await new.append(batch(4))
    await new.append(batch(5, 6))
    assert await numbers(client, path) == list(range(7))


async def test_a_late_append_behind_the_first_of_the_next_run(
    client: AsyncHeadwater, path: str
) -> None:
    old = await run_of(client, path)
    await old.append(batch(0))
    new = await run_of(client, path)
    await new.append(batch(1))
    with pytest.raises(Overtaken):
        await old.append(batch(1, 2, 3))
    await new.append(batch(2))
    assert await numbers(client, path) == [0, 1, 2]


async def test_a_run_whose_clock_is_behind(
    client: AsyncHeadwater, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = await run_of(client, path)
    await ahead.append(batch(0))
    monkeypatch.setattr("headwater.postgres.sink.time.time_ns", lambda: 1_000_000_000)
    behind = await run_of(client, path)
    await behind.append(batch(1))
    await behind.append(batch(2))
    with pytest.raises(Overtaken):
        await ahead.append(batch(1))
    assert await numbers(client, path) == [0, 1, 2]


async def test_two_runs_at_the_same_moment_by_the_clock(
    client: AsyncHeadwater, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.postgres.sink.time.time_ns", lambda: 1_000_000_000)
    first = await run_of(client, path)
    await first.append(batch(0))
    await first.append(batch(1))
    second = await run_of(client, path)
    with pytest.raises(Overtaken):
        await second.append(batch(2))
    monkeypatch.undo()
    await second.find_last()
    await second.append(batch(2))
    assert await numbers(client, path) == [0, 1, 2]


@pytest.mark.parametrize("others", [0, 1, 99, 150])
async def test_the_last_record_is_found_behind_messages_of_others(
    client: AsyncHeadwater, path: str, others: int
) -> None:
    sink = await run_of(client, path)
    assert sink.last is None
    await sink.append(batch(0, 1))
    if others:
        await client.stream(path).append_all({"from": "others", "n": n} for n in range(others))
    assert await sink.find_last() == LastRecord(Position(1, CHANGES, 1))
