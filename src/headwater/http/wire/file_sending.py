"""Sending a body from files: the kernel moves the bytes from file to socket.

The transport of the connection must have nothing left to write, and nothing may be written through
it until this is done. uvloop watches its own socket and lets nobody else watch it, so when the peer
is slower than the file, a duplicate of the descriptor is watched instead.

The kernel does not have the keys of a TLS connection; there the bytes pass through us.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final, Protocol

from headwater.http.messages import FileBody
from headwater.http.wire.flow_control import UNSENT_BYTES_HIGH
from headwater.store.engine.appends import Piece

if TYPE_CHECKING:
    from headwater.http.wire.answering import Answering

_COPY_BYTES: Final = 256 * 1024
# After this much, everyone else on the loop gets a turn, however fast the peer is.
_TURN_BYTES: Final = 2 * 1024 * 1024
# When there is no descriptor left to watch with, retry after this.
_LOOK_AGAIN_S: Final = 0.05


class FileSending(Protocol):
    """One response being sent."""

    def start(self) -> None:
        """Start, unless earlier data is still waiting to be written; then it is called again."""

    def cancel(self) -> None:
        """The connection is gone."""


def send_file(
    connection: Answering,
    transport: asyncio.Transport,
    head: bytes,
    body: FileBody,
    *,
    is_secure: bool,
) -> FileSending:
    """Must be started."""
    return (_Copying if is_secure else _Kernel)(connection, transport, head, body)


class _Kernel:
    __slots__ = ("_connection", "_loop", "_parts", "_sent", "_socket", "_transport", "_watched")

    def __init__(
        self, connection: Answering, transport: asyncio.Transport, head: bytes, body: FileBody
    ) -> None:
        self._connection = connection
        self._transport = transport
        first, *others = body.parts
        # The opening bracket of a JSON array is sent with the head.
        begin = [head + first] if isinstance(first, bytes) else [head, first]
        self._parts: list[Piece] = [*begin, *others]
        self._parts.reverse()
        self._sent = 0
        self._socket = -1
        self._watched = -1
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        if self._socket >= 0:
            return
        if self._transport.get_write_buffer_size():
            # Writing is paused at once and resumed when nothing is left.
            self._transport.set_write_buffer_limits(high=0)
            return
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH)
        self._socket = self._transport.get_extra_info("socket").fileno()
        self._go_on()

    def cancel(self) -> None:
        self._parts.clear()
        self._unwatch()

    def _go_on(self) -> None:
        if not self._parts:
            return
        try:
            blocked, moved = self._send_a_turn()
            if moved:
                self._connection.restart_clock()
            if not self._parts:
                self._unwatch()
                self._connection.file_sent()
            elif blocked:
                self._watch()
            elif self._watched < 0:
                self._loop.call_soon(self._go_on)
        except Exception as error:
            self.cancel()
            self._connection.file_failed(error)

    def _send_a_turn(self) -> tuple[bool, bool]:
        """Send one turn's worth: whether the peer has to read first, and whether it took any."""
        left = _TURN_BYTES
        try:
            while self._parts and left > 0:
                left -= self._send_some(left)
        except BlockingIOError:
            return True, left < _TURN_BYTES
        return False, True

    def _send_some(self, most: int) -> int:
        """Send a bit of the current part; BlockingIOError if the peer has to read first."""
        part = self._parts[-1]
        most = min(most, len(part) - self._sent)
        if isinstance(part, bytes):
            taken = os.write(self._socket, memoryview(part)[self._sent : self._sent + most])
        else:
            taken = os.sendfile(self._socket, part.file, part.offset + self._sent, most)
            if taken == 0:
                raise OSError("the file has become shorter")
        self._sent += taken
        if self._sent == len(part):
            self._parts.pop()
            self._sent = 0
        return taken

    def _watch(self) -> None:
        if self._watched >= 0:
            return
        try:
            self._watched = os.dup(self._socket)
        except OSError:
            self._loop.call_later(_LOOK_AGAIN_S, self._go_on)
        else:
            self._loop.add_writer(self._watched, self._go_on)

    def _unwatch(self) -> None:
        if self._watched >= 0:
            self._loop.remove_writer(self._watched)
            os.close(self._watched)
            self._watched = -1


class _Copying:
    __slots__ = ("_body", "_connection", "_head", "_task", "_transport")

    def __init__(
        self, connection: Answering, transport: asyncio.Transport, head: bytes, body: FileBody
    ) -> None:
        self._connection = connection
        self._transport = transport
        self._head = head
        self._body = body
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send())

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _send(self) -> None:
        try:
            self._transport.write(self._head)
            for part in self._body.parts:
                await self._send_part(part)
            self._connection.file_sent()
        except Exception as error:
            self._connection.file_failed(error)

    async def _send_part(self, part: Piece) -> None:
        for start in range(0, len(part), _COPY_BYTES):
            size = min(_COPY_BYTES, len(part) - start)
            if isinstance(part, bytes):
                data = part[start : start + size]
            else:
                data = await asyncio.to_thread(os.pread, part.file, size, part.offset + start)
            if len(data) < size:
                raise OSError("the file has become shorter")
            self._transport.write(data)
            await self._connection.drained()
            self._connection.restart_clock()
