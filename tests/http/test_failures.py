"""Whatever breaks while a request is read or answered: the peer hears of it, and so does the log.

Each test breaks one thing on the way from the socket to the handler and back. The server runs
inside the test; nothing here may hang, and nothing may be left behind.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from headwater.core.limits import Limits
from headwater.http.messages import (
    Answer,
    Deferred,
    EventStream,
    FileBody,
    Request,
    Response,
    Sink,
)
from headwater.http.observe.traffic import Traffic
from headwater.http.wire import file_sending as files
from headwater.http.wire.connection import Connection
from headwater.http.wire.event_sink import EventSink
from headwater.http.wire.inbox import Inbox
from headwater.http.wire.parsing import RequestReader
from headwater.http.wire.reader_budget import ReaderBudget
from headwater.http.wire.response_heads import Heads
from headwater.http.wire.server import Server
from headwater.service.replies import Reply
from headwater.store.engine.appends import FileRange
from tests.http.wire import PATIENCE_S, request_bytes

HOST = "127.0.0.1"
BROKEN = "broken on purpose"
GET = request_bytes("GET", "/plain")
POST = request_bytes("POST", "/plain", body=b"hello")
FILE_BYTES = 20_000
# More than the buffers of two sockets take.
LARGE_BYTES = 32 * 1024 * 1024


def broken(*args: object, **kwargs: object) -> Any:
    raise RuntimeError(BROKEN)


class Handler:
    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 - the fixture closes it
        self.file.truncate(FILE_BYTES)
        self.stopped = 0

    def __call__(self, request: Request) -> Answer | Deferred | Awaitable[Answer]:
        loop = asyncio.get_running_loop()
        match request.path:
            case b"/raises":
                raise RuntimeError(BROKEN)
            case b"/later-raises":
                return self._raise()
            case b"/renders":
                future: asyncio.Future[None] = loop.create_future()
                loop.call_soon(future.set_result, None)
                return Deferred(future, broken)
            case b"/renders-well":
                later: asyncio.Future[None] = loop.create_future()
                loop.call_soon(later.set_result, None)
                return Deferred(later, lambda _: Response(200, [], b"ok"))
            case b"/at-once":
                return Deferred(Reply(None), lambda _: Response(200, [], b"ok"))
            case b"/large":
                return Response(200, [], bytes(LARGE_BYTES))
            case b"/header":
                return Response(200, [("X", "\u20ac")], b"")
            case b"/status":
                return Response(299, [], b"")
            case b"/charge":
                request.charge = broken
            case b"/file":
                stored = FileRange(self.file, self.file.fileno(), 0, FILE_BYTES)
                return Response(200, [], FileBody([stored]))
            case b"/no-file":
                return Response(200, [], FileBody([FileRange(None, -1, 0, FILE_BYTES)]))
            case b"/events":
                return EventStream([], self._begin, self._stop)
            case b"/events-break":
                return EventStream([], broken, self._stop)
            case b"/events-header":
                return EventStream([("X", "\u20ac")], self._begin, self._stop)
            case b"/waits":
                request.wait(broken)
                return loop.create_future()
        return Response(200, [], b"ok")

    async def _raise(self) -> Answer:
        await asyncio.sleep(0)
        raise RuntimeError(BROKEN)

    def _begin(self, sink: Sink) -> None:
        pass

    def _stop(self) -> None:
        self.stopped += 1


class Bench:
    def __init__(self, server: Server, handler: Handler, port: int) -> None:
        self.server, self.handler, self.port = server, handler, port
        self.writers: list[asyncio.StreamWriter] = []

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(HOST, self.port)
        self.writers.append(writer)
        return reader, writer

    async def ask(self, data: bytes) -> bytes:
        """Everything that comes back until the server hangs up."""
        reader, writer = await self.open()
        writer.write(data)
        heard = bytearray()
        async with asyncio.timeout(PATIENCE_S):
            try:
                while part := await reader.read(65536):
                    heard += part
            except ConnectionResetError:
                pass
        return bytes(heard)

    async def works(self) -> bool:
        heard = await self.ask(request_bytes("GET", "/plain", {"Connection": "close"}))
        return heard.startswith(b"HTTP/1.1 200 ")

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - counters tell nobody when they change
                await asyncio.sleep(0.01)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    structlog.reset_defaults()
    handler = Handler()
    server = Server(handler, Limits())
    bench = Bench(server, handler, await server.start(HOST, 0))
    yield bench
    for writer in bench.writers:
        writer.close()
    await bench.until(lambda: server.connections == 0)
    await server.stop(0)
    handler.file.close()
    # Nobody is counted who is not there.
    assert (server.readers.live, server.readers.buffered_bytes, server.bodies.bytes) == (0, 0, 0)


def said(logs: list[Any]) -> bool:
    return any(line["log_level"] == "error" and BROKEN in line["error"] for line in logs)


# ── Answers that break ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("target", ["/raises", "/later-raises", "/renders"])
async def test_a_handler_that_breaks_is_a_500(bench: Bench, target: str) -> None:
    with capture_logs() as logs:
        heard = await bench.ask(request_bytes("GET", target, {"Connection": "close"}))
    assert heard.startswith(b"HTTP/1.1 500 ")
    assert b"internal_error" in heard
    assert said(logs)


@pytest.mark.parametrize("target", ["/header", "/status", "/charge", "/events-header", "/no-file"])
async def test_an_answer_that_cannot_be_sent(bench: Bench, target: str) -> None:
    with capture_logs() as logs:
        heard = await bench.ask(request_bytes("GET", target))
    # A file that cannot be read shows when the head is out already.
    assert target == "/no-file" or heard.startswith(b"HTTP/1.1 500 ")
    assert [line["event"] for line in logs] == ["unexpected_error"]
    assert await bench.works()


async def test_an_event_stream_that_does_not_start(bench: Bench) -> None:
    with capture_logs() as logs:
        heard = await bench.ask(request_bytes("GET", "/events-break"))
    assert not heard.endswith(b"0\r\n\r\n"), "it looks as if all was said"
    assert said(logs)
    assert bench.handler.stopped == 1


async def test_one_that_breaks_does_not_keep_others_from_their_answers(bench: Bench) -> None:
    """Pipelined: what came before is answered, then comes the failure, and then the end."""
    with capture_logs() as logs:
        heard = await bench.ask(GET + request_bytes("GET", "/header") + GET)
    assert heard.count(b"HTTP/1.1 200 ") == 1
    assert heard.count(b"HTTP/1.1 500 ") == 1
    assert said(logs) or logs


async def test_who_hangs_up_on_something_that_breaks(bench: Bench) -> None:
    with capture_logs() as logs:
        _, writer = await bench.open()
        writer.write(request_bytes("GET", "/waits"))
        await bench.until(lambda: bench.server.readers.live == 1)
        writer.transport.abort()
        await bench.until(lambda: bench.server.connections == 0)
    assert said(logs)
    assert bench.server.readers.live == 0


async def test_an_event_stream_that_does_not_stop(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "_stop", broken)
    with capture_logs() as logs:
        _, writer = await bench.open()
        writer.write(request_bytes("GET", "/events"))
        await bench.until(lambda: bench.server.readers.live == 1)
        writer.transport.abort()
        await bench.until(lambda: bench.server.connections == 0)
    assert said(logs)
    assert bench.server.readers.live == 0


# ── Everything on the way ────────────────────────────────────────────────────────────────────

STEPS: list[tuple[type, str, bytes]] = [
    (RequestReader, "on_message_begin", GET),
    (RequestReader, "on_url", GET),
    (RequestReader, "on_header", GET),
    (RequestReader, "on_headers_complete", GET),
    (RequestReader, "on_body", POST),
    (RequestReader, "on_message_complete", GET),
    (RequestReader, "_announce", POST[:-2]),
    (RequestReader, "_count_still", POST[:-2]),
    (Inbox, "announced", POST[:-2]),
    (Inbox, "claim", request_bytes("POST", "/plain", body=b"x" * 50_000)),
    (Inbox, "received", GET),
    (Connection, "handle", GET),
    (Connection, "_send", GET),
    (Connection, "_respond", GET),
    (Connection, "write", GET),
    (Reply, "add_done_callback", request_bytes("GET", "/at-once", {"Connection": "close"})),
    (Connection, "_begin_events", request_bytes("GET", "/events")),
    (Inbox, "read_on", GET * 1000),
    (Inbox, "_line_up", request_bytes("GET", "/renders") * 2),
    (Connection, "restart_clock", GET),
    (Connection, "restart_clock", request_bytes("GET", "/file")),
    (EventSink, "start", request_bytes("GET", "/events")),
    (Heads, "of_response", GET),
    (Heads, "of_events", request_bytes("GET", "/events")),
    (ReaderBudget, "enter", request_bytes("GET", "/events")),
    (ReaderBudget, "check", GET),
    (Traffic, "answered", GET),
    (Traffic, "begun", request_bytes("GET", "/events")),
    (Traffic, "refused", b"nonsense\r\n\r\n"),
]


@pytest.mark.parametrize("kind, name, data", STEPS, ids=[f"{k.__name__}.{n}" for k, n, _ in STEPS])
async def test_every_step_may_break(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: type, name: str, data: bytes
) -> None:
    """The connection ends, with a 500 if that can still be said, and the log has the reason."""
    if name == "check":
        data = request_bytes("GET", "/plain", {"Connection": "close"})
    with capture_logs() as logs, monkeypatch.context() as patch:
        patch.setattr(kind, name, broken)
        heard = await bench.ask(data)
    assert heard == b"" or b"HTTP/1.1 500 " in heard or b"HTTP/1.1 200 " in heard
    assert said(logs), "the log says nothing"
    assert await bench.works()


@pytest.mark.parametrize("name", ["start", "_go_on", "_send_a_turn", "_send_some"])
async def test_a_file_whose_sending_breaks(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    kind = files._Kernel
    with capture_logs() as logs, monkeypatch.context() as patch:
        patch.setattr(kind, name, broken)
        heard = await bench.ask(request_bytes("GET", "/file"))
    assert len(heard) < FILE_BYTES
    assert said(logs)
    assert await bench.works()


@pytest.mark.parametrize("name", ["time_out", "measure"])
async def test_one_connection_does_not_stop_the_sweep(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    _, writer = await bench.open()
    writer.write(GET[:-4])
    await bench.until(lambda: bench.server.connections == 1)
    (connection,) = bench.server._connections
    connection.deadline = 0.0
    bench.server.readers.measured(connection, 5)
    with capture_logs() as logs, monkeypatch.context() as patch:
        patch.setattr(Connection, name, broken)
        bench.server._sweep()
        await bench.until(lambda: bench.server.connections == 0)
        bench.server._sweep()
    assert said(logs)
    bench.server.readers.measured(connection, 0)


# ── Answers that are there at once, many on one connection ───────────────────────────────────


@pytest.mark.parametrize("target", ["/plain", "/file", "/at-once", "/renders-well"])
async def test_many_pipelined_requests_whose_answers_are_there_at_once(
    bench: Bench, target: str
) -> None:
    """However an answer comes, the next request is neither parsed nor answered inside of it."""
    count = 2000
    with capture_logs() as logs:
        last = request_bytes("GET", "/plain", {"Connection": "close"})
        heard = await bench.ask(request_bytes("GET", target) * count + last)
    assert logs == []
    assert heard.count(b"HTTP/1.1 200 ") == count + 1


async def test_no_connection_is_closed_while_its_transport_resumes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transport of asyncio that is closed inside of `resume_writing` ends twice."""
    steps: list[str] = []
    resume, close = Connection.resume_writing, Connection._close

    def resume_writing(self: Connection) -> None:
        steps.append("resume")
        resume(self)
        steps.append("resumed")

    def _close(self: Connection) -> None:
        steps.append("close")
        close(self)

    monkeypatch.setattr(Connection, "resume_writing", resume_writing)
    monkeypatch.setattr(Connection, "_close", _close)
    last = request_bytes("GET", "/plain", {"Connection": "close"})
    with capture_logs() as logs:
        heard = await bench.ask(request_bytes("GET", "/large") + last)
    assert steps == ["resume", "resumed", "close"]
    assert logs == []
    assert len(heard) > LARGE_BYTES
    assert heard.count(b"HTTP/1.1 200 ") == 2
