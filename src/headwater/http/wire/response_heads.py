"""Heads of responses: the status line, and the headers that all of them have."""

from __future__ import annotations

import http
from email.utils import formatdate
from time import time
from typing import Final

from headwater.http.cors import constant_headers
from headwater.http.headers import REQUEST_ID
from headwater.http.messages import EventStream, Headers, Request, Response

_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
    for status in http.HTTPStatus
}
_NO_CONTENT: Final = 204
_CLOSE: Final = b"Connection: close\r\n"
_CHUNKED: Final = b"Transfer-Encoding: chunked\r\n"


class Heads:
    def __init__(self, origins: frozenset[str] | None, *, is_private: bool) -> None:
        self._is_private = is_private
        # Each site that may read responses is told only that it may, nothing about the others.
        self._allowed = {
            origin.encode(): f"Access-Control-Allow-Origin: {origin}\r\n".encode()
            for origin in origins or ()
        }
        self._common = constant_headers(origins)
        self._constant = b""
        self._second = 0

    def of_response(
        self, response: Response, request: Request | None, length: int | None, *, close: bool
    ) -> bytes:
        """A whole head. Without a length it says nothing about the body."""
        begin = self._begin(response.status, response.headers, request)
        framing = b"" if length is None else b"Content-Length: %d\r\n" % length
        return b"".join((begin, response.lines, framing, _CLOSE if close else b"", b"\r\n"))

    def whole(
        self, status: int, lines: bytes, body: bytes, request: Request, *, close: bool
    ) -> bytes:
        """A response with its body, for frequent ones."""
        if close or self._allowed or REQUEST_ID in request.headers:
            length = None if status == _NO_CONTENT else len(body)
            response = Response(status, lines=lines)
            return self.of_response(response, request, length, close=close) + body
        begin, constant = _STATUS_LINES[status], self._constant_part()
        if status != _NO_CONTENT:
            return b"%b%b%bContent-Length: %d\r\n\r\n%b" % (
                *(begin, constant, lines),
                *(len(body), body),
            )
        return b"%b%b%b\r\n" % (begin, constant, lines)

    def of_events(self, events: EventStream, request: Request, *, chunked: bool) -> bytes:
        """The head of a response whose end is not known when it begins.

        The connection ends with it, and the head says so: a client that reused it would be cut off.
        """
        framing = _CHUNKED + _CLOSE if chunked else _CLOSE
        return b"".join((self._begin(200, events.headers, request), framing, b"\r\n"))

    def _begin(self, status: int, headers: Headers, request: Request | None) -> bytes:
        # A node that forwards an answer adds all of this itself.
        is_passed_on = request is not None and request.hops
        constant = b"" if is_passed_on else self._constant_part()
        if request is not None and not is_passed_on:
            if self._allowed:
                constant += self._allowed.get(request.headers.get(b"origin", b""), b"")
            if status >= 500 or REQUEST_ID in request.headers:
                # The client sent one, or may ask about a failure.
                constant += b"X-Request-Id: %b\r\n" % request.id.encode()
        if not headers:
            return _STATUS_LINES[status] + constant
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
        if self._is_private:
            # A cache in between must not show what one caller may read to the next.
            lines = lines.replace("Cache-Control: public", "Cache-Control: private")
        return b"".join((_STATUS_LINES[status], constant, lines.encode("latin-1")))

    def _constant_part(self) -> bytes:
        """The date and the headers of every response; rebuilt once a second."""
        second = int(time())
        if second != self._second:
            self._second = second
            self._constant = f"Date: {formatdate(second, usegmt=True)}\r\n".encode() + self._common
        return self._constant


def parsed(lines: bytes) -> Headers:
    """Encoded headers, one by one."""
    parted = [line.partition(": ") for line in lines.decode("latin-1").split("\r\n") if line]
    return [(name, value) for name, _, value in parted]
