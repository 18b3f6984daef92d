"""Peers that take too long are cut off. The server runs inside the test, with short patience."""

from __future__ import annotations

import asyncio
import socket
import struct
import tempfile
from collections.abc import AsyncIterator, Awaitable
from contextlib import aclosing, suppress

import pytest

from headwater.core.limits import Limits
from headwater.http.messages import Answer, EventStream, FileBody, Payload, Request, Response, Sink
from headwater.http.wire import server as server_module
from headwater.http.wire.server import Server, Timeouts
from headwater.store.engine.appends import FileRange
from tests.http.wire import PATIENCE_S

SHORT_S = 0.2
# For what has to be there in time before something else is not.
STALL_S = 1.0
LONG_S = 3600.0
# How long a test goes on with what should have been cut off long before.
ROUNDS, PAUSE_S = 100, 0.05


class Handler:
    """Answers at once, later, never, or with a stream of events."""

    def __init__(self) -> None:
        self.later: asyncio.Future[Answer] | None = None
        self.sink: Sink | None = None
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 - the fixture closes it
        self.asked = asyncio.Event()
        self.left = asyncio.Event()

    def __call__(self, request: Request) -> Answer | Awaitable[Answer]:
        self.asked.set()
        if request.path == b"/later":
            self.later = asyncio.get_running_loop().create_future()
            request.on_disconnect = self.left.set
            return self.later
        if request.path == b"/events":
            return EventStream([], self._begin, self.left.set)
        if request.path == b"/large":
            return Response(200, [], b"x" * 50_000_000)
        if request.path == b"/file":
            self.file.truncate(50_000_000)
            return Response(
                200, [], FileBody([FileRange(self.file, self.file.fileno(), 0, 50_000_000)])
            )
        return Response(200, [], request.body or b"ok")

    def _begin(self, sink: Sink) -> None:
        self.sink = sink
        sink.send(Payload(b"begun"))


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        if not self.writer.is_closing():
            self.writer.write(data)

    def reset(self) -> None:
        """Hang up so that the other side cannot take it for the end of what was to be said."""
        connection: socket.socket = self.writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def is_cut(self) -> bool:
        """Wait until the server hangs up."""
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionResetError):
                while await self.reader.read(65536):
                    pass
        return True

    async def is_cut_while_sending(self, data: bytes) -> bool:
        """Send the same again and again, slowly."""
        cut = asyncio.ensure_future(self.is_cut())
        for _ in range(ROUNDS):
            self.send(data)
            await asyncio.wait([cut], timeout=PAUSE_S)
            if cut.done():
                return cut.result()
        cut.cancel()
        return False


class Place:
    """A server on a port, and everyone who is connected to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server_module, "_SWEEP_S", 0.02)
        self.handler = Handler()
        self.peers: list[Peer] = []
        self._server: Server | None = None
        self._port = 0

    async def open(self, timeouts: Timeouts) -> Peer:
        """Start the server, if that has not happened, and connect."""
        if self._server is None:
            self._server = Server(self.handler, Limits(), timeouts=timeouts)
            self._port = await self._server.start("127.0.0.1", 0)
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self._port))
        self.peers.append(peer)
        return peer

    async def aclose(self) -> None:
        for peer in self.peers:
            peer.writer.close()
            with suppress(ConnectionError):
                await peer.writer.wait_closed()
        if self._server is not None:
            await self._server.stop(0)
        self.handler.file.close()


@pytest.fixture
async def place(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    place = Place(monkeypatch)
    yield place
    await place.aclose()


def only(**short: float) -> Timeouts:
    """Time-outs that are all long, but for those given."""
    return Timeouts(
        **{"head_s": LONG_S, "body_s": LONG_S, "idle_s": LONG_S, "write_s": LONG_S} | short
    )


HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize("start", [b"", b"G", b"GET /", HEAD, HEAD + b"X: y"])
async def test_a_head_that_stops(place: Place, start: bytes) -> None:
    peer = await place.open(only(head_s=SHORT_S))
    peer.send(start)
    assert await peer.is_cut()


@pytest.mark.parametrize(
    "start, drip",
    [(b"GET /", b"x"), (HEAD + b"X: ", b"y"), (HEAD, b"A: b\r\n"), (b"", b"\r\n")],
    ids=["target", "value", "headers", "blank lines"],
)
async def test_a_head_that_drips(place: Place, start: bytes, drip: bytes) -> None:
    """Every byte that comes does not start the clock again."""
    peer = await place.open(only(head_s=SHORT_S))
    peer.send(start)
    assert await peer.is_cut_while_sending(drip)


async def test_a_head_that_drips_behind_another_request(place: Place) -> None:
    peer = await place.open(only(head_s=STALL_S))
    peer.send(HEAD + b"\r\n" + HEAD)
    assert b"ok" in await peer.reader.readuntil(b"ok")
    assert await peer.is_cut_while_sending(b"A: b\r\n")


async def test_a_body_that_stops(place: Place) -> None:
    peer = await place.open(only(body_s=SHORT_S))
    peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf")
    assert await peer.is_cut()


async def test_a_connection_that_is_idle(place: Place) -> None:
    peer = await place.open(only(idle_s=SHORT_S))
    peer.send(HEAD + b"\r\n")
    assert await peer.reader.readuntil(b"ok")
    assert await peer.is_cut()


async def test_idle_is_not_the_same_as_a_slow_head(place: Place) -> None:
    """Between two requests a connection may rest for longer than a head may take."""
    peer = await place.open(only(head_s=STALL_S))
    for _ in range(2):
        peer.send(HEAD + b"\r\n")
        assert await peer.reader.readuntil(b"ok")
        # Another one that begins at the same time and never ends shows that time has passed.
        other = await place.open(only())
        assert await other.is_cut()


@pytest.mark.parametrize("target", [b"/large", b"/file"])
async def test_an_answer_that_is_not_read(place: Place, target: bytes) -> None:
    peer = await place.open(only(write_s=SHORT_S))
    peer.send(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % target)
    # Nothing more is taken from the socket than what fits into the buffer of the reader.
    await asyncio.sleep(5 * SHORT_S)
    received = 0
    async with asyncio.timeout(PATIENCE_S):
        with suppress(ConnectionResetError):
            while data := await peer.reader.read(1_000_000):
                received += len(data)
    assert received < 50_000_000


async def test_a_file_that_is_read_slowly(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that takes something now and then has all the time it needs."""
    try:
        await read_slowly(place, SHORT_S)
    except (asyncio.IncompleteReadError, ConnectionResetError):
        # A machine that stalled for longer than the patience was.
        async with aclosing(Place(monkeypatch)) as other:
            await read_slowly(other, 20 * SHORT_S)


async def read_slowly(place: Place, now_and_then_s: float) -> None:
    peer = await place.open(only(write_s=4 * now_and_then_s, head_s=now_and_then_s))
    peer.send(b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n")
    await peer.reader.readuntil(b"\r\n\r\n")
    received = 0
    while received < 50_000_000:
        async with asyncio.timeout(PATIENCE_S):
            received += len(await peer.reader.readexactly(10_000_000))
        other = await place.open(only())
        assert await other.is_cut(), "time has passed"


async def test_a_file_that_has_become_shorter_ends_the_connection(place: Place) -> None:
    """The length was said already; what is missing must not be made up."""
    peer = await place.open(only())
    peer.send(b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n")
    await peer.reader.readuntil(b"\r\n\r\n")
    place.handler.file.truncate(1_000)
    with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
        await peer.reader.readexactly(50_000_000)


async def test_the_server_may_take_its_time(place: Place) -> None:
    """Time-outs are for peers. A request that is being answered is left alone."""
    peer = await place.open(only(head_s=STALL_S, body_s=SHORT_S, idle_s=STALL_S))
    peer.send(b"GET /later HTTP/1.1\r\nHost: a\r\n\r\n")
    other = await place.open(only())
    assert await other.is_cut()
    assert place.handler.later is not None
    place.handler.later.set_result(Response(200, [], b"late"))
    assert await peer.reader.readuntil(b"late")


async def test_events_may_rest(place: Place) -> None:
    peer = await place.open(only(head_s=STALL_S, body_s=SHORT_S, idle_s=STALL_S))
    peer.send(b"GET /events HTTP/1.1\r\nHost: a\r\n\r\n")
    assert await peer.reader.readuntil(b"begun")
    other = await place.open(only())
    assert await other.is_cut()
    assert place.handler.sink is not None
    assert place.handler.sink.send(Payload(b"still here"))
    assert await peer.reader.readuntil(b"still here")


@pytest.mark.parametrize("target", [b"/later", b"/events"])
async def test_handlers_hear_of_a_peer_that_goes(place: Place, target: bytes) -> None:
    peer = await place.open(only())
    peer.send(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % target)
    async with asyncio.timeout(PATIENCE_S):
        await place.handler.asked.wait()
        peer.reset()
        await place.handler.left.wait()
