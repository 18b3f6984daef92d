"""Heads that were parsed before.

Clients send the same head with every request to a stream: only the body differs. The same bytes
mean the same request, so a head that was parsed, checked and matched to its route once is looked up
the next time. Nothing else is saved: every request passes the gate and its handler as always.

A head is kept only if it stands by itself: its request came in one piece, with no body or a small
one of a stated length, and the connection stays open. Heads that differ every time would only push
out the others. There are two generations, so that heads in use stay.
"""

from __future__ import annotations

from typing import Any, Final

from headwater.http import headers as names
from headwater.http.intake import SMALL_BYTES
from headwater.http.messages import Request

_END: Final = b"\r\n\r\n"
_HEAD_BYTES_MAX: Final = 1024
_HEADS_MAX: Final = 2048
_NEVER_THE_SAME: Final = frozenset(
    {names.PRODUCER_SEQ, names.STREAM_SEQ, names.MESSAGE_ID, names.REQUEST_ID, b"traceparent"}
)
_NEEDS_CARE: Final = frozenset({b"transfer-encoding", b"expect", b"upgrade"})
_LEFT_OUT: Final = _NEVER_THE_SAME | _NEEDS_CARE


class KnownHead:
    """What all requests with one head have in common."""

    __slots__ = ("append", "first", "length")

    def __init__(self, first: Request, length: int) -> None:
        self.first = first
        self.length = length
        self.append: tuple[Any, ...] | None = None
        """What its headers say about an append, once they were parsed."""

    def request(self, body: bytes) -> Request:
        first = self.first
        request = Request(first.method, first.path, first.query, first.headers)
        request.body = body
        request.match = first.match
        request.head = self
        return request


class KnownHeads:
    def __init__(self) -> None:
        self._young: dict[bytes, KnownHead] = {}
        self._old: dict[bytes, KnownHead] = {}

    @property
    def size(self) -> int:
        return len(self._young) + len(self._old)

    def find(self, data: bytes) -> Request | None:
        """The request that these bytes are, if they are a whole one with a known head."""
        end = data.find(_END, 0, _HEAD_BYTES_MAX) + 4
        head = data[:end]
        known = self._young.get(head)
        if known is None:
            known = self._old.get(head)
            if known is None:
                return None
            self._keep(head, known)
        body = data[end:]
        return known.request(body) if len(body) == known.length else None

    def note(self, data: bytes, request: Request) -> None:
        """Bytes that were parsed and ended with a request."""
        end = data.find(_END, 0, _HEAD_BYTES_MAX) + 4
        length = len(request.body)
        if end + length != len(data) or length > SMALL_BYTES or not request.keep_alive:
            return
        headers = request.headers
        if int(headers.get(b"content-length", b"0")) == length and _LEFT_OUT.isdisjoint(headers):
            first = Request(request.method, request.path, request.query, headers)
            first.match = request.match
            self._keep(data[:end], KnownHead(first, length))

    def _keep(self, head: bytes, known: KnownHead) -> None:
        if len(self._young) >= _HEADS_MAX:
            self._old, self._young = self._young, {}
        self._young[head] = known
