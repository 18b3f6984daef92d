"""Time to first byte, from random places in a stream."""

import random
import socket
import time
from array import array

from benchmarks.load.http import HOST, ResponseParser, request, stream_path
from benchmarks.load.jobs import FirstByte
from benchmarks.load.measure import Result
from headwater.cli.bench.generator import percentile

_PIECE_BYTES = 1024 * 1024
_UNTOUCHED_SAMPLES = 100


class _Reader:
    """A connection that waits for the first byte, and then for the rest."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port))
        self._parser = ResponseParser()

    def ask(self, data: bytes) -> int:
        """Nanoseconds until the answer begins."""
        began = time.monotonic_ns()
        self._socket.sendall(data)
        received = self._socket.recv(_PIECE_BYTES)
        took = time.monotonic_ns() - began
        parser = self._parser
        parser.next_response()
        while received and not parser.feed(received):
            received = self._socket.recv(_PIECE_BYTES)
        if parser.status != 200 or not received:
            raise RuntimeError(f"a read was answered {parser.status}")
        return took

    def header(self, name: bytes) -> str:
        return (self._parser.header(name) or b"").decode()


class _Stream:
    """A stream of equal appends, so that the start of every append is known."""

    def __init__(self, reader: _Reader, name: str, appends: int) -> None:
        self._path = stream_path(name)
        self._appends = appends
        self._reader = reader
        reader.ask(request("GET", f"{self._path}?offset=now"))
        run, _, end = reader.header(b"stream-next-offset").partition("_")
        self._run = run
        self._append_bytes = int(end) // appends

        self._numbers = random.Random(appends).sample(range(1, appends), appends - 1)

    def somewhere(self) -> int:
        """The start of a random append, never the same one twice."""
        position = self._numbers.pop() * self._append_bytes
        return self._ask(f"{self._run}_{position:016d}")

    def read_all(self) -> None:
        offset = "-1"
        while True:
            self._ask(offset)
            offset = self._reader.header(b"stream-next-offset")
            if self._reader.header(b"stream-up-to-date") == "true":
                return

    def _ask(self, offset: str) -> int:
        return self._reader.ask(request("GET", f"{self._path}?offset={offset}"))


async def first_byte(job: FirstByte) -> Result:
    """Both streams in turn, so that a disturbance of the machine affects both."""
    reader = _Reader(job.port)
    long = _Stream(reader, job.long_path, job.long_appends)
    short = _Stream(reader, job.short_path, job.short_appends)
    untouched = sorted(long.somewhere() for _ in range(_UNTOUCHED_SAMPLES))
    long.read_all()
    short.read_all()
    long_ns, short_ns = array("q"), array("q")
    for _ in range(job.samples):
        long_ns.append(long.somewhere())
        short_ns.append(short.somewhere())
    of_long, of_short = sorted(long_ns), sorted(short_ns)
    return {
        "first_byte_p50_ms": percentile(of_long, 50) / 1e6,
        "first_byte_p99_ms": percentile(of_long, 99) / 1e6,
        "short_first_byte_p50_ms": percentile(of_short, 50) / 1e6,
        "short_first_byte_p99_ms": percentile(of_short, 99) / 1e6,
        "first_byte_ratio": percentile(of_long, 50) / percentile(of_short, 50),
        "untouched_first_byte_p50_ms": percentile(untouched, 50) / 1e6,
    }
