"""Answers in bulk, over connections of their own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from headwater.client import ConnectionFailed, Headwater
from headwater.client.errors import StreamNotFound
from pyspark_headwater.large_answers import LargeAnswers
from pyspark_headwater.options import read_options
from pyspark_headwater.wire import BEGINNING, Wire
from tests.spark.world import Gateway, World


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def wire_to(url: str, retry_s: int = 30) -> Iterator[Wire]:
    options = {"endpoint": url, "stream": "any", "retryTimeout": str(retry_s)}
    wire = Wire(read_options(options, "batch read").server)
    yield wire
    wire.close()


@contextmanager
def answering(answer: Callable[[int], bytes]) -> Iterator[str]:
    """A server that answers each connection with some bytes and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            number = 0
            while True:
                try:
                    peer, _ = listening.accept()
                except OSError:
                    return
                with peer:
                    peer.recv(65536)
                    peer.sendall(answer(number))
                number += 1

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(60)


def rows_in(data: bytes) -> int:
    with pa.ipc.open_stream(data) as reader:
        return sum(batch.num_rows for batch in reader)


def test_bulk_answers_and_refusals(world: World) -> None:
    stream = world.stream("events", [1, 2], [3])
    with wire_to(world.url) as wire:
        for _ in range(3):
            answer = wire.bulk(world.name(), "-1", stream.head().next_offset or "", headers=True)
            assert rows_in(answer.data) == 3
        with pytest.raises(StreamNotFound):
            wire.bulk(world.name("nothing"), BEGINNING, BEGINNING, headers=False)


def test_a_connection_that_the_server_closed_is_replaced(world: World) -> None:
    stream = world.stream("events", [1, 2])
    until = stream.head().next_offset or ""
    gateway = Gateway(world.url, lambda number, *_: "lose answer" if number == 1 else "pass")
    with gateway.running(), wire_to(gateway.url) as wire:
        for _ in range(3):
            assert rows_in(wire.bulk(world.name(), "-1", until, headers=False).data) == 2
    assert [fate for _, fate in gateway.seen] == ["pass", "lose answer", "pass", "pass"]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n",
    ],
)
def test_answers_that_are_none_are_failures_of_the_connection(answer: bytes) -> None:
    with (
        answering(lambda _: answer) as url,
        wire_to(url, 0) as wire,
        pytest.raises(ConnectionFailed),
    ):
        wire.bulk("any", BEGINNING, "x", headers=False)


def test_an_answer_that_was_cut_short_is_asked_for_again(world: World) -> None:
    stream = world.stream("events", [1])
    until = stream.head().next_offset or ""
    with wire_to(world.url) as wire:
        whole = wire.bulk(world.name(), "-1", until, headers=False)
    head = b"HTTP/1.1 200 OK\r\nStream-Next-Offset: %b\r\n" % until.encode()
    full = head + b"Content-Length: %d\r\n\r\n" % len(whole.data) + whole.data
    with (
        answering(lambda number: full[: -1 if number == 0 else None]) as url,
        wire_to(url) as wire,
    ):
        assert rows_in(wire.bulk("any", "-1", until, headers=False).data) == 1


def test_what_goes_through_a_proxy_goes_the_usual_way(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.stream("events", [1])
    asked: list[str] = []
    monkeypatch.setattr(LargeAnswers, "_fetch", lambda *_: asked.append("directly"))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "elsewhere")
    with wire_to(world.url) as wire, Headwater(world.url) as client:
        until = client.stream(world.name()).head().next_offset or ""
        wire.bulk(world.name(), "-1", until, headers=False)
    assert asked == []
