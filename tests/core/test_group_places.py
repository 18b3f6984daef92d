"""Where a group begins or goes on: what is a place, and what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import InvalidOffset
from headwater.core.groups.config import parse_place
from headwater.core.offsets import Anchor, Offset
from tests.support.properties import THOROUGH

numbers = st.integers(0, 10**16 - 1)
offsets = st.builds(Offset, numbers, numbers)


def test_the_two_ends() -> None:
    assert parse_place("first") == parse_place("-1") == (Anchor.START, 0)
    assert parse_place("latest") == parse_place("now") == (Anchor.TAIL, 0)


@THOROUGH
@given(offsets, st.integers(0, 10**15 - 1))
def test_an_offset_and_messages_to_skip(offset: Offset, skip: int) -> None:
    assert parse_place(str(offset)) == (offset, 0)
    assert parse_place(f"{offset}/{skip}") == (offset, skip)


@THOROUGH
@given(offsets, st.text(max_size=20).filter(lambda text: not (text.isascii() and text.isdigit())))
def test_anything_else_behind_an_offset_is_refused(offset: Offset, behind: str) -> None:
    with pytest.raises(InvalidOffset):
        parse_place(f"{offset}/{behind}")


@pytest.mark.parametrize("text", ["", "/", "/1", "first/1", "latest/0", "0/1", f"-1/{10**15}"])
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(InvalidOffset):
        parse_place(text)
