"""Attacks with how much there is: streams, forks, groups, subscriptions, producers, lists of them.

What is made is made at a bounded rate and up to a number, and then stays there, idle.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Final

from tests.attack.peer import JSON, TEXT, Peer, Target

STREAMS: Final = 6_000
GROUPS: Final = 2_000
SUBSCRIPTIONS: Final = 2_000
_AT_ONCE: Final = 100
_CHAIN: Final = 300
_FAN: Final = 1_000
_CONNECTIONS: Final = 500


async def delete_fork_chains(target: Target, turn: int) -> None:
    """A chain of 300 forks, or a fan of 1,000, deleted from the source on."""
    wide = bool(turn % 2)
    names = [f"forks-{turn}/{number}" for number in range(_FAN if wide else _CHAIN)]
    async with target.connect() as peer:
        await peer.ask("PUT", names[0], TEXT, b"shared")
        forks = [
            ("PUT", f"rogue/{name}", {"Stream-Forked-From": f"rogue/{source}"}, b"own")
            for name, source in zip(names[1:], names[:1] * _FAN if wide else names, strict=False)
        ]
        for first in range(0, len(forks), _AT_ONCE):
            await peer.ask_all(forks[first : first + _AT_ONCE])
        for first in range(0, len(names), _AT_ONCE):
            gone = names[first : first + _AT_ONCE]
            await peer.ask_all([("DELETE", f"rogue/{name}", {}, b"") for name in gone])
    target.answers["forks deleted"] += len(names)


async def leave_idle_streams(target: Target, turn: int) -> None:
    """Streams that nobody uses: some expire soon and are made again, all keep less and less."""
    if turn * _AT_ONCE < STREAMS:
        ttl, first = ("5", "3600")[turn % 2], turn * _AT_ONCE
        headers = {**TEXT, "Stream-TTL": ttl, "Stream-Retention-Seconds": "3"}
        numbers = range(first, first + _AT_ONCE)
        requests = [("PUT", f"rogue/idle/{number}", headers, b"x") for number in numbers]
        async with AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(target.connect()) for _ in range(4)]
            await asyncio.gather(*(peer.ask_all(requests[i::4]) for i, peer in enumerate(peers)))
        target.answers["streams"] += _AT_ONCE
    await asyncio.sleep(0.3)


async def leave_idle_groups(target: Target, turn: int) -> None:
    """Groups that nobody asks, many of one stream, to which one keeps appending."""
    async with target.connect() as peer:
        await peer.ask("PUT", "grouped", {**JSON, "Stream-Retention-Bytes": "100000"})
        if turn * _AT_ONCE < GROUPS:
            numbers = range(turn * _AT_ONCE, (turn + 1) * _AT_ONCE)
            start = b'{"start":"now"}'
            await peer.ask_all(
                [("PUT", f"rogue/grouped/_groups/g{number}", JSON, start) for number in numbers]
            )
            target.answers["groups"] += _AT_ONCE
        for _ in range(20):
            await peer.ask("POST", "grouped", JSON, b"[1,2,3]")
    await asyncio.sleep(1)


async def leave_idle_subscriptions(target: Target, turn: int) -> None:
    """Subscriptions to streams that are not there, to many streams, and to all of them."""
    async with target.connect() as peer:
        if turn * _AT_ONCE < SUBSCRIPTIONS:
            requests = []
            for number in range(turn * _AT_ONCE, (turn + 1) * _AT_ONCE):
                pattern = f"rogue/nowhere-{number}/**" if number % 500 else "rogue/grouped"
                config = {"type": "pull-wake", "pattern": pattern, "wake_stream": "rogue/wakes"}
                body = json.dumps(config).encode()
                requests.append(("PUT", f"__ds/subscriptions/s{number}", JSON, body))
            await peer.ask_all(requests)
            target.answers["subscriptions"] += _AT_ONCE
        await peer.ask_at("GET", "/v1/stream/__ds/subscriptions?limit=1000")
    await asyncio.sleep(0.5)


async def invent_producers(target: Target, turn: int) -> None:
    """A new producer with each append to one stream, beyond what a stream may know."""
    async with target.connect() as peer:
        await peer.ask("PUT", "producers", TEXT)
        first = {**TEXT, "Producer-Epoch": "0", "Producer-Seq": "0"}
        ids = [f"p-{turn}-{number}" for number in range(_AT_ONCE)]
        await peer.ask_all(
            [("POST", "rogue/producers", {**first, "Producer-Id": one}, b"x") for one in ids]
        )
    target.answers["producers"] += _AT_ONCE
    await asyncio.sleep(0.2)


async def scrape_and_list(target: Target, turn: int) -> None:
    """Ask for the figures and for every list, page by page, without a pause."""
    async with target.connect() as peer:
        await peer.ask_at("GET", "/metrics")
        await peer.ask_at("GET", "/v1/figures")
        await peer.ask_at("GET", "/v1/groups")
        await _list_all(peer, "/v1/streams?limit=1000")
        await peer.ask_at("GET", "/v1/streams?limit=1000&deleted=true")


async def _list_all(peer: Peer, target: str) -> None:
    after = ""
    while True:
        reply = await peer.ask_at("GET", f"{target}&after={after}")
        streams = json.loads(reply.body)["streams"] if reply.status == 200 else []
        if len(streams) < 1000:
            return
        after = streams[-1]["name"]


async def hoard_connections(target: Target, turn: int) -> None:
    """Connections that send nothing, as many as one address gets."""
    async with AsyncExitStack() as stack:
        for _ in range(_CONNECTIONS):
            await stack.enter_async_context(target.connect())
            target.answers["connections"] += 1
        await asyncio.sleep(2)
