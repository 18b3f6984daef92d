"""Requests of one producer that overtook each other.

Requests of a client that keeps several in flight may arrive out of order. One that is only slightly
ahead waits here for the missing ones: it continues as soon as they are accepted, and gets its 409
if they do not arrive in time. When the stream moves to another node, waiting requests follow it,
and wait there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from headwater.core.decisions import Append, AppendReply
from headwater.core.producers import ProducerStamp
from headwater.service.entries import Entry
from headwater.service.replies import Reply

_WAITING_PER_STREAM_MAX: Final = 64

Retry = Callable[[Entry, Append], Awaitable[AppendReply]]
_Key = tuple[Entry, str, int, int]


class WaitingRoom:
    def __init__(self, wait_ms: int, retry: Retry) -> None:
        self._wait_s = wait_ms / 1000
        self._retry = retry
        self._waiting: dict[_Key, list[_Guest]] = {}
        self._retrying: set[asyncio.Future[AppendReply]] = set()

    def has_room(self, entry: Entry) -> bool:
        return self._wait_s > 0 and entry.waiting < _WAITING_PER_STREAM_MAX

    def admit(self, entry: Entry, command: Append) -> Reply[AppendReply]:
        """Wait for the requests before this one."""
        loop = asyncio.get_running_loop()
        assert command.producer is not None
        key = (entry, *command.producer)
        guest = _Guest(command)
        guest.timer = loop.call_later(self._wait_s, self._leave, key)
        self._waiting.setdefault(key, []).append(guest)
        entry.waiting += 1
        return guest.reply

    def accepted(self, entry: Entry, stamp: ProducerStamp) -> None:
        """A request was accepted: the one right after it may continue."""
        self._leave((entry, stamp.id, stamp.epoch, stamp.seq + 1))

    def release(self, entry: Entry) -> None:
        """Another node is about to own the stream: waiting requests get that error."""
        if entry.waiting:
            for key in [key for key in self._waiting if key[0] is entry]:
                self._leave(key)

    def _leave(self, key: _Key) -> None:
        entry = key[0]
        for guest in self._waiting.pop(key, ()):
            guest.timer.cancel()
            entry.waiting -= 1
            self._try_again(entry, guest)

    def _try_again(self, entry: Entry, guest: _Guest) -> None:
        outcome = self._retry(entry, guest.command)
        if not isinstance(outcome, Reply):
            outcome = asyncio.ensure_future(outcome)
            # Keep a reference: the loop does not.
            self._retrying.add(outcome)
            outcome.add_done_callback(self._retrying.discard)
        outcome.add_done_callback(lambda done: _pass_on(done, guest.reply))


class Waiting(Reply[AppendReply]):
    """The reply to a waiting request. It may fail because another node has the stream."""


class _Guest:
    __slots__ = ("command", "reply", "timer")

    timer: asyncio.TimerHandle

    def __init__(self, command: Append) -> None:
        self.command = command
        self.reply = Waiting()


def _pass_on(
    done: Reply[AppendReply] | asyncio.Future[AppendReply], to: Reply[AppendReply]
) -> None:
    if not done.cancelled():
        error = done.exception()
        to.settle(error if isinstance(error, Exception) else done.result())
