"""Streams that end by themselves. These tests wait, but never measure."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

from tests.http.client import CLOSE, TEXT, Client, eventually, fresh, producer


def patiently(attempt: Callable[[int], None]) -> None:
    """Show something with a short life; a machine that stalled for as long is given a long one."""
    for life_s in (2, 10):
        with suppress(AssertionError):
            attempt(life_s)
            return
    attempt(30)


def mortal(client: Client, headers: dict[str, str], path: str | None = None) -> str:
    """A stream with something in it, in one step: its life may be over by the next."""
    path = path or fresh()
    assert client.put(path, TEXT | headers, b"one").status == 201
    return path


def soon(seconds: float) -> str:
    moment = datetime.now(UTC) + timedelta(seconds=seconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_gone(client: Client, path: str) -> bool:
    return client.head(path).status == 404


def accesses(client: Client) -> dict[str, Callable[[str, int], object]]:
    """Everything that restarts a TTL; each gets the stream and the number of the round."""

    def sse(path: str, n: int) -> None:
        with client.events(path) as events:
            events.next()

    def long_poll(path: str, n: int) -> None:
        with client.long_poll(path, "offset=now"):
            pass

    return {
        "read": lambda path, n: client.get(path),
        "read of nothing": lambda path, n: client.get(
            path, f"offset={client.head(path).next_offset}"
        ),
        "offset=now": lambda path, n: client.get(path, "offset=now"),
        "long-poll": long_poll,
        "events": sse,
        "append": lambda path, n: client.post(path, b"x", TEXT),
        "append by a producer": lambda path, n: client.post(path, b"x", TEXT | producer(0, n)),
        "duplicate": lambda path, n: client.post(path, b"x", TEXT | producer(0, 0)),
        "close only": lambda path, n: client.post(path, headers=CLOSE),
        "close only by a producer": lambda path, n: client.post(
            path, headers=CLOSE | producer(0, 0)
        ),
    }


def test_every_access_but_head_restarts_the_ttl(client: Client) -> None:
    patiently(partial(check_restarts, client))


def check_restarts(client: Client, ttl_s: int) -> None:
    kinds, ttl = accesses(client), {"Stream-TTL": str(ttl_s)}
    streams = {kind: mortal(client, ttl) for kind in kinds}
    # A fork inherits the TTL, but its accesses are its own: nobody reads its source here.
    source, fork = mortal(client, ttl), fresh("fork")
    assert client.put(fork, {"Stream-Forked-From": f"/v1/stream/{source}"}).status == 201
    assert client.head(fork).headers["Stream-TTL"] == str(ttl_s)
    for n in range(3):
        for kind, access in kinds.items():
            access(streams[kind], n)
        assert client.get(fork).body == b"one"
        time.sleep(0.45 * ttl_s)
    # By now each would be gone if it were not for the accesses.
    assert [kind for kind, path in streams.items() if is_gone(client, path)] == []
    assert client.get(fork).body == b"one"
    # The source is, but the fork needs it, so its path is held.
    assert client.head(source).status == 410
    assert client.put(source, TEXT).status == 409
    eventually(lambda: all(is_gone(client, path) for path in (*streams.values(), fork, source)))


def test_head_does_not_keep_a_stream_alive(client: Client) -> None:
    path = mortal(client, {"Stream-TTL": "1"}, fresh("mortal"))
    listing = f"/v1/streams?prefix={path}"
    assert [each["ttl_s"] for each in client.json(listing)["streams"]] in ([1], [])
    eventually(lambda: is_gone(client, path))
    assert client.get(path).status == 404
    assert client.post(path, b"x", TEXT).status == 404
    assert client.delete(path).status == 404
    eventually(lambda: client.json(listing)["streams"] == [])
    client.create(TEXT, b"new", path=path)
    assert client.get(path).body == b"new"


def test_an_expiry_does_not_move(client: Client) -> None:
    path = mortal(client, {"Stream-Expires-At": soon(1)})
    eventually(
        lambda: client.get(path).status == 404 or client.post(path, b"x", TEXT).status == 404
    )
    assert client.get(path).status == 404


def test_a_stream_that_is_over_before_it_begins(client: Client) -> None:
    for headers in ({"Stream-TTL": "0"}, {"Stream-Expires-At": "2020-01-01T00:00:00Z"}):
        path = fresh()
        assert client.put(path, TEXT | headers, b"one").status == 201
        assert client.get(path).status == 404


def test_readers_are_told(client: Client) -> None:
    def listen(life_s: int) -> None:
        path = mortal(client, {"Stream-TTL": str(life_s)})
        other = mortal(client, {"Stream-Expires-At": soon(life_s)})
        with client.events(path) as events, client.long_poll(other, "offset=now") as waiting:
            events.pair()
            assert [event.kind for event in events.rest()] == ["deleted"]
            assert waiting.reply().status == 404

    patiently(listen)


def test_a_fork_inherits_the_instant(client: Client) -> None:
    instant = "2100-01-01T00:00:00Z"
    source = client.create(TEXT | {"Stream-Expires-At": instant}, b"one")
    path = fresh()
    client.put(path, {"Stream-Forked-From": f"/v1/stream/{source}"})
    assert client.head(path).headers["Stream-Expires-At"] == instant


def test_a_fork_may_have_its_own(client: Client) -> None:
    source = client.create(TEXT | {"Stream-TTL": "60"}, b"one")
    path = fresh()
    client.put(path, {"Stream-Forked-From": f"/v1/stream/{source}", "Stream-TTL": "7"})
    assert client.head(path).headers["Stream-TTL"] == "7"
    assert client.head(source).headers["Stream-TTL"] == "60"
