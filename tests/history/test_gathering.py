"""Rows on their way into a file: what is taken, and where it ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.core.producers import ProducerStamp
from headwater.core.stream import Appended
from headwater.store.history import gathering
from headwater.store.history.gathering import as_columns, count_fitting, count_sound, in_slices
from headwater.store.rows import Row, op_row

bodies = st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=200)


def rows(contents: list[bytes], start: int = 0) -> list[Row]:
    made = []
    for number, body in enumerate(contents):
        stamp = ProducerStamp("p", 1, number) if number % 3 == 0 else None
        made.append(op_row(Appended(9, start, body, number, 1, 1_000 + number, stamp)))
        start += len(body)
    return made


@given(bodies)
def test_slices_are_bounded_and_lose_nothing(contents: list[bytes]) -> None:
    taken = rows(contents)
    found = [*in_slices(taken)]
    assert [row for one in found for row in one] == taken
    assert all(1 <= len(one) <= gathering.SLICE_APPENDS for one in found)


def test_large_appends_make_small_slices() -> None:
    large = rows([b"x" * (gathering.SLICE_BYTES // 2)] * 5)
    assert [len(one) for one in in_slices(large)] == [2, 2, 1]


@given(bodies, st.data())
def test_what_was_changed_ends_it(contents: list[bytes], data: st.DataObject) -> None:
    sound = rows(contents, 100)
    assert count_sound(sound, None) == count_sound(sound, 100) == len(sound)
    assert count_sound(sound, 99) == 0
    at = data.draw(st.integers(0, len(sound) - 1))
    damaged = [*sound]
    damaged[at] = (*sound[at][:-1], sound[at][-1] + b"!")
    assert count_sound(damaged, None) == at
    missing = sound[:at] + sound[at + 1 :]
    assert count_sound(missing, 100) == at


@given(bodies, st.integers(0, 2_000))
def test_as_many_as_fit(contents: list[bytes], room: int) -> None:
    count = count_fitting(rows(contents), room)
    assert sum(map(len, contents[:count])) <= room
    assert count == len(contents) or sum(map(len, contents[: count + 1])) > room


@given(bodies)
def test_columns_say_what_rows_said(contents: list[bytes]) -> None:
    taken = rows(contents, 7)
    columns, data = as_columns(taken)
    assert data == b"".join(contents)
    assert [*columns.starts] == [row[1] for row in taken]
    assert [*columns.first_messages] == [row[2] for row in taken]
    assert [*columns.times] == [row[4] for row in taken]
    assert [*columns.sums] == [row[5] for row in taken]
    stamped = {n: ProducerStamp("p", 1, n) for n in range(0, len(taken), 3)}
    assert columns.stamps == stamped
    assert (columns.end, columns.end_message) == (7 + len(data), len(taken))
