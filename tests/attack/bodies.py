"""Attacks with what is sent: bodies, trailers, chunks, heads, and too much of everything."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import Final

from headwater.http.routes import ROUTES
from tests.attack.peer import JSON, MIB, TEXT, Target
from tests.crash.wire import encode_request

# Made once: what attackers compute takes nothing from the server.
_ARRAYS: Final = [
    b"[" + b",".join([message] * count) + b"]"
    for count, message in ((31 * MIB, b"1"), (100_000, b'"%s"' % (b"m" * 80)))
]
_JUNK: Final = (
    b"",
    b"{",
    b"[" * 100_000,
    b'{"k":1e400}',
    b'{"consumer":"c","max":1e9,"receipts":["x"],"acks":[{}],"ids":{}}',
    bytes(range(256)),
)


async def hang_up_with_large_bodies(target: Target, turn: int) -> None:
    """Send 16 MiB of a body of 60 to where no body belongs, or without a key, and be gone."""
    paths = ("/healthz", "/openapi.json", "/v1/stream/rogue/nowhere", "/v1/transaction")
    head = f"POST {paths[turn % 4]} HTTP/1.1\r\nHost: localhost\r\n"
    if turn % 8 >= 4:
        head += f"Authorization: Bearer {target.token}\r\n"
    async with target.connect() as peer:
        await peer.send(f"{head}Content-Length: {60 * MIB}\r\n\r\n".encode())
        async with asyncio.timeout(5):
            for _ in range(16):
                await peer.send(b"x" * MIB)
        peer.hang_up()


async def send_trailers(target: Target, turn: int) -> None:
    """Many trailers, one that does not end, and one that would close the stream as a header."""
    await target.ask("PUT", "trailers", TEXT)
    trailers = (b"a: b\r\n" * 200_000, b"a: " + b"b" * MIB, b"Stream-Closed: true\r\n\r\n")
    async with target.connect() as peer:
        await peer.send(_chunked(target, "trailers") + b"1\r\nx\r\n0\r\n" + trailers[turn % 3])
        await peer.reply()
    if (await target.ask("HEAD", "trailers")).closed:
        target.answers["closed by a trailer"] += 1


async def send_tiny_chunks(target: Target, turn: int) -> None:
    """A body of 50,000 chunks of one byte, all at once or a few at a time."""
    await target.ask("PUT", "chunks", {**TEXT, "Stream-Retention-Bytes": "1000000"})
    async with target.connect() as peer:
        await peer.send(_chunked(target, "chunks"))
        for _ in range(50):
            await peer.send(b"1\r\nx\r\n" * 1000)
            await asyncio.sleep(0.01 * (turn % 2))
        await peer.send(b"0\r\n\r\n")
        await peer.reply()


def _chunked(target: Target, name: str) -> bytes:
    head = f"POST /v1/stream/rogue/{name} HTTP/1.1\r\nHost: localhost\r\n"
    login = f"Authorization: Bearer {target.token}\r\n"
    return f"{head}{login}Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n".encode()


async def append_large_arrays(target: Target, turn: int) -> None:
    """Legal appends: as many messages as an append may have, and 62 MiB of `[1,1,…]`."""
    async with target.connect() as peer:
        await peer.ask("PUT", "arrays", {**JSON, "Stream-Retention-Bytes": "50000000"})
        await peer.ask("POST", "arrays", JSON, _ARRAYS[turn % 2])
    await asyncio.sleep(1)


async def flood_with_pipelines(target: Target, turn: int) -> None:
    """A thousand requests in one breath; every other time nobody stays for the answers."""
    get = b"GET /v1/stream/rogue/nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with target.connect() as peer:
        await peer.send((get, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")[turn % 2] * 1000)
        if turn % 4 < 2:
            for _ in range(1000):
                await peer.reply()
        else:
            target.answers["left"] += 1
    await asyncio.sleep(0.2)


async def send_heads_slowly(target: Target, turn: int) -> None:
    """Two hundred connections that bring a header a letter at a time."""
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(target.connect()) for _ in range(200)]
        for peer in peers:
            await peer.send(b"GET /v1/stream/rogue/nothing HTTP/1.1\r\nX-")
        target.answers["slow"] += len(peers)
        for _ in range(20):
            await asyncio.sleep(0.5)
            for peer in peers:
                with suppress(OSError):
                    await peer.send(b"a")


async def ask_every_route(target: Target, turn: int) -> None:
    """Junk to every route there is, with and without a key."""
    login = target.login if turn % 2 else {}
    junk = _JUNK[turn // 2 % len(_JUNK)]
    values = {"path": "rogue/routes", "group": "g", "offset": "-1", "subscription": "junk"}
    if turn % 10 == 0:
        await target.ask("PUT", "routes", JSON, b"[1]")
    for route in ROUTES:
        path = route.path
        for name in ("path", "group", "offset", "subscription", "pipeline", "file"):
            path = path.replace(f"{{{name}}}", values.get(name, "junk"))
        async with target.connect() as peer:
            head = {**login, "Content-Type": "application/json", "Connection": "close"}
            await peer.send(encode_request(route.method, path, head, junk))
            status = (await peer.reply(bodiless=route.method == "HEAD")).status
            if status == 500:
                target.answers[f"500 of {route.method} {route.path}"] += 1
    await asyncio.sleep(0.2)
