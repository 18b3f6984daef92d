"""The attackers' side of a socket: from an address of its own, and free to misbehave."""

from __future__ import annotations

import asyncio
import json
import struct
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from socket import SO_LINGER, SOL_SOCKET
from typing import Any, Final

from tests.crash.wire import HOST, Reply, encode_request, read_head

MIB: Final = 1024 * 1024
JSON: Final = {"Content-Type": "application/json"}
TEXT: Final = {"Content-Type": "text/plain"}
_READ_LIMIT: Final = 4 * MIB
_PATIENCE_S: Final = 60.0


@dataclass
class Target:
    """The server under attack, as one attacker sees it."""

    port: int
    token: str
    """The key of the attacker, mostly one that is good for everything below `rogue/`."""
    source: str = HOST
    """Where this attacker comes from: the server counts some things by address."""
    answers: Counter[str] = field(default_factory=Counter)
    """What was done and what came back, to show that the attack took place."""

    @property
    def login(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Peer]:
        reader, writer = await asyncio.open_connection(
            HOST, self.port, limit=_READ_LIMIT, local_addr=(self.source, 0)
        )
        try:
            yield Peer(self, reader, writer)
        finally:
            writer.transport.abort()

    async def ask(
        self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        """One well-formed request on a connection of its own."""
        async with self.connect() as peer:
            return await peer.ask(method, target, headers, body)


@dataclass
class Peer:
    target: Target
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """Send as much as the server takes."""
        self.writer.write(data)
        await self.writer.drain()

    async def ask(
        self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        return await self.ask_at(method, f"/v1/stream/rogue/{target}", body, headers)

    async def ask_at(
        self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Reply:
        """The same anywhere on the server."""
        head = {**self.target.login, **(headers or {})}
        await self.send(encode_request(method, target, head, body))
        return await self.reply(bodiless=method == "HEAD")

    async def ask_all(self, requests: Sequence[tuple[str, str, Mapping[str, str], bytes]]) -> None:
        """Many requests (method, target, headers, body) at once, then their answers."""
        login = self.target.login
        heads = [(m, f"/v1/stream/{at}", {**login, **head}, body) for m, at, head, body in requests]
        await self.send(b"".join(encode_request(*request) for request in heads))
        for _ in requests:
            await self.reply()

    async def ask_json(self, method: str, target: str, body: object) -> Any:
        reply = await self.ask(method, target, {}, json.dumps(body).encode())
        return json.loads(reply.body) if reply.status < 300 and reply.body else {}

    async def reply(self, *, bodiless: bool = False) -> Reply:
        async with asyncio.timeout(_PATIENCE_S):
            status, headers = await read_head(self.reader)
            length = 0 if bodiless else int(headers.get("content-length", 0))
            body = await self.reader.readexactly(length) if length else b""
        self.target.answers[str(status)] += 1
        return Reply(status, headers, body)

    def hang_up(self) -> None:
        """Reset the connection, as a peer does that is suddenly gone."""
        with suppress(OSError):
            linger = struct.pack("ii", 1, 0)
            self.writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, linger)
        self.writer.transport.abort()
