"""Offset tokens: how they look, how they sort, and what is no token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import InvalidOffset
from headwater.core.offsets import Anchor, Offset, format_offset, parse_offset
from tests.support.properties import THOROUGH

numbers = st.integers(0, 10**16 - 1)
offsets = st.builds(Offset, numbers, numbers)


@THOROUGH
@given(offsets)
def test_a_token_is_read_back_as_the_offset_it_stands_for(offset: Offset) -> None:
    assert parse_offset(str(offset)) == offset


@THOROUGH
@given(offsets, offsets)
def test_tokens_sort_as_text_the_way_offsets_sort_as_numbers(a: Offset, b: Offset) -> None:
    assert (str(a) < str(b)) == ((a.run, a.position) < (b.run, b.position))


@THOROUGH
@given(offsets)
def test_a_token_can_be_told_from_the_named_positions(offset: Offset) -> None:
    token = str(offset)
    assert token == format_offset(offset.run, offset.position)
    assert token not in {"-1", "now"}
    assert len(token) == 33


def test_the_beginning_and_the_tail_have_names() -> None:
    assert parse_offset("-1") is Anchor.START
    assert parse_offset("now") is Anchor.TAIL


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "-2",
        "NOW",
        " now",
        "start",
        "1_2",
        "0000000000000001-0000000000000002",
        "0000000000000001_0000000000000002 ",
        "00000000000000001_000000000000002",
        "+000000000000001_0000000000000002",
        "0000000000000001_-000000000000002",
        "000000000000000a_0000000000000002",
        "0000000000000001_0000000000000002_0000000000000003",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠١_٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٢",  # digits, but not ours  # noqa: RUF001
        "²000000000000001_0000000000000002",
        "0000000000000001_0000000000000002\n",
    ],
)
def test_what_no_server_gave_out_is_refused(text: str) -> None:
    with pytest.raises(InvalidOffset):
        parse_offset(text)


@THOROUGH
@given(offsets, st.data())
def test_a_damaged_token_is_refused_or_means_itself(offset: Offset, data: st.DataObject) -> None:
    """Whatever `parse_offset` lets through, it reads without loss."""
    token = list(str(offset))
    token[data.draw(st.integers(0, len(token) - 1))] = data.draw(st.characters())
    text = "".join(token)
    try:
        parsed = parse_offset(text)
    except InvalidOffset:
        return
    assert isinstance(parsed, Offset)
    assert str(parsed) == text
