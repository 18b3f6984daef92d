"""Paced writers and live readers: the latency scenario and the editors."""

import asyncio
import time

from benchmarks.load.http import Connection, connect, create_stream, stream_path
from benchmarks.load.jobs import LiveTraffic
from benchmarks.load.measure import Result, Window
from benchmarks.load.messages import JsonMessages, Messages, Updates
from benchmarks.load.pacing import PacedWriter, Tally, start_spread, stop
from benchmarks.load.sse import (
    AT_FROM,
    AT_UNTIL,
    BY_FROM,
    BY_UNTIL,
    Mark,
    SseReader,
    connect_all,
)

_NOBODY = b"------"


class _Tally(Tally):
    """Counts deliveries to each reader, except those of a writer's own messages."""

    def __init__(self, mark: Mark) -> None:
        super().__init__()
        self._mark = mark
        self.acknowledged = 0
        self.errors = 0

    def count_answer(self, status: int) -> None:
        if status not in {200, 204}:
            self.errors += 1
        elif self.counts(time.monotonic_ns()):
            self.acknowledged += 1

    def deliver(self, data: bytes, mark: int, now_ns: int, reader: bytes) -> None:
        start, size, decode = self._mark
        while 0 <= mark <= len(data) - size:
            text = decode(data[mark : mark + size])
            at_ns = int(text[AT_FROM:AT_UNTIL])
            author = text[BY_FROM:BY_UNTIL]
            if author != reader and self.counts(at_ns):
                self.latencies_ns.append(now_ns - at_ns)
            mark = data.find(start, mark + size)
        self.check_complete()


class _Writer(PacedWriter):
    def __init__(
        self, connection: Connection, path: str, messages: Messages, job: LiveTraffic, tally: _Tally
    ) -> None:
        super().__init__(tally)
        self._head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Content-Type: {_kind(job).content_type}\r\n"
            f"Content-Length: {job.message_bytes}\r\n\r\n"
        ).encode()
        self._messages = messages
        self._port = job.port
        self._connection = connection
        self._count_answer = tally.count_answer

    def send(self, at_ns: int) -> None:
        self._connection.send(self._head + self._messages.write(at_ns), self._answered)

    def _answered(self, status: int) -> None:
        self._count_answer(status)
        if status:
            self.answered()
        else:  # the connection is gone; what waits is sent over a new one
            self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    async def _reconnect(self) -> None:
        self._connection = await connect(self._port)
        self.answered()


async def live_traffic(job: LiveTraffic) -> Result:
    tally = _Tally(_kind(job).mark)
    readers, writers = await _set_up(job, tally)
    start_spread(writers, job.rate)
    await asyncio.sleep(job.warmup_seconds)
    window = Window(job.server_pid)
    tally.errors = 0
    tally.open_window(job.seconds)
    window.start()
    await asyncio.sleep(job.seconds)
    result = window.stop()
    stop(writers)
    expected = tally.written * (job.readers - job.writers_read)
    await tally.drain(expected, job.drain_seconds)
    for reader in readers:
        reader.close()
    reconnects = sum(reader.reconnects for reader in readers)
    return result | _figures(tally, expected, job) | {"reconnects": reconnects}


async def _set_up(job: LiveTraffic, tally: _Tally) -> tuple[list[SseReader], list[_Writer]]:
    kind = _kind(job)
    paths = [_path(job, document) for document in range(job.documents)]
    creator = await connect(job.port)
    for path in paths:
        await create_stream(creator, path, kind.content_type)
    creator.close()
    readers = [
        SseReader(job.port, path, _reader_name(job, document, index), tally.deliver, kind.mark)
        for document, path in enumerate(paths)
        for index in range(job.readers)
    ]
    await connect_all(readers)
    # Writers connect last: a server may close a connection that stays silent for some seconds.
    writers = [
        _Writer(
            await connect(job.port),
            path,
            kind(_author(job, document, index), job.message_bytes),
            job,
            tally,
        )
        for document, path in enumerate(paths)
        for index in range(job.writers)
    ]
    return readers, writers


def _kind(job: LiveTraffic) -> type[JsonMessages | Updates]:
    return Updates if job.yjs else JsonMessages


def _path(job: LiveTraffic, document: int) -> str:
    name = f"{job.prefix}{document}"
    return f"/v1/yjs/benchmark/docs/{name}" if job.yjs else stream_path(name)


def _reader_name(job: LiveTraffic, document: int, index: int) -> bytes:
    is_writer = job.writers_read and index < job.writers
    return _author(job, document, index) if is_writer else _NOBODY


def _author(job: LiveTraffic, document: int, index: int) -> bytes:
    return b"%06d" % (document * job.writers + index)


def _figures(tally: _Tally, expected: int, job: LiveTraffic) -> Result:
    return tally.figures(expected, job.drain_seconds) | {
        "offered_per_second": tally.written / job.seconds,
        "appends_per_second": tally.acknowledged / job.seconds,
        "errors": tally.errors,
        "deliveries": len(tally.latencies_ns),
    }
