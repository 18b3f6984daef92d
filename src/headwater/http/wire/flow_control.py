"""Flow control of a connection: how much its peer has not read yet, and how long that may last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from headwater.http.messages import NOBODY, Request
from headwater.http.wire.outcomes import report

if TYPE_CHECKING:
    from headwater.http.wire.server import Server

UNSENT_BYTES_HIGH: Final = 16 * 1024
"""A peer with more than this unread is slow, and answers to it wait."""

P = ParamSpec("P")
C = TypeVar("C", bound="FlowControl")


def or_abort(step: Callable[Concatenate[C, P], None]) -> Callable[Concatenate[C, P], None]:
    """For methods that the loop calls: nothing else would end the connection if one raises."""

    def guarded(self: C, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            step(self, *args, **kwargs)
        except Exception as error:
            report(error, self.current)
            self.abort()

    return guarded


class FlowControl(asyncio.Protocol):
    __slots__ = (
        "_drain_waiter",
        "_server",
        "_transport",
        "current",
        "deadline",
        "paused",
        "peer",
    )

    def __init__(self, server: Server) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._drain_waiter: asyncio.Future[None] | None = None
        self.peer = NOBODY
        self.current: Request | None = None
        """The request that is being answered."""
        self.paused = False
        """Whether the peer has so much unread data that the sender should wait."""
        self.deadline = server.now + server.timeouts.head_s
        """When the peer has to be done with the current phase."""

    @property
    def address(self) -> str:
        return self.peer.address

    @or_abort
    def pause_writing(self) -> None:
        self.paused = True
        self.deadline = self._server.now + self._server.timeouts.write_s
        self.measure()

    def resume_writing(self) -> None:
        self.paused = False
        self.measure()
        self._release_drain()

    def measure(self) -> None:
        """Report to `ReaderBudget` how much the peer has not read yet."""
        if self._transport is not None:
            self._server.readers.measured(self, self._transport.get_write_buffer_size())

    async def drained(self) -> bool:
        """Wait until the peer has read most of what was written. False if it is gone."""
        if self.paused and self._transport is not None:
            self._drain_waiter = asyncio.get_running_loop().create_future()
            await self._drain_waiter
        return self._transport is not None

    def _release_drain(self) -> None:
        if self._drain_waiter is not None and not self._drain_waiter.done():
            self._drain_waiter.set_result(None)
        self._drain_waiter = None

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def abort(self) -> None:
        """Hang up at once, whatever is still unsent."""
        if self._transport is not None:
            self._transport.abort()
