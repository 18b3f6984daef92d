"""Many readers that read the same history over and over, and discard it.

A reader that copies what it receives costs more than a server that sends from a file. These ask the
kernel to drop the inside of a body (``MSG_TRUNC``), so that the servers are compared and not the
copying. Heads and the ends of bodies are read as usual.
"""

import select
import socket
import time
from collections.abc import Callable

from benchmarks import procfs
from benchmarks.load.http import HOST, ResponseParser, request, stream_path
from benchmarks.load.jobs import Replay
from benchmarks.load.measure import Result, Window

_HEAD_BYTES = 4096
_MEMORY_EVERY_SECONDS = 0.1
_MIB = 1024 * 1024
# The kernel writes nothing here, it only checks the size.
_UNTOUCHED = bytearray(4 * _MIB)

Ask = Callable[[ResponseParser | None], bytes | None]
"""The first request, or the one after a response; None after the last one."""


def ask_stream(name: str) -> Ask:
    """A stream from its start, following the offsets."""
    path = stream_path(name)

    def ask(answered: ResponseParser | None) -> bytes | None:
        if answered is None:
            return request("GET", f"{path}?offset=-1")
        offset = answered.header(b"stream-next-offset")
        if answered.status != 200 or offset is None:
            raise RuntimeError(f"a read was answered {answered.status}")
        if answered.header(b"stream-up-to-date") == b"true":
            return None
        return request("GET", f"{path}?offset={offset.decode()}")

    return ask


def ask_ranges(name: str, size: int) -> Ask:
    """A static file from its start, in ranges of ``size`` bytes."""

    def ask_from(start: int) -> bytes:
        head = f"GET /{name} HTTP/1.1\r\nHost: {HOST}\r\n"
        return f"{head}Range: bytes={start}-{start + size - 1}\r\n\r\n".encode()

    def ask(answered: ResponseParser | None) -> bytes | None:
        if answered is None:
            return ask_from(0)
        if answered.status != 206:
            raise RuntimeError(f"a range was answered {answered.status}")
        # bytes 0-999/2000
        sent, _, total = (answered.header(b"content-range") or b"").partition(b"/")
        following = int(sent.rpartition(b"-")[2]) + 1
        return ask_from(following) if following < int(total) else None

    return ask


class _Reader:
    """One connection that reads everything, again and again."""

    def __init__(self, port: int, ask: Ask) -> None:
        self._ask = ask
        self._parser = ResponseParser()
        self.socket = socket.create_connection((HOST, port))
        self.socket.setblocking(False)
        self.bytes_read = 0
        self.responses = 0
        self.passes = 0
        self.at_end = False
        self._began_at = (0, 0)
        self.last_pass = (0, 0)
        """Bytes and responses of the last complete pass."""

    def begin(self) -> None:
        self.at_end = False
        self._began_at = (self.bytes_read, self.responses)
        self._send(self._ask(None))

    def _send(self, data: bytes | None) -> None:
        assert data is not None
        # A single small request always fits into the kernel's send buffer.
        self.socket.send(data)

    def readable(self) -> None:
        """Receive what is there; if that ends a response, request what comes next."""
        while True:
            wanted = self._parser.skippable
            try:
                if wanted > 0:
                    wanted = min(wanted, len(_UNTOUCHED))
                    taken = self.socket.recv_into(_UNTOUCHED, wanted, socket.MSG_TRUNC)
                    self._parser.skip(taken)
                else:
                    wanted = _HEAD_BYTES
                    data = self.socket.recv(wanted)
                    taken = len(data)
                    if self._parser.feed(data):
                        self._response_ended()
            except BlockingIOError:
                return
            if taken == 0:
                raise RuntimeError("a connection was closed")
            if taken < wanted:
                return

    def _response_ended(self) -> None:
        parser = self._parser
        self.bytes_read += parser.body_bytes
        self.responses += 1
        following = self._ask(parser)
        parser.next_response()
        if following is not None:
            self._send(following)
            return
        self.passes += 1
        self.at_end = True
        before, responses_before = self._began_at
        self.last_pass = (self.bytes_read - before, self.responses - responses_before)

    def bytes_so_far(self) -> int:
        return self.bytes_read + self._parser.body_bytes


async def replay(job: Replay) -> Result:
    """Read until the time is over and every reader has read everything at least once."""
    if job.range_bytes:
        ask = ask_ranges(job.path, job.range_bytes)
    else:
        ask = ask_stream(job.path)
    readers = [_Reader(job.port, ask) for _ in range(job.readers)]
    window = Window(job.server_pid)
    window.start()
    memory = _read_all(readers, job)
    result = window.stop()
    total = sum(reader.bytes_so_far() for reader in readers)
    passes = {reader.last_pass for reader in readers}
    if len(passes) != 1:
        raise RuntimeError(f"readers were given different things: {sorted(passes)[:4]}")
    pass_bytes, pass_responses = passes.pop()
    return result | {
        "bytes": total,
        "pass_bytes": pass_bytes,
        "pass_responses": pass_responses,
        "passes": sum(reader.passes for reader in readers),
        "mb_per_second": total / 1e6 / result["seconds"],
        "server_cpu_s_per_gb": result["server_cpu_seconds"] / (total / 1e9),
        "memory_mib": memory / _MIB,
    }


def _read_all(readers: list[_Reader], job: Replay) -> int:
    """Returns the peak memory of the server meanwhile."""
    now = time.monotonic()
    over, look_again, memory = now + job.seconds, now, 0
    reading = {reader.socket.fileno(): reader for reader in readers}
    with select.epoll() as poll:
        for number, reader in reading.items():
            poll.register(number, select.EPOLLIN)
            reader.begin()
        while reading:
            for number, _ in poll.poll(_MEMORY_EVERY_SECONDS):
                reader = reading[number]
                reader.readable()
                if reader.at_end and now < over:
                    reader.begin()
            now = time.monotonic()
            if now >= over:
                _let_go(reading)
            if now >= look_again:
                memory = max(memory, procfs.resident_bytes(job.server_pid))
                look_again = now + _MEMORY_EVERY_SECONDS
    return memory


def _let_go(reading: dict[int, _Reader]) -> None:
    """Readers that have read everything once may stop, wherever they are by now."""
    for number, reader in list(reading.items()):
        if reader.passes:
            del reading[number]
            reader.socket.close()
