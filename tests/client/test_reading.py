"""Reads against a model server, over a network that may cut anything anywhere.

The model keeps a list of appends and answers the way the protocol says. Hypothesis decides how much
each answer holds, which answers are lost and where an event stream is cut. However it does that,
the reader must yield the content exactly once, also when it is stopped and resumed.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client.errors import BadRequest, InvalidMessage, StreamNotFound, UnexpectedAnswer
from headwater.client.protocol.batch import Batch, Position
from headwater.client.protocol.reading import ReadSession, starts_at
from headwater.client.protocol.streams import Live, Request, Response
from headwater.client.protocol.unpack import ItemQueue, UnpackBytes, UnpackMessages, UnpackText

URL = "http://server/v1/stream/s"
JSON = "application/json"
EVENTS = {"content-type": "text/event-stream"}
TROUBLED_REQUESTS = 50


class ModelServer:
    """A stream whose appends become visible one by one, then is closed."""

    def __init__(self, content_type: str, appends: list[Any], visible: int) -> None:
        self.content_type = content_type
        self.appends = appends
        self.visible = visible
        self.is_closed = False
        self.requests = 0

    @property
    def is_calm(self) -> bool:
        """Nothing more goes wrong: an endless fault would prove nothing, and take forever."""
        return self.requests > TROUBLED_REQUESTS

    @staticmethod
    def offset(index: int) -> str:
        return f"{0:016d}_{index:016d}"

    def index(self, offset: str) -> int:
        if offset == "-1":
            return 0
        return self.visible if offset == "now" else int(offset.split("_")[1])

    def payload(self, start: int, end: int) -> bytes:
        if self.content_type == JSON:
            return msgspec.json.encode([m for append in self.appends[start:end] for m in append])
        return b"".join(self.appends[start:end])

    def answer(self, request: Request, appends_max: int) -> Response:
        """Answer a plain read or a long-poll."""
        start = self.index(request.params["offset"])
        end = min(self.visible, start + appends_max)
        headers = {"stream-next-offset": self.offset(end), "content-type": self.content_type}
        if request.patience == "long-poll":
            headers["stream-cursor"] = "1"
        if end == self.visible:
            headers["stream-up-to-date"] = "true"
            if self.is_closed:
                headers["stream-closed"] = "true"
        if start == end and request.patience == "long-poll":
            del headers["content-type"]
            return Response(204, headers)
        return Response(200, headers, self.payload(start, end))

    def events(self, request: Request, sizes: list[int]) -> bytes:
        """The event stream from an offset to the end, cut into events of that many appends."""
        start, text = self.index(request.params["offset"]), b""
        for size in [*sizes, len(self.appends)]:
            end = min(self.visible, start + max(1, size))
            if start < end:
                text += b"event: data\n" + self.data_lines(self.payload(start, end)) + b"\n"
            control: dict[str, Any] = {"streamNextOffset": self.offset(end), "streamCursor": "1"}
            if end == self.visible:
                control["streamClosed" if self.is_closed else "upToDate"] = True
            text += b"event: control\ndata: " + msgspec.json.encode(control) + b"\n\n"
            start = end
            if end == self.visible:
                break
        return text

    def data_lines(self, payload: bytes) -> bytes:
        if self.content_type == "application/octet-stream":
            payload = base64.b64encode(payload)
        return b"".join(b"data: " + line + b"\n" for line in payload.split(b"\n"))

    def event_headers(self) -> dict[str, str]:
        binary = self.content_type == "application/octet-stream"
        return EVENTS | ({"stream-sse-data-encoding": "base64"} if binary else {})


def read_some(
    server: ModelServer, session: ReadSession, draw: Callable[[st.SearchStrategy[Any]], Any]
) -> None:
    """One request and whatever comes of it."""
    request = session.next_request()
    server.requests += 1
    hidden = len(server.appends) - server.visible
    if not hidden:
        server.is_closed = True
    elif server.is_calm or draw(st.booleans()):
        server.visible += draw(st.integers(1, hidden))
    if not server.is_calm and draw(st.integers(0, 3)) == 3:
        return  # the answer is lost
    if request.patience != "sse":
        session.answered(server.answer(request, draw(st.integers(1, 3))))
        return
    text = server.events(request, draw(st.lists(st.integers(1, 3), max_size=3)))
    text = text[: len(text) - (0 if server.is_calm else draw(st.integers(0, len(text))))]
    events = session.events(server.event_headers())
    step = draw(st.integers(1, 50))
    for index in range(0, len(text), step):
        events.feed(text[index : index + step])


def drain(
    server: ModelServer, start: Position, live: Live | None, queue: ItemQueue[Any], data: Any
) -> tuple[list[Any], bool]:
    """Take items until the end, or until Hypothesis wants to stop; True at the end."""
    session = ReadSession(URL, start=start, live=live)
    items = []
    while True:
        for item in queue.iterator:
            items.append(item)
            if data.draw(st.integers(0, 9)) == 9:
                return items, False
        if session.ready:
            queue.load(session.ready.popleft())
        elif session.finished:
            return items, True
        else:
            read_some(server, session, data.draw)


def read_with_stops(
    server: ModelServer, live: Live | None, unpacker: Callable[[], Any], data: Any
) -> list[Any]:
    """Everything a reader yields that is stopped at will and resumes from its saved position."""
    position, items, finished = Position(), [], False
    while not finished:
        queue: ItemQueue[Any] = ItemQueue(unpacker(), position)
        more, finished = drain(server, position, live, queue, data)
        items += more
        position = Position.parse(str(queue.position))
    return items


LIVE = st.sampled_from([None, "long-poll", "sse"])
MESSAGES: st.SearchStrategy[Any] = st.one_of(
    st.integers(0, 99), st.text(max_size=3), st.just([]), st.just({})
)


@given(LIVE, st.lists(st.lists(MESSAGES, min_size=1, max_size=4), max_size=6), st.data())
def test_json_messages_arrive_exactly_once(
    live: Live | None, appends: list[list[Any]], data: Any
) -> None:
    server = ModelServer(JSON, appends, visible=0 if live else len(appends))
    items = read_with_stops(server, live, UnpackMessages, data)
    assert items == [message for append in appends for message in append]


@given(LIVE, st.lists(st.binary(min_size=1, max_size=9), max_size=6), st.data())
def test_bytes_arrive_exactly_once(live: Live | None, appends: list[bytes], data: Any) -> None:
    server = ModelServer("application/octet-stream", appends, 0 if live else len(appends))
    items = read_with_stops(server, live, UnpackBytes, data)
    assert b"".join(items) == b"".join(appends)


@given(st.sampled_from([None, "long-poll"]), st.text(max_size=12), st.data())
def test_text_is_never_cut_inside_a_character(live: Live | None, text: str, data: Any) -> None:
    encoded = text.encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(encoded)), max_size=5)))
    edges = [0, *cuts, len(encoded)]
    appends = [encoded[a:b] for a, b in pairwise(edges) if a < b]
    server = ModelServer("text/plain", appends, 0 if live else len(appends))
    assert "".join(read_with_stops(server, live, UnpackText, data)) == text


# --- Single rules --------------------------------------------------------------------------------


def session_at(offset: str, live: Live | None = None, content_type: str = JSON) -> ReadSession:
    session = ReadSession(URL, start=Position(offset), live=live)
    session.content_type = content_type
    return session


def answer(next_offset: str, body: bytes = b"", status: int = 200, **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(status, {"stream-next-offset": next_offset, **named}, body)


def test_now_becomes_a_real_offset_before_going_live() -> None:
    session = ReadSession(URL, start=Position("now"), live="sse")
    assert session.next_request().params == {"offset": "now"}
    session.answered(answer("0_5", b"[]", content_type=JSON, stream_up_to_date="true"))
    assert session.next_request().params == {"offset": "0_5", "live": "sse"}


def test_the_cursor_is_sent_back() -> None:
    session = session_at("0_1", live="long-poll")
    session.answered(answer("0_1", status=204, stream_cursor="41"))
    session.answered(answer("0_1", status=204, stream_cursor="42"))
    assert session.next_request().params["cursor"] == "42"


def test_falling_behind_leads_back_to_catching_up() -> None:
    session = session_at("0_1", live="long-poll")
    session.answered(answer("0_1", status=204))
    session.answered(answer("0_2", b"[1]"))
    assert "live" not in session.next_request().params


def test_a_batch_without_data_tells_news_once() -> None:
    session = session_at("0_1", live="long-poll")
    for _ in range(3):
        session.answered(answer("0_1", status=204, stream_up_to_date="true"))
    session.answered(answer("0_1", status=204, stream_closed="true"))
    assert [(bool(b), b.up_to_date, b.closed) for b in session.ready] == [
        (False, True, False),
        (False, True, True),
    ]
    assert session.finished


@pytest.mark.parametrize(
    "response",
    [
        answer("0_4", b"[1]"),  # brings data but does not move
        answer("0_3", b"[1]"),  # an earlier answer, repeated
        answer("0_3", b"[]"),
        answer("0_5", b"[1"),  # cut short without anyone noticing
        answer("0_5", b"1]"),
        answer("0_5", b"[1,2]", etag='"cGF0aA==:0_2:0_5"'),  # answers a read from elsewhere
        answer("0_5", b"[1,2]", etag='"cGF0aA==:-1:0_5:c"'),
        Response(200, {}, b"[1]"),
    ],
)
def test_an_answer_that_cannot_be_ours_changes_nothing(response: Response) -> None:
    session = session_at("0_4")
    with pytest.raises(UnexpectedAnswer):
        session.answered(response)
    assert session.offset == "0_4"
    assert not session.ready


@pytest.mark.parametrize(
    "etag, offset",
    [
        ("", "0_4"),
        ('"opaque"', "0_4"),
        ('"a:b:c"', "0_4"),
        ('"cGF0aA==:0_4:0_5"', "0_4"),
        ('"cGF0aA==:0_4:0_5"', "now"),
        ('"cGF0aA==:-1:0_5"', "-1"),
        ('"cGF0aA==:0_0:0_5"', "-1"),
        ('W/"cGF0aA==:0_4:0_5:c-gzip"', "0_4"),
        ('"cGF0aA==:0000000000000002_0000000000000004:0_5"', "0000000000000001_0000000000000004"),
    ],
)
def test_an_entity_tag_that_is_no_objection(etag: str, offset: str) -> None:
    assert starts_at(etag, offset)


def test_a_read_from_the_start_begins_where_retention_left_off() -> None:
    tag = '"cGF0aA==:0_40000:0_60000"'
    assert starts_at(tag, "-1", earliest="7_40000")
    assert not starts_at(tag, "-1")  # the answer to some other request
    assert not starts_at(tag, "-1", earliest="7_20000")
    assert not starts_at(tag, "0_30000", earliest="7_40000")


def control(next_offset: str, **fields: bool) -> bytes:
    body = msgspec.json.encode({"streamNextOffset": next_offset, **fields})
    return b"event: control\ndata: " + body + b"\n\n"


def test_several_data_events_may_share_a_control_event() -> None:
    session = session_at("0_1", live="sse")
    session.events(EVENTS).feed(
        b"event: data\ndata: [1]\n\nevent: data\ndata: [2,3]\n\n" + control("0_9")
    )
    assert [batch.messages() for batch in session.ready] == [[1, 2, 3]]
    assert session.ready[0].data == b"[1,2,3]"


def test_a_batch_before_a_broken_event_is_kept() -> None:
    session = session_at("0_1", live="sse")
    text = b"event: data\ndata: [1]\n\n" + control("0_2") + b"event: control\ndata: {}\n\n"
    with pytest.raises(UnexpectedAnswer):
        session.events(EVENTS).feed(text)
    assert session.offset == "0_2"
    assert [batch.messages() for batch in session.ready] == [[1]]


@pytest.mark.parametrize(
    "headers, text",
    [
        ({"stream-sse-data-encoding": "base64"}, b"event: data\ndata: %%%\n\n"),
        ({}, b"event: control\ndata: nonsense\n\n"),
        ({}, b'event: control\ndata: {"streamNextOffset": 5}\n\n'),
        ({}, control("0_0")),
        ({}, b"event: data\ndata: [1]\n\n" + control("0_1")),
    ],
)
def test_events_that_make_no_sense(headers: dict[str, str], text: bytes) -> None:
    session = session_at("0_1", live="sse")
    with pytest.raises(UnexpectedAnswer):
        session.events(EVENTS | headers).feed(text)
    assert session.offset == "0_1"


def test_an_event_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.client.protocol.reading.ANSWER_BYTES_MAX", 1000)
    events = session_at("0_1", live="sse").events(EVENTS)
    for position in range(2, 10):
        # Many that end are no problem.
        events.feed(b"event: data\ndata: [" + b" " * 200 + b"1]\n\n" + control(f"0_{position}"))
    events.feed(b"data: " + b"x" * 900)
    with pytest.raises(UnexpectedAnswer, match="over 1000 bytes"):
        events.feed(b"x" * 100)


def test_an_answer_that_is_no_event_stream() -> None:
    with pytest.raises(UnexpectedAnswer):
        session_at("0_1", live="sse").events({"content-type": JSON})


def test_unknown_events_are_ignored() -> None:
    session = session_at("0_1", live="sse")
    session.events(EVENTS).feed(b"event: news\ndata: x\n\n: comment\n\n" + control("0_1"))
    assert session.offset == "0_1"


def test_a_stream_deleted_while_it_is_followed() -> None:
    session = session_at("0_1", live="sse")
    with pytest.raises(StreamNotFound):
        session.events(EVENTS).feed(b"event: deleted\ndata: 0_1\n\n")


def test_a_position_behind_the_end() -> None:
    session = ReadSession(URL, start=Position("0_1", skip=5), live=None)
    with pytest.raises(BadRequest, match="3 items past the end"):
        session.answered(answer("0_2", b"[1,2]", content_type=JSON, stream_up_to_date="true"))


# --- Positions and batches -----------------------------------------------------------------------


@given(st.text(alphabet="0123456789_abc-", min_size=1), st.integers(0, 10**9))
def test_positions_survive_as_text(offset: str, skip: int) -> None:
    assert Position.parse(str(Position(offset, skip))) == Position(offset, skip)


@pytest.mark.parametrize("text", ["", "/3", "0_1/x", "0_1/", "0_1/-1", "0_1/1/2"])
def test_text_that_is_no_position(text: str) -> None:
    with pytest.raises(ValueError, match="not a position"):
        Position.parse(text)


def batch_of(*payloads: bytes, content_type: str = JSON, closed: bool = False) -> Batch:
    return Batch(Position("0_1"), "0_2", content_type, closed=closed, payloads=payloads)


def test_messages_are_decoded_to_a_type() -> None:
    class Order(msgspec.Struct):
        id: int

    batch = batch_of(b'[{"id": 1}]', b'[{"id": 2}]')
    assert batch.messages(Order) == [Order(1), Order(2)]
    with pytest.raises(InvalidMessage, match="0_1"):
        batch.messages(int)


def test_raw_messages_are_the_bytes_that_were_appended() -> None:
    raw = batch_of(b'[1.0, {"b":1,"a":1, "a":2},123456789012345678901234567890]').raw_messages()
    assert [bytes(message) for message in raw] == [
        b"1.0",
        b'{"b":1,"a":1, "a":2}',
        b"123456789012345678901234567890",
    ]


@pytest.mark.parametrize(
    "payloads, has_data",
    [((), False), ((b"[]",), False), ((b" [ ] ",), False), ((b"[[]]",), True), ((b"[0]",), True)],
)
def test_an_empty_batch_is_false(payloads: tuple[bytes, ...], has_data: bool) -> None:
    assert bool(batch_of(*payloads)) is has_data


def test_broken_text() -> None:
    assert batch_of("é".encode(), content_type="text/plain").text == "é"
    with pytest.raises(InvalidMessage):
        _ = batch_of(b"\xff", content_type="text/plain").text
    with pytest.raises(InvalidMessage):
        UnpackText().unpack(batch_of(b"\xff", content_type="text/plain"))
    with pytest.raises(InvalidMessage):
        UnpackText().unpack(batch_of(b"\xc3", content_type="text/plain", closed=True))
