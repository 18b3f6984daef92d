"""Server-Sent Events: what a reader gets, from the first event to the last."""

from __future__ import annotations

import json
from base64 import b64decode
from contextlib import ExitStack

import pytest

from tests.conftest import StartServer
from tests.http.client import (
    CLOSE,
    JSON,
    TEXT,
    Client,
    check_every_response,
    eventually,
)
from tests.http.events import Events, unpack
from tests.http.wire import EndedError, request_bytes

BINARY = {"Content-Type": "application/octet-stream"}


# ── The response ─────────────────────────────────────────────────────────────────────────────


def test_the_response(client: Client) -> None:
    path = client.create(TEXT, b"one")
    with client.events(path) as events:
        headers = events.headers
        assert headers["Content-Type"] == "text/event-stream"
        assert headers["Cache-Control"] == "no-cache"
        assert headers["Transfer-Encoding"] == "chunked"
        for name in ("Content-Length", "Content-Encoding", "ETag", "Stream-SSE-Data-Encoding"):
            assert name not in headers


@pytest.mark.parametrize(
    "content_type, encoded",
    [
        ("text/plain", False),
        ("text/html; charset=utf-8", False),
        ("application/json", False),
        ("application/octet-stream", True),
        ("application/x-protobuf", True),
        ("image/png", True),
        ("application/x-ndjson", True),
    ],
)
def test_which_types_are_base64(client: Client, content_type: str, encoded: bool) -> None:
    path = client.create({"Content-Type": content_type}, b"17")
    with client.events(path) as events:
        said = events.headers.get("Stream-SSE-Data-Encoding")
        assert said == ("base64" if encoded else None)
        data, _ = events.pair()
    expected = "[17]" if content_type == "application/json" else "17"
    assert (b64decode(data).decode() if encoded else data) == expected


# ── Data and control ─────────────────────────────────────────────────────────────────────────


def test_data_then_control(client: Client) -> None:
    path = client.create(TEXT, b"one", b"two")
    with client.events(path) as events:
        data, control = events.pair()
        assert data == "onetwo"
        assert control.keys() == {"streamNextOffset", "streamCursor", "upToDate"}
        assert control["streamNextOffset"] == client.head(path).next_offset
        assert control["streamCursor"].isdigit()
        assert control["upToDate"] is True
        end = client.post(path, b"three", TEXT).next_offset
        data, control = events.pair()
        assert data == "three"
        assert control["streamNextOffset"] == end


@pytest.mark.parametrize("headers", [TEXT, JSON, BINARY], ids=["text", "JSON", "binary"])
def test_an_empty_stream_says_where_it_is(client: Client, headers: dict[str, str]) -> None:
    path = client.create(headers)
    with client.events(path) as events:
        control = events.expect("control").json
        assert control["upToDate"] is True
        assert control["streamNextOffset"] == client.head(path).next_offset


def test_from_now_on(client: Client) -> None:
    path = client.create(TEXT, b"old")
    with client.events(path, "offset=now") as events:
        assert events.expect("control").json["upToDate"] is True
        client.post(path, b"new", TEXT)
        assert events.pair()[0] == "new"


def test_from_a_token_on(client: Client) -> None:
    path = client.create(TEXT, b"one")
    token = client.head(path).next_offset
    client.post(path, b"two", TEXT)
    with client.events(path, f"offset={token}") as events:
        assert events.pair()[0] == "two"


def test_each_data_event_of_json_is_an_array(client: Client) -> None:
    path = client.create(JSON, b'{"n": 1}', b"[2,\r\n 3]")
    with client.events(path) as events:
        assert json.loads(events.pair()[0]) == [{"n": 1}, 2, 3]
        client.post(path, b'{\n"n":\r4\n}', JSON)
        assert json.loads(events.pair()[0]) == [{"n": 4}]


def test_every_byte_survives_base64(client: Client) -> None:
    everything = bytes(range(256)) * 5
    path = client.create(BINARY, everything)
    with client.events(path) as events:
        assert unpack([events.pair()[0]]) == everything
        client.post(path, b"\x00", BINARY)
        assert unpack([events.pair()[0]]) == b"\x00"


def test_resuming_by_offset_misses_nothing_and_repeats_nothing(client: Client) -> None:
    path = client.create(TEXT)
    offset, seen = "-1", ""
    for n in range(10):
        client.post(path, b"%d;" % n, TEXT)
        with client.events(path, f"offset={offset}") as events:
            data, control = events.until_caught_up()
            seen += "".join(data)
            offset = control["streamNextOffset"]
    assert seen == "".join(f"{n};" for n in range(10))


def test_everyone_gets_everything_in_order(client: Client) -> None:
    path = client.create(TEXT, b"start;")
    sent = [b"%d;" % n for n in range(40)]
    with ExitStack() as stack:
        readers = []
        for n, body in enumerate(sent):
            if n % 4 == 0:
                readers.append(stack.enter_context(client.events(path)))
            client.post(path, body, TEXT)
        client.close(path)
        for reader in readers:
            events = reader.rest()
            data = "".join(event.data for event in events if event.kind == "data")
            assert data.encode() == b"start;" + b"".join(sent)
            assert events[-1].json["streamClosed"] is True
    eventually(lambda: client.readers(path) == 0)


# ── No payload can forge an event ────────────────────────────────────────────────────────────

FORGERIES = [
    b"a\nevent: deleted\ndata: {}\n\n",
    b"a\r\n\r\nevent: control\r\ndata: {}\r\n\r\n",
    b"a\r\revent: control\rdata: {}\r\r",
    b"\n\n\n",
    b"\r\n",
    b"\r",
    b"ends with a line\n",
    b"data: x",
    b":comment",
    b"id: 7\nretry: 1",
    b" begins with a blank",
    b"  begins with two",
    b"a\n b\n  c\n\td\n",
    b" ",
    b"\xef\xbb\xbfnot a mark",
    "\u2028\u2029\x85\x0b\x0c are no line ends".encode(),
    b"0\r\n\r\n",
]


def as_lines(body: bytes) -> str:
    """What a reader of events can know of a text: its lines, not how they ended."""
    return body.decode().replace("\r\n", "\n").replace("\r", "\n")


@pytest.mark.parametrize("body", FORGERIES, ids=repr)
def test_text_arrives_as_it_was_and_as_one_event(client: Client, body: bytes) -> None:
    path = client.create(TEXT, body)
    with client.events(path) as events:
        assert events.pair()[0] == as_lines(body)
        client.post(path, body, TEXT)
        assert events.pair()[0] == as_lines(body)
        client.close(path)
        assert [event.kind for event in events.rest()] == ["control"]


@pytest.mark.parametrize("body", FORGERIES, ids=repr)
def test_json_strings_cannot_forge_either(client: Client, body: bytes) -> None:
    message = json.dumps(body.decode()).encode()
    path = client.create(JSON, message)
    client.close(path)
    with client.events(path) as events:
        data, control = events.rest()
    assert json.loads(data.data) == [body.decode()]
    assert control.json["streamClosed"] is True


# ── The end ──────────────────────────────────────────────────────────────────────────────────


def test_a_closed_stream_is_sent_and_ends(client: Client) -> None:
    path = client.create(TEXT, b"one")
    client.close(path)
    with client.events(path) as events:
        data, control = events.rest()
        assert data.data == "one"
        assert control.json == {
            "streamNextOffset": client.head(path).next_offset,
            "upToDate": True,
            "streamClosed": True,
        }
        assert events.wire.is_at_end()


def test_a_closed_stream_at_its_end_says_only_that(client: Client) -> None:
    path = client.create(TEXT, b"one")
    client.close(path)
    with client.events(path, "offset=now") as events:
        (control,) = events.rest()
        assert control.json["streamClosed"] is True
        assert "streamCursor" not in control.json


def test_closing_ends_the_stream(client: Client) -> None:
    path = client.create(TEXT, b"one")
    with client.events(path) as events:
        events.pair()
        client.close(path)
        (control,) = events.rest()
        assert control.json["streamClosed"] is True


def test_the_last_data_comes_before_the_end(client: Client) -> None:
    path = client.create(TEXT, b"one")
    with client.events(path) as events:
        events.pair()
        end = client.post(path, b"last", TEXT | CLOSE).next_offset
        data, control = events.rest()
        assert data.data == "last"
        assert control.json["streamNextOffset"] == end
        assert control.json["streamClosed"] is True


@pytest.mark.parametrize("forked", [False, True], ids=["deleted", "soft-deleted"])
def test_deleting_is_told(client: Client, forked: bool) -> None:
    path = client.create(TEXT, b"one")
    if forked:
        client.create(TEXT | {"Stream-Forked-From": f"/v1/stream/{path}"})
    with client.events(path) as events, client.events(path, "offset=now") as other:
        _, control = events.pair()
        other.expect("control")
        assert client.delete(path).status == 204
        for reader in (events, other):
            (notice,) = reader.rest()
            assert notice.kind == "deleted"
            assert notice.json["streamNextOffset"] == control["streamNextOffset"]
            assert reader.wire.is_at_end()


def test_a_stream_created_again_is_not_followed(client: Client) -> None:
    path = client.create(TEXT, b"one")
    with client.events(path) as events:
        events.pair()
        client.delete(path)
        client.create(TEXT, b"another", path=path)
        assert [event.kind for event in events.rest()] == ["deleted"]


def test_a_fork_does_not_hear_its_source(client: Client) -> None:
    source = client.create(TEXT, b"one")
    fork = client.create(TEXT | {"Stream-Forked-From": f"/v1/stream/{source}"})
    with client.events(fork) as events:
        assert events.pair()[0] == "one"
        client.post(source, b"not for the fork", TEXT)
        client.post(fork, b"for the fork", TEXT)
        assert events.pair()[0] == "for the fork"
        client.delete(source)
        client.close(fork)
        assert [event.kind for event in events.rest()] == ["control"]


def test_a_reader_that_hangs_up_is_forgotten(client: Client) -> None:
    path = client.create(TEXT, b"one")
    for _ in range(5):
        with client.events(path) as events:
            events.pair()
            assert client.readers(path) >= 1
    eventually(lambda: client.readers(path) == 0)


def test_a_connection_ends_in_time_and_in_order(start_server: StartServer) -> None:
    client = Client(start_server("--memory", "--sse-lifetime-ms", "100"))
    path = client.create(TEXT, b"one")
    with client.events(path) as events:
        _, control = events.pair()
        assert events.rest() == []
        assert events.wire.is_at_end()
    client.post(path, b"two", TEXT)
    with client.events(path, f"offset={control['streamNextOffset']}") as events:
        assert events.pair()[0] == "two"


# ── Cursors, versions ────────────────────────────────────────────────────────────────────────


def test_the_cursor_moves_on(client: Client) -> None:
    path = client.create(TEXT, b"one")
    with client.events(path) as events:
        current = int(events.pair()[1]["streamCursor"])
    sent = current + 100
    with client.events(path, f"offset=-1&cursor={sent}") as events:
        assert sent < int(events.pair()[1]["streamCursor"]) <= sent + 180
        client.post(path, b"two", TEXT)
        assert sent < int(events.pair()[1]["streamCursor"]) <= sent + 180
    with client.events(path, "offset=-1&cursor=1") as events:
        assert int(events.pair()[1]["streamCursor"]) - current in (0, 1)


def test_http_1_0_has_no_chunks(client: Client) -> None:
    path = client.create(TEXT, b"one")
    with client.wire() as wire:
        target = f"/v1/stream/{path}?offset=-1&live=sse"
        wire.send(request_bytes("GET", target, version="1.0"))
        head = wire.head()
        check_every_response(head)
        assert "Transfer-Encoding" not in head.headers
        events = Events(wire, head.headers, is_chunked=False)
        assert events.pair()[0] == "one"
        client.post(path, b"two", TEXT | CLOSE)
        assert [event.kind for event in events.rest()] == ["data", "control"]


def test_what_follows_on_the_connection_is_not_answered(client: Client) -> None:
    path = client.create(TEXT, b"one")
    with client.events(path) as events:
        events.pair()
        events.wire.send(request_bytes("GET", "/healthz"))
        client.close(path)
        assert [event.kind for event in events.rest()] == ["control"]
        with pytest.raises(EndedError):
            events.wire.head()


def test_refusals_are_not_event_streams(client: Client) -> None:
    path = client.create(TEXT, b"one")
    for target, status in [("unknown", 404), (path, 400)]:
        reply = client.get(target, "offset=bad&live=sse" if status == 400 else "offset=-1&live=sse")
        assert reply.status == status
        assert reply.headers["Content-Type"] == "application/json"
