"""Reading a stream from its start, from one next offset to the next."""

import asyncio
from typing import cast

from benchmarks.load.http import HOST, ResponseParser, request, stream_path
from benchmarks.load.jobs import CatchUp
from benchmarks.load.measure import Result, Window

_BUFFER_BYTES = 1024 * 1024


class _Reader(asyncio.BufferedProtocol):
    """Receives into one buffer and looks at it only where a response begins or ends."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._parser = ResponseParser()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.bytes_read = 0
        self.responses = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ask(b"-1")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        parser = self._parser
        if parser.skip(nbytes) or not parser.feed(bytes(self._buffer[:nbytes])):
            return
        self._response_ended()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(RuntimeError(f"the connection was lost: {exc}"))

    def _ask(self, offset: bytes) -> None:
        self._transport.write(request("GET", f"{self._path}?offset={offset.decode()}"))

    def _response_ended(self) -> None:
        parser = self._parser
        self.bytes_read += parser.body_bytes
        self.responses += 1
        next_offset = parser.header(b"stream-next-offset")
        up_to_date = parser.header(b"stream-up-to-date") == b"true"
        status = parser.status
        parser.next_response()
        if status != 200 or next_offset is None:
            self.done.set_exception(RuntimeError(f"a read was answered {status}"))
        elif up_to_date:
            self.done.set_result(None)
        else:
            self._ask(next_offset)


async def catch_up(job: CatchUp) -> Result:
    loop = asyncio.get_running_loop()
    path = stream_path(job.path)
    window = Window(job.server_pid)
    window.start()
    connected = [
        await loop.create_connection(lambda: _Reader(path), HOST, job.port)
        for _ in range(job.connections)
    ]
    await asyncio.gather(*(reader.done for _, reader in connected))
    result = window.stop()
    for transport, _ in connected:
        transport.close()
    total = sum(reader.bytes_read for _, reader in connected)
    return result | {
        "bytes": total,
        "responses": sum(reader.responses for _, reader in connected),
        "mb_per_second": total / 1e6 / result["seconds"],
    }
