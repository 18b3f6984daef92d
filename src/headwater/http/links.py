"""Connections to other nodes: HTTP/1.1, kept alive, for requests that are passed on.

The other end is a Headwater of the same cluster, so this knows no redirects, no proxies and no
content codings: whatever comes is handed on as it is. A response is read as a whole, which is
bounded by what a node answers at most, unless it is an event stream.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from time import monotonic
from typing import Final
from urllib.parse import urlsplit

from headwater.http.messages import Headers

_IDLE_MAX: Final = 64
# Shorter than a server waits for the next request, so that the two do not cross.
_IDLE_S_MAX: Final = 30.0
_CONNECT_S_MAX: Final = 3.0
_HEAD_BYTES_MAX: Final = 256 * 1024
_BODILESS: Final = frozenset({204, 304})


class LinkBroken(Exception):
    """The other end cannot be reached, or hung up. `sent`: it may have got the request."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class Reply:
    """The head of a response, and what is left of it to read."""

    __slots__ = ("_keep_alive", "_left", "_link", "chunked", "headers", "status")

    def __init__(self, link: Link, status: int, headers: Headers, *, bodiless: bool) -> None:
        self._link = link
        self.status = status
        self.headers = headers
        known = {name.lower(): value for name, value in headers}
        self.chunked = known.get("transfer-encoding", "").lower() == "chunked"
        self._left = 0 if bodiless or self.chunked else int(known.get("content-length", "0"))
        if bodiless:
            self.chunked = False
        self._keep_alive = known.get("connection", "").lower() != "close"

    async def read(self) -> bytes:
        """The whole body; the connection can be used again after that."""
        try:
            if self.chunked:
                parts: list[bytes] = []
                while chunk := await self.chunk():
                    parts.append(chunk)
                body = b"".join(parts)
            else:
                body = await self._link.reader.readexactly(self._left) if self._left else b""
        except (OSError, EOFError, ValueError) as error:
            self._link.close()
            raise LinkBroken(str(error), sent=True) from None
        if self._keep_alive:
            self._link.rest()
        else:
            self._link.close()
        return body

    async def chunk(self) -> bytes:
        """The next chunk; empty at the end."""
        reader = self._link.reader
        size = int((await reader.readuntil(b"\r\n")).strip(), 16)
        data = await reader.readexactly(size + 2)
        return data[:-2]

    def close(self) -> None:
        self._link.close()


class Link:
    """One connection, used by one request at a time."""

    __slots__ = ("_links", "reader", "rested_s", "writer")

    def __init__(
        self, links: Links, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._links = links
        self.reader = reader
        self.writer = writer
        self.rested_s = 0.0

    @property
    def is_usable(self) -> bool:
        fresh = monotonic() - self.rested_s < _IDLE_S_MAX
        return fresh and not self.reader.at_eof() and not self.writer.is_closing()

    async def send(self, head: bytes, body: bytes, *, bodiless: bool) -> Reply:
        try:
            self.writer.writelines([head, body] if body else [head])
            await self.writer.drain()
            raw = await self.reader.readuntil(b"\r\n\r\n")
            status, headers = _parse_head(raw)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            self.close()
            raise LinkBroken(str(error) or "hung up", sent=True) from None
        except asyncio.CancelledError:
            self.close()
            raise
        return Reply(self, status, headers, bodiless=bodiless or status in _BODILESS)

    def rest(self) -> None:
        self.rested_s = monotonic()
        self._links.take_back(self)

    def close(self) -> None:
        self.writer.close()


class Links:
    """The connections to one node."""

    def __init__(self, address: str, tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(address)
        self._host = parts.hostname or ""
        secure = parts.scheme == "https"
        self._port = parts.port or (443 if secure else 80)
        self._tls = (tls or ssl.create_default_context()) if secure else None
        self._idle: list[Link] = []
        self._closed = False

    async def request(
        self, method: str, target: bytes, headers: Sequence[tuple[bytes, bytes]], body: bytes = b""
    ) -> Reply:
        lines = [b"%b %b HTTP/1.1\r\n" % (method.encode(), target)]
        lines += [b"%b: %b\r\n" % header for header in headers]
        if body or method in ("PUT", "POST"):
            lines.append(b"content-length: %d\r\n" % len(body))
        lines.append(b"\r\n")
        link = await self._link()
        return await link.send(b"".join(lines), body, bodiless=method == "HEAD")

    async def _link(self) -> Link:
        while self._idle:
            link = self._idle.pop()
            if link.is_usable:
                return link
            link.close()
        try:
            async with asyncio.timeout(_CONNECT_S_MAX):
                reader, writer = await asyncio.open_connection(
                    self._host, self._port, ssl=self._tls, limit=_HEAD_BYTES_MAX
                )
        except (OSError, TimeoutError) as error:
            raise LinkBroken(str(error) or "does not answer", sent=False) from None
        return Link(self, reader, writer)

    def take_back(self, link: Link) -> None:
        if self._closed or len(self._idle) >= _IDLE_MAX:
            link.close()
        else:
            self._idle.append(link)

    def close(self) -> None:
        self._closed = True
        for link in self._idle:
            link.close()
        self._idle.clear()


def _parse_head(raw: bytes) -> tuple[int, Headers]:
    first, *lines = raw[:-4].decode("latin-1").split("\r\n")
    version, status, *_ = first.split(" ", 2)
    if not version.startswith("HTTP/1."):
        raise ValueError("not HTTP")
    headers: Headers = []
    for line in lines:
        name, _, value = line.partition(":")
        headers.append((name, value.strip()))
    return int(status), headers
