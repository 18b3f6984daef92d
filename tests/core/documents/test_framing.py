"""Frames as lib0 writes them."""

from __future__ import annotations

from io import BytesIO

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pycrdt import Decoder, write_var_uint

from headwater.core.documents.framing import (
    Incomplete,
    check_frames,
    frame,
    read_frames,
    read_number,
    write_number,
)
from headwater.core.errors import InvalidBody

UPDATES = st.lists(st.binary(max_size=300), max_size=20)


@given(st.integers(0, 2**53 - 1))
@example(127)
@example(128)
@example(2**53 - 1)
def test_numbers_are_those_of_the_library(number: int) -> None:
    assert write_number(number) == write_var_uint(number)
    assert read_number(write_number(number) + b"rest", 0) == (number, len(write_number(number)))


@given(UPDATES)
def test_what_is_framed_can_be_read(updates: list[bytes]) -> None:
    body = b"".join(map(frame, updates))
    check_frames(body)
    assert list(read_frames(BytesIO(body).read)) == updates
    decoder = Decoder(body)
    assert [decoder.read_message() for _ in updates] == updates


@given(UPDATES, st.data())
def test_a_body_that_is_cut_is_refused(updates: list[bytes], data: st.DataObject) -> None:
    """Unless it is cut between two frames."""
    body = b"".join(map(frame, updates))
    ends = {0}
    for update in updates:
        ends.add(max(ends) + len(frame(update)))
    cut = data.draw(st.integers(0, len(body)))
    if cut in ends:
        check_frames(body[:cut])
    else:
        with pytest.raises(InvalidBody):
            check_frames(body[:cut])
        with pytest.raises(InvalidBody):
            list(read_frames(BytesIO(body[:cut]).read))


@given(st.binary(max_size=100))
def test_any_bytes_are_frames_or_refused_by_both(body: bytes) -> None:
    try:
        check_frames(body)
    except InvalidBody:
        with pytest.raises(InvalidBody):
            list(read_frames(BytesIO(body).read))
    else:
        assert b"".join(map(frame, read_frames(BytesIO(body).read))) is not None


@pytest.mark.parametrize(
    "body", [b"\x80", b"\x01", b"\xff" * 7, b"\xff" * 8 + b"\x00", b"\x80" * 100, b"\x01a\x80"]
)
def test_hostile_lengths(body: bytes) -> None:
    with pytest.raises(InvalidBody):
        check_frames(body)
    with pytest.raises(InvalidBody):
        list(read_frames(BytesIO(body).read))


def test_a_number_that_is_not_all_there() -> None:
    with pytest.raises(Incomplete):
        read_number(b"\x80", 0)
    with pytest.raises(Incomplete):
        read_number(b"a", 1)
