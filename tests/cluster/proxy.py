"""A TCP proxy that can lose a direction, both, or the connections themselves.

It can do so for some of those who use it: on Linux, the process at the other end of a connection of
this machine can be found.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.support.server import HOST, free_port

_READ_BYTES: Final = 65_536
TO_TARGET, FROM_TARGET = 0, 1
NEITHER: Final = frozenset[int]()
BOTH: Final = frozenset((TO_TARGET, FROM_TARGET))

Victims = Callable[[], list[int]]
"""Processes, as they are when somebody asks."""


class Proxy:
    """Stands in front of one port of this machine."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = free_port()
        self._silent = NEITHER
        self._victims: Victims | None = None
        self._heard = asyncio.Event()
        self._heard.set()
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._link, HOST, self.port)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        links = set(self._links)
        self.reset()
        await asyncio.gather(*links, return_exceptions=True)

    def cut(self, directions: frozenset[int], victims: Victims | None = None) -> None:
        """From now on nothing gets through in these directions, and nobody is told. With some
        processes as victims, only what those say and hear."""
        self._silent = directions
        self._victims = victims
        self._heard.clear()

    def heal(self) -> None:
        """What was held back since the cut arrives now, late."""
        self._silent = NEITHER
        self._heard.set()

    def reset(self) -> None:
        """All connections end."""
        for link in self._links:
            link.cancel()

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        other: asyncio.StreamWriter | None = None
        port = int(writer.get_extra_info("peername")[1])
        try:
            with suppress(OSError, asyncio.CancelledError):
                answers, other = await asyncio.open_connection(HOST, self.target)
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pump(reader, other, TO_TARGET, port))
                    both.create_task(self._pump(answers, writer, FROM_TARGET, port))
        except BaseExceptionGroup:
            pass
        finally:
            self._links.discard(task)
            for one in (writer, other):
                if one is not None:
                    one.transport.abort()
                    with suppress(OSError):
                        await one.wait_closed()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: int, port: int
    ) -> None:
        while data := await reader.read(_READ_BYTES):
            while direction in self._silent and self._concerns(port):
                await self._heard.wait()
            writer.write(data)
            await writer.drain()
        # When one side has ended, so has the link.
        raise ConnectionResetError

    def _concerns(self, port: int) -> bool:
        return self._victims is None or any(has_connection(pid, port) for pid in self._victims())


def has_connection(pid: int, port: int) -> bool:
    """Whether a process has a connection from a port of this machine."""
    wanted = f":{port:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(wanted):
            socket = f"socket:[{fields[9]}]"
            with suppress(OSError):
                return any(_target(entry) == socket for entry in Path(f"/proc/{pid}/fd").iterdir())
    return False


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""
