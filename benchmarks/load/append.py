"""Appends as fast as the server answers: the closed loop behind ``wrk``'s own generator."""

import asyncio
import itertools
import time
from array import array
from collections.abc import Iterator
from typing import cast

from benchmarks.load.http import HOST, ResponseParser, json_message, request, stream_path
from benchmarks.load.jobs import Append, CreateStreams
from benchmarks.load.latencies import latency_figures
from benchmarks.load.measure import Result, Window
from benchmarks.load.prepare import create_streams


class _Tally:
    __slots__ = ("errors", "latencies_ns", "stopped")

    def __init__(self) -> None:
        self.latencies_ns = array("q")
        self.errors = 0
        self.stopped = False


class _Appender(asyncio.Protocol):
    """Sends the next request from inside the callback that saw the last answer end."""

    __slots__ = ("_parser", "_requests", "_sent_ns", "_tally", "_transport")

    def __init__(self, requests: Iterator[bytes], tally: _Tally) -> None:
        self._requests = requests
        self._tally = tally
        self._parser = ResponseParser()
        self._sent_ns = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        # Nearly every answer is one whole 204: recognise that without taking it apart.
        if not (data.startswith(b"HTTP/1.1 204") and data.endswith(b"\r\n\r\n")):
            if not self._parser.feed(data):
                return
            if self._parser.status not in {200, 204}:
                self._tally.errors += 1
            self._parser.next_response()
        tally = self._tally
        if tally.stopped:
            return
        tally.latencies_ns.append(time.monotonic_ns() - self._sent_ns)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._tally.stopped:
            self._tally.errors += 1

    def close(self) -> None:
        self._transport.close()

    def _send(self) -> None:
        self._sent_ns = time.monotonic_ns()
        self._transport.write(next(self._requests))


async def append(job: Append) -> Result:
    await create_streams(
        CreateStreams(job.port, job.server_pid, job.prefix, job.streams, min(job.streams, 32))
    )
    tally = _Tally()
    appenders = await _connect(job, tally)
    await asyncio.sleep(job.warmup_seconds)
    window = Window(job.server_pid)
    window.start()
    tally.latencies_ns, tally.errors = array("q"), 0
    await asyncio.sleep(job.seconds)
    result = window.stop()
    tally.stopped = True
    for appender in appenders:
        appender.close()
    return result | _figures(tally, result["seconds"])


async def _connect(job: Append, tally: _Tally) -> list[_Appender]:
    message = json_message(job.message_bytes)
    body = message if job.messages == 1 else b"[%b]" % b",".join([message] * job.messages)
    requests = [
        request("POST", stream_path(f"{job.prefix}{index}"), body) for index in range(job.streams)
    ]
    loop = asyncio.get_running_loop()
    appenders = []
    for number in range(job.connections):
        # Connections start at different streams, so that they do not walk in step.
        first = number * job.streams // job.connections
        turn = itertools.cycle(requests[first:] + requests[:first])
        _, appender = await loop.create_connection(
            lambda turn=turn: _Appender(turn, tally),  # type: ignore[misc]
            HOST,
            (job.port, *job.more_ports)[number % (1 + len(job.more_ports))],
        )
        appenders.append(appender)
    return appenders


def _figures(tally: _Tally, seconds: float) -> Result:
    appends = len(tally.latencies_ns) - tally.errors
    return latency_figures(tally.latencies_ns) | {
        "appends": appends,
        "errors": tally.errors,
        "appends_per_second": appends / seconds,
    }
