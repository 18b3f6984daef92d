"""Sending a body that lies in files: the kernel moves the bytes from file to socket.

The transport of the connection must have nothing left to write, and nothing may be written through
it until this is done. uvloop watches its own socket and lets nobody else watch it, so when the
peer is slower than the file, a duplicate of the descriptor is watched instead.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final, Protocol

from headwater.http.messages import FileBody
from headwater.store.engine import Piece

_COPY_BYTES: Final = 256 * 1024
# Everyone else on the loop gets a turn after this much, however fast the peer is.
_TURN_BYTES: Final = 2 * 1024 * 1024


class Owner(Protocol):
    """Who is told how the sending goes."""

    def file_progressed(self) -> None:
        """The peer has taken something."""

    def file_sent(self) -> None:
        """All of it is on its way."""

    def file_failed(self) -> None:
        """The peer is gone, or the file is not what it was; the response cannot be finished."""

    def write(self, data: bytes) -> None: ...

    async def drained(self) -> bool:
        """Wait until the peer has taken most of what was written. False when it is gone."""


class FileSending:
    """One response under way."""

    __slots__ = ("_loop", "_owner", "_parts", "_sent", "_socket", "_watched")

    def __init__(self, owner: Owner, head: bytes, body: FileBody) -> None:
        self._owner = owner
        first, *others = body.parts
        # The bracket of a JSON array goes along with the head.
        begin = [head + first] if isinstance(first, bytes) else [head, first]
        self._parts: list[Piece] = [*begin, *others]
        self._parts.reverse()
        self._sent = 0
        self._socket = -1
        self._watched = -1
        self._loop = asyncio.get_running_loop()

    @property
    def started(self) -> bool:
        return self._socket >= 0

    def start(self, socket: int) -> None:
        self._socket = socket
        self._go_on()

    def cancel(self) -> None:
        """The connection is gone."""
        self._parts.clear()
        self._unwatch()

    def _go_on(self) -> None:
        if not self._parts:
            return
        left = _TURN_BYTES
        try:
            while self._parts and left > 0:
                left -= self._send_some(left)
        except BlockingIOError:
            self._watch()
        except OSError:
            self.cancel()
            self._owner.file_failed()
            return
        if left < _TURN_BYTES:
            self._owner.file_progressed()
        if not self._parts:
            self._unwatch()
            self._owner.file_sent()
        elif self._watched < 0:
            self._loop.call_soon(self._go_on)

    def _send_some(self, most: int) -> int:
        """Send a bit of the current part; BlockingIOError when the peer has to read first."""
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
        if self._watched < 0:
            self._watched = os.dup(self._socket)
            self._loop.add_writer(self._watched, self._go_on)

    def _unwatch(self) -> None:
        if self._watched >= 0:
            self._loop.remove_writer(self._watched)
            os.close(self._watched)
            self._watched = -1


class CopySending:
    """The same for connections whose bytes have to pass through us: read, and written."""

    __slots__ = ("_body", "_head", "_owner", "_task")

    def __init__(self, owner: Owner, head: bytes, body: FileBody) -> None:
        self._owner = owner
        self._head = head
        self._body = body
        self._task: asyncio.Task[None] | None = None

    @property
    def started(self) -> bool:
        return self._task is not None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._send())

    def cancel(self) -> None:
        """The connection is gone."""
        if self._task is not None:
            self._task.cancel()

    async def _send(self) -> None:
        self._owner.write(self._head)
        try:
            for part in self._body.parts:
                await self._send_part(part)
        except OSError:
            self._owner.file_failed()
            return
        self._owner.file_sent()

    async def _send_part(self, part: Piece) -> None:
        for start in range(0, len(part), _COPY_BYTES):
            size = min(_COPY_BYTES, len(part) - start)
            if isinstance(part, bytes):
                data = part[start : start + size]
            else:
                data = await asyncio.to_thread(os.pread, part.file, size, part.offset + start)
            if len(data) < size:
                raise OSError("the file has become shorter")
            self._owner.write(data)
            await self._owner.drained()
            self._owner.file_progressed()
