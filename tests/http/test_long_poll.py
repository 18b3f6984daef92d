"""Long-polls: data that is there, data that comes, time that runs out, streams that end."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from contextlib import ExitStack

import brotli  # type: ignore[import-untyped]  # it has no stubs
import pytest

from headwater.core.stream import StreamConfig
from headwater.http.feeds.long_poll import LongPoll
from headwater.http.feeds.readers import Cursors
from headwater.http.messages import Request, Response
from headwater.http.reads import CATCH_UP_CACHE, Packing
from headwater.service.chunks import Chunk
from headwater.service.following import Update
from tests.http.client import CLOSE, JSON, TEXT, Client, error_code, eventually, fresh
from tests.http.wire import request_bytes

NOW = "offset=now"


def poll(query: str) -> str:
    return f"{query}&live=long-poll"


# ── Data that is there ───────────────────────────────────────────────────────────────────────


def test_data_that_is_there_comes_at_once(client: Client) -> None:
    path = client.create(TEXT, b"one")
    reply = client.get(path, poll("offset=-1"))
    assert (reply.status, reply.body) == (200, b"one")
    assert reply.headers["Content-Type"] == "text/plain"
    assert reply.headers["Stream-Up-To-Date"] == "true"
    assert reply.headers["Stream-Cursor"].isdigit()
    assert reply.headers["ETag"] == client.get(path).headers["ETag"]


def test_data_that_is_there_is_conditional(client: Client) -> None:
    path = client.create(TEXT, b"one")
    tag = client.get(path).headers["ETag"]
    assert client.get(path, poll("offset=-1"), {"If-None-Match": tag}).status == 304


def test_the_rest_of_a_closed_stream_comes_at_once(client: Client) -> None:
    path = client.create(TEXT, b"one")
    client.close(path)
    reply = client.get(path, poll("offset=-1"))
    assert (reply.status, reply.body) == (200, b"one")
    assert reply.headers["Stream-Closed"] == "true"


@pytest.mark.parametrize("offset", ["now", "tail"])
def test_the_end_of_a_closed_stream_is_said_at_once(client: Client, offset: str) -> None:
    path = client.create(TEXT, b"one")
    client.close(path)
    tail = client.head(path).next_offset
    reply = client.get(path, poll(f"offset={tail if offset == 'tail' else offset}"))
    assert (reply.status, reply.body) == (204, b"")
    assert reply.headers["Stream-Closed"] == "true"
    assert reply.next_offset == tail


# ── Data that comes ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("offset", ["now", "-1"])
def test_an_append_ends_the_wait(client: Client, offset: str) -> None:
    path = client.create(TEXT)
    with client.long_poll(path, f"offset={offset}") as waiting:
        end = client.post(path, b"news", TEXT).next_offset
        reply = waiting.reply()
    assert (reply.status, reply.body) == (200, b"news")
    assert reply.next_offset == end
    assert reply.headers["Stream-Up-To-Date"] == "true"
    assert reply.headers["Stream-Cursor"].isdigit()
    assert reply.headers["Cache-Control"] == CATCH_UP_CACHE
    # The same data by a plain read ends at the tail, and goes stale with the next append.
    assert client.get(path).headers["Cache-Control"] == "no-cache"


def test_json_that_comes_is_an_array(client: Client) -> None:
    path = client.create(JSON, b"1")
    with client.long_poll(path, NOW) as waiting:
        client.post(path, b"[2,3]", JSON)
        assert waiting.reply().body == b"[2,3]"


def test_everyone_who_waits_is_told(client: Client) -> None:
    path = client.create(TEXT, b"old")
    with ExitStack() as stack:
        waiting = [stack.enter_context(client.long_poll(path, NOW)) for _ in range(10)]
        client.post(path, b"news", TEXT)
        assert {wire.reply().body for wire in waiting} == {b"news"}
    eventually(lambda: client.readers(path) == 0)


@pytest.mark.parametrize("size", [2_000, 200_000])
async def test_everyone_is_sent_the_same_body(size: int) -> None:
    """However they ask: a body for each of ten thousand would fill any memory."""
    config = StreamConfig(1, "s", "application/json", 0)
    chunk = Chunk(config, 0, size, [b'"%b",' % (b"x" * (size - 3))], True, False)
    packed: list[bytes] = []

    async def in_thread(pack: Callable[[], bytes]) -> bytes:
        packed.append(body := pack())
        return body

    update, packing, polls = Update([chunk]), Packing(in_thread), []
    for number in range(30):
        encodings = (b"identity", b"br;q=1.%d" % number, b"gzip, x%d" % number)[number % 3]
        headers = {b"accept-encoding": encodings, b"if-none-match": b'"%d"' % number}
        request = Request("GET", b"/", b"", headers)
        polls.append(LongPoll(request, 0, number, Cursors(lambda: 0), packing))
        polls[-1].take(update)
    answers = [await one.answer for one in polls]
    bodies = [one.body for one in answers if isinstance(one, Response)]
    assert bodies[0] == b'["%b"]' % (b"x" * (size - 3))
    assert brotli.decompress(bodies[1]) == bodies[0]
    assert isinstance(bodies[2], bytes)
    assert gzip.decompress(bodies[2]) == bodies[0]
    assert len({id(body) for body in bodies}) == 3
    assert len(packed) in (0, 2)


def test_the_connection_can_be_used_again(client: Client) -> None:
    path = client.create(TEXT)
    with client.long_poll(path, NOW) as wire:
        client.post(path, b"one", TEXT)
        assert wire.reply().body == b"one"
        assert wire.request("GET", f"/v1/stream/{path}").body == b"one"


def test_closing_ends_the_wait(client: Client) -> None:
    path = client.create(TEXT, b"one")
    with client.long_poll(path, NOW) as waiting:
        client.close(path)
        reply = waiting.reply()
    assert reply.status == 204
    assert reply.headers["Stream-Closed"] == "true"
    assert reply.next_offset == client.head(path).next_offset


def test_closing_with_data_ends_the_wait_with_both(client: Client) -> None:
    path = client.create(TEXT, b"one")
    with client.long_poll(path, NOW) as waiting:
        client.post(path, b"last", TEXT | CLOSE)
        reply = waiting.reply()
    assert (reply.status, reply.body) == (200, b"last")
    assert reply.headers["Stream-Closed"] == "true"


def test_deleting_ends_the_wait(client: Client) -> None:
    path = client.create(TEXT, b"one")
    with client.long_poll(path, NOW) as waiting:
        client.delete(path)
        reply = waiting.reply()
    assert (reply.status, error_code(reply)) == (404, "stream_not_found")


def test_soft_deleting_ends_the_wait(client: Client) -> None:
    path = client.create(TEXT, b"one")
    client.create(TEXT | {"Stream-Forked-From": f"/v1/stream/{path}"})
    with client.long_poll(path, NOW) as waiting:
        client.delete(path)
        reply = waiting.reply()
    assert (reply.status, error_code(reply)) == (410, "stream_gone")


def test_a_fork_does_not_hear_its_source(client: Client) -> None:
    source = client.create(TEXT, b"one")
    fork = client.create(TEXT | {"Stream-Forked-From": f"/v1/stream/{source}"})
    with client.long_poll(fork, NOW) as waiting:
        client.post(source, b"not for the fork", TEXT)
        client.post(fork, b"for the fork", TEXT)
        assert waiting.reply().body == b"for the fork"


def test_one_who_hangs_up_is_forgotten(client: Client) -> None:
    path = client.create(TEXT, b"one")
    for _ in range(5):
        with client.long_poll(path, NOW):
            pass
    eventually(lambda: client.readers(path) == 0)
    with client.long_poll(path, NOW) as waiting:
        client.post(path, b"news", TEXT)
        assert waiting.reply().body == b"news"


# ── Time that runs out ───────────────────────────────────────────────────────────────────────


def test_time_runs_out(hasty: Client) -> None:
    path = hasty.create(TEXT, b"one")
    reply = hasty.get(path, poll(NOW))
    assert (reply.status, reply.body) == (204, b"")
    assert reply.next_offset == hasty.head(path).next_offset
    assert reply.headers["Stream-Up-To-Date"] == "true"
    assert reply.headers["Stream-Cursor"].isdigit()
    assert "ETag" not in reply.headers
    assert "Stream-Closed" not in reply.headers


def test_a_reader_that_polls_on_misses_nothing(hasty: Client) -> None:
    path = hasty.create(TEXT)
    offset, seen, sent = "-1", b"", b""
    for n in range(6):
        if n % 2:
            body = b"%d" % n
            sent += body
            hasty.post(path, body, TEXT)
        reply = hasty.get(path, poll(f"offset={offset}"))
        assert reply.status == (200 if n % 2 else 204)
        seen += reply.body
        offset = reply.next_offset
    assert seen == sent


def test_pipelined_polls_are_answered_in_turn(hasty: Client) -> None:
    path = hasty.create(TEXT, b"one")
    target = f"/v1/stream/{path}?{poll(NOW)}"
    with hasty.wire() as wire:
        wire.send(request_bytes("GET", target) * 3 + request_bytes("GET", "/healthz"))
        assert [wire.reply().status for _ in range(4)] == [204, 204, 204, 200]


# ── Cursors ──────────────────────────────────────────────────────────────────────────────────


def cursor_after(client: Client, path: str, sent: str) -> int:
    query = f"offset=-1&cursor={sent}" if sent else "offset=-1"
    return int(client.get(path, poll(query)).headers["Stream-Cursor"])


def test_the_cursor_moves_on(client: Client) -> None:
    path = client.create(TEXT, b"one")
    current = cursor_after(client, path, "")
    # An old cursor gets the current interval, give or take the one that just began.
    assert cursor_after(client, path, "1") - current in (0, 1)
    for ahead in (1, 5, 1000):
        sent = current + ahead
        assert sent < cursor_after(client, path, str(sent)) <= sent + 180


@pytest.mark.parametrize("sent", ["abc", "-5", "1.5", "9" * 40, "%00", "%F0%9F%98%80"])
def test_a_cursor_that_is_none_counts_for_nothing(client: Client, sent: str) -> None:
    path = client.create(TEXT, b"one")
    current = cursor_after(client, path, "")
    assert cursor_after(client, path, sent) - current in (0, 1)


def test_a_cursor_that_waited_moves_on(client: Client) -> None:
    path = client.create(TEXT, b"one")
    sent = cursor_after(client, path, "") + 10
    with client.long_poll(path, f"{NOW}&cursor={sent}") as waiting:
        client.post(path, b"two", TEXT)
        assert sent < int(waiting.reply().headers["Stream-Cursor"]) <= sent + 180


def test_a_cursor_that_ran_out_moves_on(hasty: Client) -> None:
    path = hasty.create(TEXT, b"one")
    sent = int(hasty.get(path, poll("offset=-1")).headers["Stream-Cursor"]) + 10
    reply = hasty.get(path, poll(f"{NOW}&cursor={sent}"))
    assert sent < int(reply.headers["Stream-Cursor"]) <= sent + 180


# ── Refusals ─────────────────────────────────────────────────────────────────────────────────


def test_unknown_streams_are_not_waited_for(client: Client) -> None:
    assert client.get(fresh(), poll(NOW)).status == 404
    assert client.get(fresh(), poll("offset=-1")).status == 404
