"""Many readers on one stream: how fast one append reaches all of them, and what a reader costs."""

import asyncio
import time
from array import array
from itertools import cycle

from benchmarks import procfs
from benchmarks.load.http import Connection, connect, create_stream, request, stream_path
from benchmarks.load.jobs import Fanout
from benchmarks.load.latencies import latency_figures
from benchmarks.load.measure import Result, Window
from benchmarks.load.sse import (
    AT_FROM,
    AT_UNTIL,
    MARK_BYTES,
    MARK_START,
    SseReader,
    connect_all,
    marked_message,
)

_AUTHOR = b"000000"
_ROUND_SECONDS_MAX = 60.0
_SILENCE_SECONDS_MAX = 2.0


class _Writer:
    """Appends on one connection, and on a new one after a pause.

    A server may close a connection that was silent for some seconds, and a round with many readers
    can take that long.
    """

    def __init__(self, job: Fanout) -> None:
        self._port = job.port
        self._path = stream_path(job.path)
        self._before, self._after = marked_message(_AUTHOR, job.message_bytes)
        self._connection: Connection | None = None
        self._used_at = 0.0

    async def append(self) -> None:
        if self._connection is None or time.monotonic() - self._used_at > _SILENCE_SECONDS_MAX:
            self._connection = await connect(self._port)
        body = self._before + b"%019d" % time.monotonic_ns() + self._after
        status = await self._connection.ask(request("POST", self._path, body))
        self._used_at = time.monotonic()
        if status not in {200, 204}:
            raise RuntimeError(f"an append was answered {status}")


class _Round:
    """One append, followed until every reader has it."""

    def __init__(self, readers: int) -> None:
        self._readers = readers
        self._missing = 0
        self._complete = asyncio.Event()
        self.latencies_ns = array("q")

    async def run(self, writer: _Writer) -> None:
        self._missing = self._readers
        self._complete.clear()
        await writer.append()
        try:
            await asyncio.wait_for(self._complete.wait(), _ROUND_SECONDS_MAX)
        except TimeoutError:
            raise RuntimeError(
                f"{self._missing} of {self._readers} readers had nothing after "
                f"{_ROUND_SECONDS_MAX:.0f} s"
            ) from None

    def deliver(self, data: bytes, mark: int, now_ns: int, reader: bytes) -> None:
        while 0 <= mark <= len(data) - MARK_BYTES:
            self.latencies_ns.append(now_ns - int(data[mark + AT_FROM : mark + AT_UNTIL]))
            self._missing -= 1
            mark = data.find(MARK_START, mark + MARK_BYTES)
        if self._missing <= 0:
            self._complete.set()


async def fan_out(job: Fanout) -> Result:
    path = stream_path(job.path)
    await create_stream(await connect(job.port), path)
    await asyncio.sleep(job.settle_seconds)
    before = procfs.resident_bytes(job.server_pid)
    round_ = _Round(job.readers)
    ports = cycle((job.port, *job.more_ports))
    readers = [SseReader(next(ports), path, b"", round_.deliver) for _ in range(job.readers)]
    await connect_all(readers)
    await asyncio.sleep(job.settle_seconds)
    connected = procfs.resident_bytes(job.server_pid)
    result = await _measure(_Writer(job), round_, job)
    for reader in readers:
        reader.close()
    return result | {
        "memory_kib_per_reader": (connected - before) / 1024 / job.readers,
        "reconnects": sum(reader.reconnects for reader in readers),
    }


async def _measure(writer: _Writer, round_: _Round, job: Fanout) -> Result:
    # The first delivery pays for buffers that later ones reuse.
    await round_.run(writer)
    round_.latencies_ns = array("q")
    rounds = 0
    window = Window(job.server_pid)
    window.start()
    deadline = time.monotonic() + job.seconds
    while rounds == 0 or time.monotonic() < deadline:
        await round_.run(writer)
        rounds += 1
    result = window.stop()
    events = len(round_.latencies_ns)
    return (
        result
        | latency_figures(round_.latencies_ns)
        | {
            "rounds": rounds,
            "events": events,
            "events_per_second": events / result["seconds"],
            "server_cpu_us_per_event": 1e6 * result["server_cpu_seconds"] / events,
        }
    )
