"""Appends as fast as the server answers: a closed loop, like that of ``wrk``."""

import asyncio
import itertools
from array import array
from collections.abc import Iterator
from typing import cast

from benchmarks.load.http import HOST, ResponseParser, json_message, request, stream_path
from benchmarks.load.jobs import Append, CreateStreams
from benchmarks.load.latencies import latency_figures
from benchmarks.load.measure import Result, Window
from benchmarks.load.prepare import create_streams
from headwater.cli.bench.generator import Sender, Tally


class _Appender(Sender, asyncio.Protocol):
    """Sends the next request from inside the callback that saw the last answer end."""

    def __init__(self, requests: Iterator[bytes], tally: Tally) -> None:
        super().__init__(tally)
        self._requests = requests
        self._parser = ResponseParser()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.send_next()

    def send(self, due_ns: int) -> None:
        self._transport.write(next(self._requests))

    def data_received(self, data: bytes) -> None:
        # Nearly every answer is one complete 204: recognise that without parsing it.
        if data.startswith(b"HTTP/1.1 204") and data.endswith(b"\r\n\r\n"):
            self.answered()
        elif self._parser.feed(data):
            self._parser.next_response()
            self.answered(failed=self._parser.status not in {200, 204})

    def connection_lost(self, exc: Exception | None) -> None:
        self.tally.errors += 1

    def ended(self) -> None:
        self._transport.close()


async def append(job: Append) -> Result:
    await create_streams(
        CreateStreams(job.port, job.server_pid, job.prefix, job.streams, min(job.streams, 32))
    )
    tally = Tally()
    appenders = await _connect(job, tally)
    await asyncio.sleep(job.warmup_seconds)
    window = Window(job.server_pid)
    window.start()
    tally.latencies_ns, tally.errors = array("q"), 0
    await asyncio.sleep(job.seconds)
    result = window.stop()
    tally.stop()
    for appender in appenders:
        appender.ended()
    return result | _figures(tally, result["seconds"])


async def _connect(job: Append, tally: Tally) -> list[_Appender]:
    message = json_message(job.message_bytes)
    body = message if job.messages == 1 else b"[%b]" % b",".join([message] * job.messages)
    requests = [
        request("POST", stream_path(f"{job.prefix}{index}"), body) for index in range(job.streams)
    ]
    loop = asyncio.get_running_loop()
    appenders = []
    for number in range(job.connections):
        # Connections start at different streams, so that they do not move in step.
        first = number * job.streams // job.connections
        turn = itertools.cycle(requests[first:] + requests[:first])
        _, appender = await loop.create_connection(
            lambda turn=turn: _Appender(turn, tally),  # type: ignore[misc]
            HOST,
            (job.port, *job.more_ports)[number % (1 + len(job.more_ports))],
        )
        appenders.append(appender)
    return appenders


def _figures(tally: Tally, seconds: float) -> Result:
    appends = len(tally.latencies_ns)
    return latency_figures(tally.latencies_ns) | {
        "appends": appends,
        "errors": tally.errors,
        "appends_per_second": appends / seconds,
    }
