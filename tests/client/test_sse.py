"""The event stream parser, fed in every way the network may cut its input."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client.protocol.sse import SseEvent, SseParser

LINE_ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
# Data lines hold no line ends of their own; a server splits payloads at them.
LINES = st.binary(max_size=20).map(lambda line: line.translate(None, b"\r\n"))


@st.composite
def event_streams(draw: st.DrawFn) -> tuple[bytes, list[SseEvent]]:
    """The bytes of an event stream and the events in it."""
    text, events = b"", []
    for _ in range(draw(st.integers(0, 5))):
        end = draw(LINE_ENDS)
        name = draw(st.sampled_from(["data", "control", "message"]))
        lines = draw(st.lists(LINES, min_size=1, max_size=3))
        if draw(st.booleans()):
            text += b": a comment" + end
        if name != "message":
            text += b"event: " + name.encode() + end
        # A leading space is part of the data only if it is the second one.
        text += b"".join(b"data: " + line + end for line in lines) + end
        events.append(SseEvent(name, b"\n".join(lines)))
    return text, events


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


@given(event_streams(), st.lists(st.integers(0, 10_000), max_size=30))
def test_events_do_not_depend_on_how_the_bytes_are_cut(
    stream: tuple[bytes, list[SseEvent]], places: list[int]
) -> None:
    data, expected = stream
    parser = SseParser()
    events = [event for chunk in cut(data, places) for event in parser.feed(chunk)]
    assert events == expected


@given(event_streams())
def test_events_do_not_depend_on_single_bytes(stream: tuple[bytes, list[SseEvent]]) -> None:
    data, expected = stream
    parser = SseParser()
    events = [e for index in range(len(data)) for e in parser.feed(data[index : index + 1])]
    assert events == expected


@given(event_streams(), st.data())
def test_an_event_that_is_cut_off_does_not_count(
    stream: tuple[bytes, list[SseEvent]], data: st.DataObject
) -> None:
    text, expected = stream
    end = data.draw(st.integers(0, len(text)))
    events = SseParser().feed(text[:end])
    assert events == expected[: len(events)]
    if text and end < len(text) - 1:
        assert len(events) < len(expected)


@pytest.mark.parametrize(
    "text, events",
    [
        (b"data:no space\n\n", [SseEvent("message", b"no space")]),
        (b"data:  two spaces\n\n", [SseEvent("message", b" two spaces")]),
        (b"data\n\n", [SseEvent("message", b"")]),
        (b"data:a\ndata:\ndata:b\n\n", [SseEvent("message", b"a\n\nb")]),
        (b"event: data\n\n", []),
        (b"event: data\n\ndata: x\n\n", [SseEvent("message", b"x")]),
        (b"id: 7\nretry: 5\ndata: x\n\n", [SseEvent("message", b"x")]),
        (b"\xef\xbb\xbfdata: x\n\n", [SseEvent("message", b"x")]),
        (b"data: x\r\n\r\n", [SseEvent("message", b"x")]),
        (b"data: a:b\n\n", [SseEvent("message", b"a:b")]),
    ],
)
def test_fields(text: bytes, events: list[SseEvent]) -> None:
    assert SseParser().feed(text) == events


def test_an_empty_chunk_between_carriage_return_and_line_feed_changes_nothing() -> None:
    parser = SseParser()
    chunks = [b"data: a\r", b"", b"\ndata: b\r", b"\n", b"\r\n"]
    assert [e for chunk in chunks for e in parser.feed(chunk)] == [SseEvent("message", b"a\nb")]
