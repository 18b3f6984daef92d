"""The query of a read."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.errors import InvalidOffset, InvalidQuery
from headwater.core.offsets import Anchor, Offset
from headwater.http.reads import ReadQuery

# How fast the machine is says nothing about the code.
pure = settings(deadline=None)

TOKEN = "0000000000000012_0000000000000345"


@pytest.mark.parametrize(
    "query, offset, live, cursor",
    [
        ("", Anchor.START, None, None),
        ("offset=-1", Anchor.START, None, None),
        ("offset=now", Anchor.TAIL, None, None),
        (f"offset={TOKEN}", Offset(12, 345), None, None),
        ("offset=%6eow", Anchor.TAIL, None, None),
        ("live=false", Anchor.START, None, None),
        ("offset=-1&live=false", Anchor.START, None, None),
        ("offset=-1&live=sse", Anchor.START, "sse", None),
        ("live=long-poll&offset=now", Anchor.TAIL, "long-poll", None),
        ("offset=-1&live=long-poll&cursor=17", Anchor.START, "long-poll", 17),
        ("cursor=", Anchor.START, None, None),
        ("cursor=-1", Anchor.START, None, None),
        ("cursor=x", Anchor.START, None, None),
        ("cursor=" + "9" * 100, Anchor.START, None, None),
        ("a=b&c&=d&&offset=now", Anchor.TAIL, None, None),
        ("OFFSET=nonsense", Anchor.START, None, None),
    ],
)
def test_accepted(
    query: str, offset: Anchor | Offset, live: str | None, cursor: int | None
) -> None:
    read = ReadQuery(query.encode())
    assert (read.offset, read.live, read.cursor) == (offset, live, cursor)


@pytest.mark.parametrize(
    "query",
    [
        "offset=",
        "offset",
        "offset=0",
        "offset=start",
        "offset=Now",
        "offset=-1&offset=-1",
        "offset=-1&offset=",
        "offset=+1",
        f"offset={TOKEN}0",
        f"offset={TOKEN[:-1]}",
        f"offset={TOKEN.replace('_', '.')}",
        "live=sse",
        "live=long-poll&cursor=1",
    ],
)
def test_bad_offsets(query: str) -> None:
    with pytest.raises(InvalidOffset):
        ReadQuery(query.encode())


@pytest.mark.parametrize(
    "query",
    [
        b"live=yes&offset=-1",
        b"live=SSE&offset=-1",
        b"offset=%FF",
        b"\xff=1",
        b"&".join(b"a%d=1" % n for n in range(100)),
    ],
)
def test_bad_queries(query: bytes) -> None:
    with pytest.raises(InvalidQuery):
        ReadQuery(query)


@pure
@given(st.binary(max_size=80) | st.text("offset=live&-1nowse%0_+;", max_size=60).map(str.encode))
def test_any_query_is_read_or_refused(query: bytes) -> None:
    with suppress(InvalidOffset, InvalidQuery):
        read = ReadQuery(query)
        assert read.live in (None, "sse", "long-poll")
        assert read.cursor is None or read.cursor >= 0
