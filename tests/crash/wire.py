"""A lean HTTP/1.1 client that knows the difference between "refused" and "no answer".

The load of a crash test comes from hundreds of requests in flight on two cores, so this does no
more than it must. A request that ends without a complete response raises `Lost`: the server may
have done what was asked or not, and it is up to the checks to find out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import suppress
from typing import NamedTuple

HOST = "127.0.0.1"
_READ_LIMIT = 1 << 22


class Lost(Exception):
    """The connection ended before the response was complete, or before it began."""

    def __init__(self, reason: object, *, begun: bool = False) -> None:
        super().__init__(str(reason))
        self.begun = begun
        """Part of a response had arrived."""


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def next_offset(self) -> str:
        return self.headers["stream-next-offset"]

    @property
    def closed(self) -> bool:
        return self.headers.get("stream-closed") == "true"

    @property
    def up_to_date(self) -> bool:
        return self.headers.get("stream-up-to-date") == "true"


class Event(NamedTuple):
    kind: str
    data: bytes


def encode_request(method: str, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", f"Host: {HOST}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Wire:
    """One keep-alive connection, opened when it is first needed."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            try:
                self._streams = await asyncio.open_connection(HOST, self.port, limit=_READ_LIMIT)
            except OSError as error:
                raise Lost(error) from None
        return self._streams

    async def request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        query: str = "",
    ) -> Reply:
        """Ask for a stream's path and wait for the whole response."""
        target = f"/v1/stream/{path}{'?' if query else ''}{query}"
        return await self.call(method, target, headers, body)

    async def call(
        self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        reader, writer = await self.open()
        begun = False
        try:
            writer.write(encode_request(method, target, headers or {}, body))
            status, received = await read_head(reader)
            begun = True
            length = 0 if method == "HEAD" else int(received.get("content-length", 0))
            content = await reader.readexactly(length) if length else b""
        except (OSError, asyncio.IncompleteReadError) as error:
            await self.close()
            begun = begun or bool(getattr(error, "partial", b""))
            raise Lost(error, begun=begun) from None
        if received.get("connection") == "close":
            await self.close()
        if b'"outcome_unknown"' in content:
            raise Lost("nobody knows whether it was stored", begun=True)
        return Reply(status, received, content)

    async def close(self) -> None:
        if self._streams is None:
            return
        (_, writer), self._streams = self._streams, None
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    status_line, *lines = head[:-4].split("\r\n")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return int(status_line.split(" ", 2)[1]), headers


class EventStream:
    """An SSE response. Iterate over its events; `ended_cleanly` says how it ended."""

    def __init__(self, port: int, path: str, offset: str = "", *, query: str = "") -> None:
        self._wire = Wire(port)
        target = f"/v1/stream/{path}?{query or f'offset={offset}'}&live=sse"
        self._request = encode_request("GET", target, {}, b"")
        self.status = 0
        self.ended_cleanly = False

    async def events(self) -> AsyncGenerator[Event, None]:
        """All events until the response ends. Raises Lost when it is cut instead."""
        try:
            reader, writer = await self._wire.open()
            writer.write(self._request)
            self.status, headers = await read_head(reader)
            if self.status != 200:
                await reader.readexactly(int(headers.get("content-length", 0)))
                return
            pending = b""
            async for chunk in self._chunks(reader):
                *complete, pending = (pending + chunk).split(b"\n\n")
                for block in complete:
                    event = parse_event(block)
                    if event is not None:
                        yield event
        except (OSError, asyncio.IncompleteReadError) as error:
            raise Lost(error, begun=self.status != 0) from None
        finally:
            await self._wire.close()

    @classmethod
    def of_several(cls, port: int, streams: Mapping[str, str]) -> EventStream:
        """Several streams over one connection, each from its offset."""
        source = cls(port, "")
        body = json.dumps({"streams": dict(streams)}).encode()
        headers = {"Content-Type": "application/json"}
        source._request = encode_request("POST", "/v1/follow", headers, body)
        return source

    async def _chunks(self, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        while True:
            size = int(await reader.readuntil(b"\r\n"), 16)
            chunk = await reader.readexactly(size + 2)
            if size == 0:
                self.ended_cleanly = True
                return
            yield chunk[:-2]


def parse_event(block: bytes) -> Event | None:
    """One block of an event stream; None for a comment."""
    kind, data = "", []
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            kind = value.decode()
        elif name == b"data":
            data.append(value)
    return Event(kind, b"\n".join(data)) if kind else None
