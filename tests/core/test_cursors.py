"""Cursors: never behind the clock, and never a circle."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.cursors import interval_at, next_cursor, parse_cursor
from tests.support.properties import THOROUGH

BEGINNING = datetime(2024, 10, 9, tzinfo=UTC)


def at_ms(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


moments = st.integers(0, 200 * 365 * 24 * 3600 * 1000).map(
    lambda ms: BEGINNING + timedelta(milliseconds=ms)
)
jitters = st.integers(1, 180)


@THOROUGH
@given(moments)
def test_an_interval_has_twenty_seconds(moment: datetime) -> None:
    assert interval_at(at_ms(moment)) == (moment - BEGINNING) // timedelta(seconds=20)


@THOROUGH
@given(moments, jitters, st.none() | st.integers(0, 10**9))
def test_an_answer_is_never_behind_and_never_what_the_client_sent(
    moment: datetime, jitter: int, client: int | None
) -> None:
    now = at_ms(moment)
    answer = next_cursor(client, now, jitter)
    assert answer >= interval_at(now)
    if client is None or client < interval_at(now):
        assert answer == interval_at(now)
    else:
        assert client < answer <= client + 180


@THOROUGH
@given(moments, st.lists(jitters, min_size=2, max_size=20))
def test_a_client_that_sends_back_what_it_gets_always_moves_on(
    moment: datetime, jitters: list[int]
) -> None:
    cursor: int | None = None
    seen: list[int] = []
    for jitter in jitters:
        cursor = next_cursor(cursor, at_ms(moment), jitter)
        seen.append(cursor)
    assert seen == sorted(set(seen))


@THOROUGH
@given(st.integers(0, 10**16 - 1))
def test_a_cursor_is_read_back(cursor: int) -> None:
    assert parse_cursor(str(cursor)) == cursor


@pytest.mark.parametrize("text", [None, "", "-1", "1.5", "abc", "٣", "1" * 17, "9" * 5_000, " 1"])
def test_a_cursor_that_is_none_of_ours_counts_for_nothing(text: str | None) -> None:
    assert parse_cursor(text) is None
