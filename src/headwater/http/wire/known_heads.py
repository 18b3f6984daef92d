"""Heads that were parsed before.

Clients send nearly the same head with every request to a stream: only the length of the body and
the sequence number of a producer differ. Without those two numbers, equal bytes mean the same
request, so a head that was parsed, checked and matched to its route once is looked up the next
time. Once a request has passed the gate, those with the same head pass it too, as long as the
caller is valid: what the gate decides depends on nothing else. (With rate limits it does, and every
request passes it.) A head includes the key or token, so it is known only to somebody who has that.

A head is kept only if it is self-contained: its request came in one piece, with no body or a small
one of a stated length, and the connection stays open. Heads that differ every time must not push
out the others, so there are two generations, and heads in use stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from headwater.core.access import Caller
from headwater.http import headers as names
from headwater.http.messages import Request, Shortcut
from headwater.http.wire.body_budget import SMALL_BYTES
from headwater.service.clock import wall_clock_ms

if TYPE_CHECKING:
    from headwater.http.routes.route import Reply

_END: Final = b"\r\n\r\n"
_HEAD_BYTES_MAX: Final = 1024
_HEADS_MAX: Final = 2048
_LENGTH: Final = b"content-length"
# The name stays in the look-up key, so each number belongs to a header that was parsed before.
_NUMBERS: Final = re.compile(rb"(\r\n(?:content-length|producer-seq): )(\d{1,15})(?=\r\n)", re.I)
_NEVER_THE_SAME: Final = frozenset(
    {names.STREAM_SEQ, names.MESSAGE_ID, names.REQUEST_ID, b"traceparent"}
)
_NEEDS_CARE: Final = frozenset({b"transfer-encoding", b"expect", b"upgrade"})
_LEFT_OUT: Final = _NEVER_THE_SAME | _NEEDS_CARE


class KnownHead:
    """What all requests with one head have in common, whatever its numbers."""

    __slots__ = ("append", "caller", "first", "handler", "numbered", "said", "shortcut")

    def __init__(self, first: Request, numbered: list[bytes]) -> None:
        self.first = first
        self.numbered = numbered
        """The headers whose numbers differ, in order of appearance."""
        self.handler: Callable[[Request], Reply] | None = None
        """What answers its requests, if one has passed everything that comes before."""
        self.caller: Caller | None = None
        """Who sent the last request that passed the gate; None if anyone may."""
        self.shortcut: Shortcut | None = None
        """A shorter way than the handler, where there is one."""
        self.append: tuple[Any, ...] | None = None
        """What its headers say about an append, once parsed."""
        self.said: bytes | None = None
        """Its lines as forwarded to another node, without their numbers."""

    @property
    def repeats(self) -> bool:
        """Whether more requests with the very same numbers may come."""
        return names.PRODUCER_SEQ not in self.numbered

    def passed(self, handler: Callable[[Request], Reply], caller: Caller | None) -> None:
        """Everything before the handler admitted a request, and depends on the head alone."""
        self.handler, self.caller = handler, caller

    def admits(self, request: Request) -> bool:
        """Whether a request may go straight to the handler, like the one before."""
        if self.handler is None:
            return False
        caller = self.caller
        if caller is not None:
            if not caller.is_valid(wall_clock_ms()):
                return False
            request.caller = caller
        return True

    def headers(self, numbers: list[bytes]) -> dict[bytes, bytes]:
        if not numbers:
            return self.first.headers
        return {**self.first.headers, **dict(zip(self.numbered, numbers, strict=True))}


Exact = tuple[KnownHead, dict[bytes, bytes], int]
"""A head with its numbers: the head, its headers, and the length of the body."""


class KnownHeads:
    def __init__(self) -> None:
        self._young: dict[bytes, KnownHead] = {}
        self._old: dict[bytes, KnownHead] = {}
        self._exact: dict[bytes, Exact] = {}

    @property
    def size(self) -> int:
        return len(self._young) + len(self._old) + len(self._exact)

    def find(self, data: bytes) -> Request | None:
        """The request in these bytes, if they are exactly one with a known head."""
        end = data.find(_END, 0, _HEAD_BYTES_MAX) + 4
        head = data[:end]
        exact = self._exact.get(head) or self._look_up(head)
        if exact is None:
            return None
        known, headers, length = exact
        body = data[end:]
        if len(body) != length or length > SMALL_BYTES:
            return None
        first = known.first
        request = Request(first.method, first.path, first.query, headers, body)
        request.match = first.match
        request.route = first.route
        request.head = known
        return request

    def _look_up(self, head: bytes) -> Exact | None:
        parts = _NUMBERS.split(head)
        numbers = parts[2::3]
        del parts[2::3]
        shape = b"".join(parts)
        known = self._young.get(shape)
        if known is None:
            known = self._old.get(shape)
            if known is None:
                return None
            self._keep(shape, known)
        if len(numbers) != len(known.numbered):
            # There is nothing where a number was.
            return None
        headers = known.headers(numbers)
        exact = known, headers, int(headers.get(_LENGTH, b"0"))
        if known.repeats:
            if len(self._exact) >= _HEADS_MAX:
                self._exact.clear()
            self._exact[head] = exact
        return exact

    def note(self, data: bytes, request: Request) -> None:
        """Remember bytes that were parsed and ended with a request."""
        end = data.find(_END, 0, _HEAD_BYTES_MAX) + 4
        length = len(request.body)
        if end + length != len(data) or length > SMALL_BYTES or not request.keep_alive:
            return
        headers = request.headers
        if int(headers.get(_LENGTH, b"0")) == length and _LEFT_OUT.isdisjoint(headers):
            parts = _NUMBERS.split(data[:end])
            numbered = [name.strip(b"\r\n: ").lower() for name in parts[1::3]]
            del parts[2::3]
            first = Request(request.method, request.path, request.query, headers)
            first.match, first.route = request.match, request.route
            self._keep(b"".join(parts), KnownHead(first, numbered))

    def _keep(self, shape: bytes, known: KnownHead) -> None:
        if len(self._young) >= _HEADS_MAX:
            self._old, self._young = self._young, {}
        self._young[shape] = known
