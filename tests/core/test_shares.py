"""Shares of a budget: whoever takes all they can leaves something to the next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.core.shares import Shares


def test_one_alone_gets_half_and_no_more() -> None:
    shares = Shares(100)
    assert shares.allow("a", 50)
    assert not shares.allow("a", 51)
    shares.take("a", 50)
    assert not shares.allow("a", 1)
    assert shares.allow("b", 25)
    assert not shares.allow("b", 26)


def test_what_is_given_back_is_forgotten() -> None:
    shares = Shares(100)
    shares.take("a", 30)
    shares.take("a", -30)
    assert (shares.total, shares.of("a"), len(shares)) == (0, 0, 0)


@given(
    st.integers(2, 10_000),
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 10_000))),
)
def test_nobody_holds_more_than_is_left(most: int, wishes: list[tuple[str, int]]) -> None:
    shares = Shares(most)
    for holder, size in wishes:
        if shares.allow(holder, size):
            shares.take(holder, size)
            assert shares.of(holder) <= most - shares.total
    assert shares.total == sum(shares.of(holder) for holder in "abcdef") <= most


@given(st.integers(1, 20))
def test_a_newcomer_finds_room(others: int) -> None:
    shares = Shares(1 << 20)
    for number in range(others):
        while shares.allow(str(number), 1024):
            shares.take(str(number), 1024)
    assert shares.of("0") == 1 << 19
    # Halved each time, and never gone before it is too small to matter.
    assert shares.allow("new", (1 << 20) // 2 ** (others + 1))
