"""The log of the memory engine: a list that the garbage collector does not go through."""

from __future__ import annotations

import gc

from hypothesis import given
from hypothesis import strategies as st

from headwater.core.stream import Appended
from headwater.store.memory.append_log import CHUNK_APPENDS, AppendLog

_MOST = 3 * CHUNK_APPENDS + CHUNK_APPENDS // 2
cuts = st.lists(st.tuples(st.integers(0, _MOST), st.integers(0, _MOST)), max_size=6)


def appended(number: int) -> Appended:
    return Appended(1, number, b"x", number, 1, 1)


def filled(count: int) -> AppendLog:
    log = AppendLog()
    for number in range(count):
        log.append(appended(number))
    return log


def numbers(log: AppendLog, first: int = 0, last: int | None = None) -> list[int]:
    return [append.start for append in log.between(first, last)]


@given(st.integers(0, _MOST), cuts, cuts)
def test_it_behaves_like_a_list(
    count: int, drops: list[tuple[int, int]], looks: list[tuple[int, int]]
) -> None:
    log, expected = filled(count), list(range(count))
    for first, length in drops:
        first = min(first, len(expected))
        last = min(first + length, len(expected))
        log.drop(first, last)
        del expected[first:last]
        log.append(appended(count))
        expected.append(count)
        count += 1
    assert len(log) == len(expected)
    assert numbers(log) == expected
    assert [log[index].start for index in range(len(log))] == expected
    for first, last in looks:
        assert numbers(log, first, last) == expected[first:last]
    if expected:
        assert log[-1].start == expected[-1]


def test_the_collector_visits_no_append_of_a_closed_chunk() -> None:
    log = filled(10 * CHUNK_APPENDS)
    # It visits each chunk once, to find that out.
    gc.collect()
    assert _seen_from(log) < 100


def _seen_from(log: AppendLog) -> int:
    """How many references the collector follows in a log, and in what it tracks of it."""
    left, seen = gc.get_referents(log), 0
    while left:
        one = left.pop()
        if gc.is_tracked(one) and not isinstance(one, type):
            found = gc.get_referents(one)
            seen += len(found)
            left += found
    return seen
