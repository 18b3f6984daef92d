"""From bytes to requests: httptools parses, and this module bounds its input.

Heads and bodies that grow too large are refused as they arrive, not when they are complete. If a
body does not arrive together with its head, the handler is asked first: the sender may be a
stranger, and the resource may have no use for the body, in which case it is read and dropped.
Trailers count like headers, and are dropped: nothing after a body changes the request.

We speak HTTP/1.1 only: a request that offers to upgrade is parsed again without the offer, because
the parser stops after such a head and would leave its body to another protocol.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, Final, Protocol

import httptools

from headwater.core.errors import BodiesFull, BodyTooLarge
from headwater.core.limits import KIB, MIB, Limits
from headwater.http.errors import error_response, plain_error
from headwater.http.messages import Request, Response
from headwater.http.wire.body_budget import SMALL_BYTES, Claim
from headwater.http.wire.known_heads import KnownHeads

_NOT_REPEATED: Final = frozenset({b"upgrade", b"connection", b"expect"})
# An unneeded body is read and dropped up to this size, so that the connection can be kept.
_DISCARD_BYTES_MAX: Final = MIB
# This much is parsed at a time, so that few requests are built before the first is answered.
SLICE_BYTES: Final = 8 * KIB
# A body in more pieces than this, or larger, is joined as it arrives.
_PARTS_MAX: Final = 256
_PARTS_BYTES_MAX: Final = MIB
# A peer that sends less than this within the body timeout is too slow.
_PACE_BYTES: Final = 16 * KIB


class Receiver(Protocol):
    """Receives what was parsed."""

    def received(self, request: Request) -> None: ...

    def refused(self, response: Response) -> None:
        """The input is not a valid request. Nothing more is read."""

    def failed(self, error: BaseException) -> None:
        """The server failed. Nothing more is read."""

    def expects_continue(self) -> None:
        """The peer waits for a go-ahead before it sends the body."""

    def announced(self, request: Request) -> Response | int:
        """How much body a request may have, if it is still to come; or why it is refused."""

    def claim(self, request: Request) -> Claim:
        """Reserve room for a body that is not small."""


class RequestReader:
    __slots__ = (
        "_announced",
        "_body_bytes",
        "_body_max",
        "_completed",
        "_discards",
        "_head_bytes",
        "_header_count",
        "_headers",
        "_known",
        "_length",
        "_limits",
        "_merged",
        "_paced_bytes",
        "_parser",
        "_parts",
        "_receiver",
        "_refused",
        "_request",
        "_reserved",
        "_still_bytes",
        "_upgrading",
        "_url",
        "http_1_0",
        "started",
        "steps",
    )

    def __init__(self, limits: Limits, receiver: Receiver, known: KnownHeads) -> None:
        self._limits = limits
        self._known = known
        self._completed: Request | None = None
        self._receiver = receiver
        self._parser: Any = httptools.HttpRequestParser(self)
        self.steps = 0
        """How many heads, bodies and parts of bodies there were."""
        self._refused = False
        self._upgrading = False
        self.http_1_0 = False
        self._begin()

    def _begin(self) -> None:
        self.started = False
        """Whether a request has begun to arrive and is not complete."""
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._head_bytes = 0
        self._header_count = 0
        self._still_bytes = 0
        self._request: Request | None = None
        self._announced = False
        self._discards = False
        self._length = 0
        self._parts: list[bytes] = []
        self._merged: BytesIO | None = None
        self._body_bytes = 0
        self._body_max = self._limits.body_bytes_max
        self._reserved = SMALL_BYTES
        self._paced_bytes = 0

    @property
    def in_body(self) -> bool:
        return self._request is not None

    @property
    def slice_bytes(self) -> int:
        """How much to feed at a time: a body of known length can be taken in as a whole."""
        return max(SLICE_BYTES, self._length - self._body_bytes)

    def keeps_pace(self) -> bool:
        """Whether enough of the body has come since this was last true to allow more time."""
        if self._body_bytes - self._paced_bytes < _PACE_BYTES:
            return False
        self._paced_bytes = self._body_bytes
        return True

    def close(self) -> None:
        """Nothing more is read. Parser and reader refer to each other; break the cycle."""
        self._stop()
        self._parser = None

    def feed(self, data: bytes | memoryview, *, more: bool = False, is_new: bool = False) -> None:
        """Parse what has arrived, or a slice of it with more to follow."""
        if self._refused:
            return
        whole = data if isinstance(data, bytes) and not self.started else None
        if whole is not None and not is_new:
            request = self._known.find(whole)
            if request is not None:
                self.http_1_0 = False
                self._receiver.received(request)
                return
        self._completed = None
        # If no more than one step is made from there, only the beginning of a head has come.
        steps = self.steps if self.started else self.steps + 1
        try:
            self._parse(data)
        except httptools.HttpParserCallbackError as error:
            self._stop()
            self._receiver.failed(error.__context__ or error)
            return
        except httptools.HttpParserError:
            self._refuse(plain_error(400, "malformed_http", "the request is not valid HTTP/1.1"))
            return
        # Keep no reference: the connection may be idle from now on.
        completed, self._completed = self._completed, None
        if whole is not None and completed is not None and not self.http_1_0:
            self._known.note(whole, completed)
        if self.started and not self._refused:
            if self._request is not None and not self._announced and not more:
                self._announce(self._request)
            self._count_still(len(data) if steps == self.steps else 0)

    def _count_still(self, still_bytes: int) -> None:
        """Count bytes that brought neither the end of a head nor any body."""
        # Counted as they arrive: the parser reports whole lines only, and keeps the rest.
        self._still_bytes = self._still_bytes + still_bytes if still_bytes else 0
        if self._still_bytes > self._limits.header_bytes_max:
            self._refuse_head()

    def _parse(self, data: bytes | memoryview) -> None:
        while data:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                self._upgrading = False
                request = self._request
                if request is None or request.method == "CONNECT":
                    self._refuse(plain_error(400, "malformed_http", "this server opens no tunnels"))
                if request is None or self._refused:
                    return
                data = self._without_upgrade(request) + bytes(data[upgrade.args[0] :])
                self._begin()
                self._parser = httptools.HttpRequestParser(self)

    def _without_upgrade(self, request: Request) -> bytes:
        version = b"1.0" if self.http_1_0 else b"1.1"
        lines = [b"%b %b HTTP/%b" % (request.method.encode(), self._url, version)]
        lines += [
            b"%b: %b" % header for header in self._headers.items() if header[0] not in _NOT_REPEATED
        ]
        return b"\r\n".join([*lines, b"", b""])

    # ── Refusing ─────────────────────────────────────────────────────────────────────────────

    def _stop(self) -> None:
        """Parse nothing more."""
        self._refused = True
        if self._request is not None:
            self._drop_body(self._request)

    def _drop_body(self, request: Request) -> None:
        self._parts.clear()
        self._merged = None
        request.release()

    def _refuse(self, response: Response) -> None:
        if not self._refused:
            self._stop()
            self._receiver.refused(response)

    def _refuse_head(self) -> None:
        limit = self._limits.header_bytes_max
        self._refuse(
            plain_error(431, "headers_too_large", f"the request head is over {limit} bytes")
        )

    def _check_head(self) -> None:
        if self._head_bytes + len(self._url) > self._limits.header_bytes_max:
            self._refuse_head()
        elif self._header_count > self._limits.header_count_max:
            limit = self._limits.header_count_max
            self._refuse(
                plain_error(431, "too_many_headers", f"the request has more than {limit} headers")
            )
        elif self._headers.get(b"transfer-encoding", b"chunked").strip().lower() != b"chunked":
            # Any other coding of the body would be stored as it is.
            self._refuse(plain_error(400, "malformed_http", "a body may be chunked, no more"))
        elif b"host" not in self._headers and not self.http_1_0:
            self._refuse(plain_error(400, "malformed_http", "the request names no host"))

    # ── Bodies that are still to come ────────────────────────────────────────────────────────

    def _announce(self, request: Request) -> None:
        """Ask what to do with a body that has not fully arrived."""
        self._announced = True
        verdict = self._receiver.announced(request)
        if isinstance(verdict, Response):
            self._refuse(verdict)
            return
        waits = self._headers.get(b"expect", b"").lower() == b"100-continue"
        size = max(self._length, self._body_bytes)
        self._discards = not verdict
        self._body_max = verdict or _DISCARD_BYTES_MAX
        if size > self._body_max or (self._discards and waits):
            self._refuse_body()
        elif self._discards:
            self._drop_body(request)
        elif self._reserve(request, size) and waits:
            self._receiver.expects_continue()

    def _reserve(self, request: Request, size: int) -> bool:
        """Reserve memory for that much of a body, or refuse it."""
        if size <= self._reserved:
            return True
        if request.claim is None:
            request.claim = self._receiver.claim(request)
        if not request.claim.grow(size):
            self._refuse(error_response(BodiesFull()))
            return False
        self._reserved = size
        return True

    def _refuse_body(self) -> None:
        request = self._request
        if not self._discards or request is None:
            self._refuse(error_response(BodyTooLarge(self._body_max)))
        elif not self._refused:
            # The answer does not need the body, but it is too large to keep the connection.
            self._stop()
            request.keep_alive = False
            self._receiver.received(request)

    # ── What the parser calls ────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        self.started = True
        self.steps += 1

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        self._header_count += 1
        if self._request is None:
            name = name.lower()
            if name == b"host" and name in self._headers:
                # A proxy in front of this server may use the other one.
                self._refuse(plain_error(400, "malformed_http", "the request names two hosts"))
            self._headers.setdefault(name, value)
        else:
            self._check_head()

    def on_headers_complete(self) -> None:
        self.steps += 1
        if self._refused:
            return
        parser = self._parser
        self.http_1_0 = parser.get_http_version() == "1.0"
        self._check_head()
        if self._refused:
            return
        path, _, query = self._url.partition(b"?")
        request = Request(parser.get_method().decode("ascii"), path, query, self._headers)
        request.keep_alive = parser.should_keep_alive()
        self._request = request
        self._upgrading = parser.should_upgrade()
        self._length = int(self._headers.get(b"content-length", 0))
        if self._length > self._body_max:
            self._refuse_body()

    def on_body(self, data: bytes) -> None:
        request = self._request
        if self._refused or request is None:
            return
        self.steps += 1
        self._body_bytes = size = self._body_bytes + len(data)
        if size > self._body_max:
            self._refuse_body()
        elif not self._discards and (
            size <= self._reserved
            or size == len(data)
            or self._reserve(request, min(2 * size, self._body_max))
        ):
            self._keep(data)

    def _keep(self, data: bytes) -> None:
        """A list of tiny chunks takes many times their size, and joining a large body at its end
        would take as much again, and block everyone meanwhile.
        """
        parts, merged = self._parts, self._merged
        if merged is not None:
            merged.write(data)
        elif len(parts) < _PARTS_MAX and (not parts or self._body_bytes <= _PARTS_BYTES_MAX):
            parts.append(data)
        else:
            self._merged = merged = BytesIO()
            merged.writelines((*parts, data))
            parts.clear()

    def on_message_complete(self) -> None:
        request = self._request
        if request is None or self._refused or self._upgrading:
            return
        size = 0 if self._discards else self._body_bytes
        if size > self._reserved and not self._reserve(request, size):
            return
        parts = self._parts
        if self._merged is not None:
            request.body = self._merged.getvalue()
        elif parts:
            request.body = parts[0] if len(parts) == 1 else b"".join(parts)
        self._begin()
        self._completed = request
        self._receiver.received(request)
