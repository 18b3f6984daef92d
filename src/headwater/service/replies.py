"""Replies that are given after a commit.

A reply is a future for the hottest path: there is one for every append. It needs no loop, and
callbacks run in the same turn in which the commit finishes, not in the next one. Awaiting a reply
works as with any future, and giving up on it cancels nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
import structlog

R = TypeVar("R")

_PENDING: Final[Any] = object()

logger = structlog.get_logger()


class Waiter(Protocol):
    """What waits for a commit: usually a `Reply`."""

    def settle(self, outcome: Any) -> None:
        """Take the result, or the error. Must not raise."""


class Reply(msgspec.Struct, Generic[R], eq=False):
    _outcome: R | Exception = _PENDING
    _callbacks: list[Callable[[Reply[R]], None]] | None = None

    def done(self) -> bool:
        return self._outcome is not _PENDING

    def settle(self, outcome: R | Exception) -> None:
        """Set the result, or the error to raise."""
        if self._outcome is not _PENDING:
            return
        self._outcome = outcome
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            try:
                callback(self)
            except Exception as error:
                # The others in the batch must still get theirs.
                logger.error("reply_failed", error=repr(error), exc_info=error)

    def add_done_callback(self, callback: Callable[[Reply[R]], None]) -> None:
        """Called at once if there is already an outcome."""
        if self._outcome is not _PENDING:
            callback(self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def cancelled(self) -> bool:
        return False

    def result(self) -> R:
        outcome = self._outcome
        if outcome is _PENDING:
            raise asyncio.InvalidStateError("there is no outcome yet")
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def exception(self) -> Exception | None:
        return self._outcome if isinstance(self._outcome, Exception) else None

    def __await__(self) -> Generator[Any, None, R]:
        if self._outcome is _PENDING:
            arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.add_done_callback(lambda _: _arrive(arrival))
            yield from arrival
        return self.result()


def _arrive(arrival: asyncio.Future[None]) -> None:
    if not arrival.done():
        arrival.set_result(None)
