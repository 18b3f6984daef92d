"""From bytes to requests: httptools parses, and this bounds what it is given.

A head that grows too large and a body that does are refused as they arrive, not when they are
complete. We speak HTTP/1.1 only: a request that offers to upgrade is read again without the offer,
because the parser stops behind such a head and would leave its body to another protocol.
"""

from __future__ import annotations

from typing import Protocol

import httptools

from headwater.core.errors import BodyTooLarge
from headwater.core.limits import Limits
from headwater.http.errors import error_response, plain_error
from headwater.http.messages import Request, Response

_NOT_REPEATED = frozenset({b"upgrade", b"connection", b"expect"})


class Receiver(Protocol):
    """Who is told of what was read."""

    def received(self, request: Request) -> None: ...

    def refused(self, response: Response) -> None:
        """What came cannot become a request. Nothing more is read."""

    def expects_continue(self) -> None:
        """The peer waits for a go-ahead before it sends the body."""

    def announced(self, request: Request) -> Response | None:
        """A request whose body is still to come; or why there is no point in reading that."""


class RequestReader:
    __slots__ = (
        "_arrived_bytes",
        "_body",
        "_body_bytes",
        "_head_bytes",
        "_header_count",
        "_headers",
        "_heads",
        "_limits",
        "_parser",
        "_receiver",
        "_refused",
        "_request",
        "_upgrading",
        "_url",
        "http_1_0",
        "started",
    )

    def __init__(self, limits: Limits, receiver: Receiver) -> None:
        self._limits = limits
        self._receiver = receiver
        self._parser = httptools.HttpRequestParser(self)
        self._heads = 0
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
        self._arrived_bytes = 0
        self._request: Request | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0

    @property
    def in_body(self) -> bool:
        return self._request is not None

    def feed(self, data: bytes) -> None:
        if self._refused:
            return
        head_before = self._heads if self.started and not self.in_body else None
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self._refuse(plain_error(400, "malformed_http", "the request is not valid HTTP/1.1"))
            return
        if head_before == self._heads and self.started and not self.in_body:
            # Still the same head. Counted as it arrives: the parser reports whole lines only.
            self._arrived_bytes += len(data)
            if self._arrived_bytes > self._limits.header_bytes_max:
                self._refuse_head()

    def _parse(self, data: bytes) -> None:
        while data:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                self._upgrading = False
                request = self._request
                if request is None or request.method == "CONNECT":
                    self._refuse(plain_error(400, "malformed_http", "there are no tunnels here"))
                    return
                data = self._without_upgrade(request) + data[upgrade.args[0] :]
                self._begin()
                self._parser = httptools.HttpRequestParser(self)

    def _without_upgrade(self, request: Request) -> bytes:
        lines = [b"%b %b HTTP/1.1" % (request.method.encode(), self._url)]
        lines += [
            b"%b: %b" % header for header in self._headers.items() if header[0] not in _NOT_REPEATED
        ]
        return b"\r\n".join([*lines, b"", b""])

    def _refuse(self, response: Response) -> None:
        if not self._refused:
            self._refused = True
            self._receiver.refused(response)

    def _refuse_head(self) -> None:
        limit = self._limits.header_bytes_max
        self._refuse(
            plain_error(431, "headers_too_large", f"the request head is over {limit} bytes")
        )

    def _refuse_body(self) -> None:
        self._refuse(error_response(BodyTooLarge(self._limits.body_bytes_max)))

    # ── What the parser calls ────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        self.started = True
        self._heads += 1

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        self._header_count += 1
        self._headers.setdefault(name.lower(), value)

    def on_headers_complete(self) -> None:
        if self._refused:
            return
        if self._head_bytes + len(self._url) > self._limits.header_bytes_max:
            self._refuse_head()
            return
        if self._header_count > self._limits.header_count_max:
            limit = self._limits.header_count_max
            self._refuse(
                plain_error(431, "too_many_headers", f"the request has more than {limit} headers")
            )
            return
        parser = self._parser
        path, _, query = self._url.partition(b"?")
        request = Request(parser.get_method().decode("ascii"), path, query, self._headers)
        request.keep_alive = parser.should_keep_alive()
        self._request = request
        self.http_1_0 = parser.get_http_version() == "1.0"
        self._upgrading = parser.should_upgrade()
        length = self._headers.get(b"content-length")
        if length is not None and int(length) > self._limits.body_bytes_max:
            self._refuse_body()
            return
        if length is not None or b"transfer-encoding" in self._headers:
            refusal = self._receiver.announced(request)
            if refusal is not None:
                self._refuse(refusal)
                return
        if b"expect" in self._headers and self._headers[b"expect"].lower() == b"100-continue":
            self._receiver.expects_continue()

    def on_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
        if self._body_bytes > self._limits.body_bytes_max:
            self._refuse_body()
        elif not self._refused:
            self._body.append(data)

    def on_message_complete(self) -> None:
        request = self._request
        if request is None or self._refused or self._upgrading:
            return
        request.body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._begin()
        self._receiver.received(request)
