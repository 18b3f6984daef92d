"""The encoding of events: whatever the data, a reader gets it back, as one event."""

from __future__ import annotations

import json
from base64 import b64decode
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core import json_mode
from headwater.core.stream import StreamConfig
from headwater.http.feeds import sse
from tests.http.events import Event, EventParser

# How fast the machine is says nothing about the code.
pure = settings(deadline=None)

TEXT = StreamConfig(1, "s", "text/plain", 0)
JSON = StreamConfig(1, "s", "application/json", 0)
BINARY = StreamConfig(1, "s", "application/octet-stream", 0)
TOKEN = "0000000000000001_0000000000000007"

# Texts in which what matters to the framing is frequent.
tricky = st.text(st.sampled_from("\r\n: abcdevnt\u2028\ufeff\x00"), max_size=40)


def parse(data: bytes) -> list[Event]:
    return EventParser().feed(data)


def as_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


@pure
@given(st.lists(tricky | st.text(), min_size=1, max_size=4))
def test_text_comes_back_line_by_line(parts: list[str]) -> None:
    (event,) = parse(sse.data_event(TEXT, [part.encode() for part in parts]))
    assert event == Event("data", as_lines("".join(parts)))


@pure
@given(st.lists(st.binary(), min_size=1, max_size=4))
def test_bytes_come_back_exactly(parts: list[bytes]) -> None:
    (event,) = parse(sse.data_event(BINARY, parts))
    assert event.kind == "data"
    assert b64decode(event.data, validate=True) == b"".join(parts)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | tricky,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(tricky, inner, max_size=3),
    max_leaves=8,
)


@pure
@given(st.lists(json_values, min_size=1, max_size=4), st.sampled_from([None, 1]))
def test_json_comes_back_as_one_array(values: list[object], indent: int | None) -> None:
    bodies = [json_mode.encode(json.dumps([value], indent=indent).encode())[0] for value in values]
    (event,) = parse(sse.data_event(JSON, bodies))
    assert json.loads(event.data) == values


@pure
@given(st.lists(tricky, min_size=1, max_size=5))
def test_events_do_not_run_into_each_other(texts: list[str]) -> None:
    stream = b"".join(
        sse.data_event(TEXT, [text.encode()])
        + sse.control_event(TOKEN, 7, up_to_date=True, closed=False)
        for text in texts
    )
    events = parse(stream)
    assert [event.kind for event in events] == ["data", "control"] * len(texts)
    assert [event.data for event in events[::2]] == [as_lines(text) for text in texts]


@pure
@given(tricky, st.lists(st.integers(0, 200)))
def test_it_does_not_matter_how_the_bytes_arrive(text: str, cuts: list[int]) -> None:
    # CR is never sent, so a line is complete when its LF has come.
    stream = sse.data_event(TEXT, [text.encode("utf-8")])
    assert b"\r" not in stream
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    # A reader decodes whole characters; here the cuts are made between lines only.
    places = [place for place in places if place in (0, len(stream)) or stream[place - 1] == 10]
    parser, events = EventParser(), []
    for start, end in pairwise(places):
        events += parser.feed(stream[start:end])
    assert events == [Event("data", as_lines(text))]


@pytest.mark.parametrize(
    "up_to_date, closed, expected",
    [
        (False, False, {"streamNextOffset": TOKEN, "streamCursor": "7"}),
        (True, False, {"streamNextOffset": TOKEN, "streamCursor": "7", "upToDate": True}),
        (True, True, {"streamNextOffset": TOKEN, "upToDate": True, "streamClosed": True}),
    ],
)
def test_control_events(up_to_date: bool, closed: bool, expected: dict[str, object]) -> None:
    (event,) = parse(sse.control_event(TOKEN, 7, up_to_date=up_to_date, closed=closed))
    assert (event.kind, event.json) == ("control", expected)


def test_the_deleted_event_says_where_the_reader_was() -> None:
    (event,) = parse(sse.deleted_event(TOKEN))
    assert (event.kind, event.json) == ("deleted", {"streamNextOffset": TOKEN})


def test_a_sign_of_life_is_no_event() -> None:
    parser = EventParser()
    assert parser.feed(sse.KEEP_ALIVE) == []
    assert parser.comments == 1


@pytest.mark.parametrize(
    "content_type, expected",
    [
        ("text/plain", False),
        ("TEXT/HTML; charset=utf-8", False),
        ("application/json;charset=utf-8", False),
        ("application/octet-stream", True),
        ("application/x-ndjson", True),
        ("image/svg+xml", True),
    ],
)
def test_what_needs_base64(content_type: str, expected: bool) -> None:
    assert sse.needs_base64(StreamConfig(1, "s", content_type, 0)) is expected
