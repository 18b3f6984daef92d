"""A TCP proxy that can lose a direction, both, or the connections themselves."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from tests.support.server import HOST, free_port

_READ_BYTES: Final = 65_536
TO_TARGET, FROM_TARGET = 0, 1
NEITHER: Final = frozenset[int]()
BOTH: Final = frozenset((TO_TARGET, FROM_TARGET))


class Proxy:
    """Stands in front of one port of this machine."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = free_port()
        self._silent = NEITHER
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

    def cut(self, directions: frozenset[int]) -> None:
        """From now on nothing gets through in these directions, and nobody is told."""
        self._silent = directions
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
        try:
            with suppress(OSError, asyncio.CancelledError):
                answers, other = await asyncio.open_connection(HOST, self.target)
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pump(reader, other, TO_TARGET))
                    both.create_task(self._pump(answers, writer, FROM_TARGET))
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
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: int
    ) -> None:
        while data := await reader.read(_READ_BYTES):
            while direction in self._silent:
                await self._heard.wait()
            writer.write(data)
            await writer.drain()
        # When one side has ended, so has the link.
        raise ConnectionResetError
