"""Cuts: nothing is lost, divided or reordered, and nothing grows without bounds."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from headwater.postgres.buffer import BATCH_BYTES_MAX, BATCH_RECORDS_MAX, Buffer
from headwater.postgres.changes import Unit
from headwater.postgres.position import CHANGES, Position

sizes = st.one_of(st.integers(1, 50), st.sampled_from([BATCH_BYTES_MAX // 2, BATCH_BYTES_MAX * 2]))
# Transactions: for each, the sizes of its changes; a change makes one record or two.
histories = st.lists(st.lists(st.tuples(sizes, st.integers(1, 2)), max_size=6), max_size=8)


def unit(lsn: int, seq: int, size: int, records: int) -> Unit:
    return Unit(Position(lsn, CHANGES, seq), tuple(b"%d" % n * size for n in range(records)))


@given(histories, st.integers(1, 3) | st.none())
async def test_batches_are_the_units_in_order(
    history: list[list[tuple[int, int]]], units_max: int | None
) -> None:
    buffer = Buffer(max_bytes=1 << 30)
    units = [
        [unit(lsn, seq, *change) for seq, change in enumerate(changes)]
        for lsn, changes in enumerate(history)
    ]
    for lsn, transaction in enumerate(units):
        for change in transaction:
            await buffer.put(change)
        buffer.mark(lsn + 1)
    flat = [change for transaction in units for change in transaction]
    taken = 0
    confirmed = 0
    while confirmed < len(units):
        batch = await buffer.take(units_max=units_max)
        assert batch is not None
        part: list[Unit] = []
        while sum(len(u.records) for u in part) < len(batch.records):
            part.append(flat[taken])
            taken += 1
        assert batch.records == [record for u in part for record in u.records]
        assert batch.last == (part[-1].position if part else None)
        assert len(part) <= (units_max or len(flat))
        assert sum(u.size for u in part) <= BATCH_BYTES_MAX or len(part) == 1
        if batch.confirms is not None:
            confirmed = batch.confirms
            stored = flat[:taken]
            # Only what is stored whole is confirmed.
            assert all(u in stored for transaction in units[:confirmed] for u in transaction)
    assert taken == len(flat)


async def test_a_batch_has_a_limited_number_of_records() -> None:
    buffer = Buffer(max_bytes=1 << 30)
    for seq in range(BATCH_RECORDS_MAX + 1):
        await buffer.put(unit(1, seq, 1, 1))
    first, second = await buffer.take(), await buffer.take()
    assert first is not None
    assert second is not None
    assert (len(first.records), len(second.records)) == (BATCH_RECORDS_MAX, 1)


async def test_a_full_buffer_makes_its_reader_wait() -> None:
    buffer = Buffer(max_bytes=1000)
    added: list[int] = []

    async def fill() -> None:
        for seq in range(20):
            await buffer.put(unit(1, seq, 100, 1))
            added.append(seq)

    filling = asyncio.create_task(fill())
    await asyncio.sleep(0)
    assert 0 < len(added) < 20
    while len(added) < 20:
        await buffer.take(units_max=1)
        await asyncio.sleep(0)
    await filling


async def test_marks_alone_do_not_pile_up() -> None:
    buffer = Buffer()
    for lsn in range(1000):
        buffer.mark(lsn)
    batch = await buffer.take()
    assert batch is not None
    assert (batch.records, batch.confirms) == ([], 999)


async def test_a_closed_buffer_gives_nothing() -> None:
    buffer = Buffer()
    waiting = asyncio.create_task(buffer.take())
    await asyncio.sleep(0)
    buffer.close()
    assert await waiting is None
    await buffer.put(unit(1, 0, 1, 1))
    assert await buffer.take() is None
