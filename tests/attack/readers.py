"""Attacks with what is asked for: readers that take nothing, or everything, or stay for ever."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Final

from tests.attack.peer import JSON, MIB, TEXT, Peer, Target

_DEAF: Final = 200
_FAITHFUL: Final = 50


async def read_nothing(target: Target, turn: int) -> None:
    """Ask for large answers and for events, on many connections, and take none of them."""
    await target.ask("PUT", "loud", {**TEXT, "Stream-Retention-Bytes": "10000000"})
    openapi = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20
    events = _events(target, "rogue/loud?offset=now&live=sse")
    async with AsyncExitStack() as stack:
        for number in range(_DEAF):
            peer = await stack.enter_async_context(target.connect())
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await peer.send(openapi if number % 2 else events)
            target.answers["deaf"] += 1
        for _ in range(10):
            await target.ask("POST", "loud", TEXT, b"x" * 200_000)
            await asyncio.sleep(0.2)


async def follow_for_ever(target: Target, turn: int) -> None:
    """Event streams that stay until the server ends them, which it does after their lifetime."""
    await target.ask("PUT", "news", TEXT)
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(target.connect()) for _ in range(_FAITHFUL)]
        for peer in peers:
            await peer.send(_events(target, "rogue/news?offset=now&live=sse"))
            target.answers["following"] += 1
        await target.ask("POST", "news", TEXT, b"x")
        await asyncio.gather(*map(_until_it_ends, peers))
    target.answers["ended by the server"] += _FAITHFUL


async def _until_it_ends(peer: Peer) -> None:
    while await peer.reader.read(65_536):
        pass


async def work_longer_than_a_connection(target: Target, turn: int) -> None:
    """A member that is pushed a message and works on it over several connections.

    That is no attack: the work must not be taken away."""
    name = f"slow-work-{turn % 5}"
    async with target.connect() as caller:
        await caller.ask("PUT", name, JSON)
        group = {"max_deliveries": 1, "ack_timeout_ms": 60_000, "start": "now"}
        await caller.ask_json("PUT", f"{name}/_groups/g", group)
        await caller.ask("POST", name, JSON, b"[1]")
        target.answers["work begun"] += 1
        receipt = await _pushed(target, name)
        await _pushed(target, name)
        if not receipt:
            return  # it was not pushed in time; how late work may be is judged elsewhere
        answer = await caller.ask_json("POST", f"{name}/_groups/g/ack", {"receipts": [receipt]})
        target.answers["work done" if answer.get("acked") else "work taken away"] += 1


async def _pushed(target: Target, name: str) -> str:
    """Stay until the server ends the connection; the receipt of what was pushed on it, if any."""
    async with target.connect() as peer:
        await peer.send(_events(target, f"rogue/{name}/_groups/g?live=sse&consumer=c"))
        text = await peer.reader.read(-1)
    data = [line for line in text.decode().splitlines() if '"receipt"' in line]
    return json.loads(data[0].partition(":")[2])["receipt"] if data else ""


def _events(target: Target, resource: str) -> bytes:
    login = f"Authorization: Bearer {target.token}"
    return f"GET /v1/stream/{resource} HTTP/1.1\r\nHost: localhost\r\n{login}\r\n\r\n".encode()


async def poison_ordered_groups(target: Target, turn: int) -> None:
    """Messages whose keys cannot be read, in a group that goes by them, and those after them.

    If the server is killed before it has an ack, the next messages with these keys wait until the
    lease is over. Only a group that hands out nothing for much longer is wedged."""
    name = f"poison-{turn % 10}"
    async with target.connect() as peer:
        await peer.ask("PUT", name, JSON)
        group = {"order_by": "/k", "max_deliveries": 2, "ack_timeout_ms": 5_000}
        await peer.ask_json("PUT", f"{name}/_groups/g", group)
        deep = b"[" * 400 + b"]" * 400
        bodies = (b'{"k":1e400}', b'{"k":%s}' % deep, b'{"k":-1e999999999}', b'{"k":"a"}')
        await peer.ask("POST", name, JSON, b"[" + b",".join(bodies) + b"]")
        fetch = {"consumer": "c", "max": 100, "wait_ms": 30_000}
        answer = await peer.ask_json("POST", f"{name}/_groups/g/fetch", fetch)
        receipts = [message["receipt"] for message in answer.get("messages", ())]
        target.answers["handed out" if receipts else "wedged"] += 1
        await peer.ask_json("POST", f"{name}/_groups/g/ack", {"receipts": receipts})


async def ask_for_huge_counts(target: Target, turn: int) -> None:
    """A group with 64 messages of 1 MiB and a stream of tiny ones, asked for all at once."""
    async with target.connect() as peer:
        if turn == 0:
            await peer.ask("PUT", "large", JSON)
            for _ in range(64):
                await peer.ask("POST", "large", JSON, b'"%s"' % (b"l" * MIB))
            await peer.ask("PUT", "tiny", JSON)
            for _ in range(5):
                await peer.ask("POST", "tiny", JSON, b"[" + b"1," * 99_999 + b"1]")
        await peer.ask_json("PUT", f"large/_groups/g{turn % 5}", {"ack_timeout_ms": 1000})
        fetch = json.dumps({"consumer": "c", "max": 1000}).encode()
        bulk = "tiny/_bulk?max_bytes=16777216"
        await peer.ask("POST", f"large/_groups/g{turn % 5}/fetch", {}, fetch)
        await peer.ask("GET", bulk, {"Accept": "application/vnd.apache.arrow.stream"})
        await peer.ask("GET", bulk)
    await asyncio.sleep(0.5)
