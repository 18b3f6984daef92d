"""Whoever wants to stop the server for others: one coroutine for each way, for ever.

Every attack was a way to stall the server, to fill its memory or to keep others out once. Some need
no key; the others have one for `rogue/**`, as a tenant would. All of them are legal HTTP or nearly
so. A round that the server cuts short is a round: the attacker comes back.

`run` plays all of them at once until the time is over and returns what each of them saw.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Final

from tests.attack.peer import Target

MIB: Final = 1024 * 1024
JSON: Final = {"Content-Type": "application/json"}
TEXT: Final = {"Content-Type": "text/plain"}
# Made once: what attackers compute takes nothing from the server.
_ARRAYS: Final = [
    b"[" + b",".join([message] * count) + b"]"
    for count, message in ((8_000_000, b"1"), (100_000, b'"%s"' % (b"m" * 80)))
]

Attack = Callable[[Target, int], Awaitable[None]]
"""One round, and its number."""


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
    head = (
        "POST /v1/stream/rogue/trailers HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {target.token}\r\nContent-Type: text/plain\r\n"
        "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"
    ).encode()
    trailers = (b"a: b\r\n" * 200_000, b"a: " + b"b" * MIB, b"Stream-Closed: true\r\n\r\n")
    async with target.connect() as peer:
        await peer.send(head + trailers[turn % 3])
        await peer.reply()
    if (await target.ask("HEAD", "trailers")).closed:
        target.answers["closed by a trailer"] += 1


async def delete_fork_chains(target: Target, turn: int) -> None:
    """A chain of 30 forks and a fan of 30, deleted from the source on."""
    async with target.connect() as peer:
        names = [f"forks-{turn}/{number}" for number in range(60)]
        await peer.ask("PUT", names[0], TEXT, b"shared")
        for number, name in enumerate(names[1:], 1):
            source = names[number - 1 if number < 30 else 0]
            await peer.ask("PUT", name, {"Stream-Forked-From": f"rogue/{source}"}, b"own")
        for name in names:
            await peer.ask("DELETE", name)


async def append_large_arrays(target: Target, turn: int) -> None:
    """Legal appends: as many messages as an append may have, and many times that."""
    async with target.connect() as peer:
        await peer.ask("PUT", "arrays", {**JSON, "Stream-Retention-Bytes": "50000000"})
        await peer.ask("POST", "arrays", JSON, _ARRAYS[turn % 2])
    await asyncio.sleep(1)


async def leave_idle_streams(target: Target, turn: int) -> None:
    """More and more streams that nobody uses, some of which expire soon."""
    ttl = ("5", "3600")[turn % 2]
    headers = {**TEXT, "Stream-TTL": ttl, "Stream-Retention-Seconds": "3"}
    async with target.connect() as peer:
        for number in range(100):
            await peer.ask("PUT", f"idle/{turn}-{number}", headers, b"x")
    await asyncio.sleep(0.5)


async def poison_ordered_groups(target: Target, turn: int) -> None:
    """Messages whose keys cannot be read, in a group that goes by them, and those after them."""
    name = f"poison-{turn % 10}"
    async with target.connect() as peer:
        await peer.ask("PUT", name, JSON)
        await peer.ask_json("PUT", f"{name}/_groups/g", {"order_by": "/k", "max_deliveries": 2})
        deep = b"[" * 400 + b"]" * 400
        bodies = (b'{"k":1e400}', b'{"k":%s}' % deep, b'{"k":-1e999999999}', b'{"k":"a"}')
        await peer.ask("POST", name, JSON, b"[" + b",".join(bodies) + b"]")
        fetch = {"consumer": "c", "max": 100, "wait_ms": 200}
        answer = await peer.ask_json("POST", f"{name}/_groups/g/fetch", fetch)
        receipts = [message["receipt"] for message in answer.get("messages", ())]
        target.answers["handed out" if receipts else "wedged"] += 1
        await peer.ask_json("POST", f"{name}/_groups/g/ack", {"receipts": receipts})


async def read_nothing(target: Target, turn: int) -> None:
    """Ask for large answers and for events, on many connections, and take none of them."""
    await target.ask("PUT", "loud", TEXT)
    openapi = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20
    events = (
        "GET /v1/stream/rogue/loud?offset=now&live=sse HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {target.token}\r\n\r\n"
    ).encode()
    async with AsyncExitStack() as stack:
        for number in range(200):
            peer = await stack.enter_async_context(target.connect())
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await peer.send(openapi if number % 2 else events)
        for _ in range(10):
            await target.ask("POST", "loud", TEXT, b"x" * 200_000)
            await asyncio.sleep(0.2)
    target.answers["deaf"] += 200


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
        bulk = "tiny/_bulk?max_bytes=67108864"
        await peer.ask("POST", f"large/_groups/g{turn % 5}/fetch", {}, fetch)
        await peer.ask("GET", bulk, {"Accept": "application/vnd.apache.arrow.stream"})
        await peer.ask("GET", bulk)
    await asyncio.sleep(0.5)


async def invent_producers(target: Target, turn: int) -> None:
    """A new producer with each append to one stream."""
    async with target.connect() as peer:
        await peer.ask("PUT", "producers", TEXT)
        for number in range(200):
            stamp = {"Producer-Id": f"p-{turn}-{number}", "Producer-Epoch": "0"}
            await peer.ask("POST", "producers", {**TEXT, **stamp, "Producer-Seq": "0"}, b"x")


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
        for _ in range(20):
            await asyncio.sleep(0.5)
            for peer in peers:
                with suppress(OSError):
                    await peer.send(b"a")
    target.answers["slow"] += 200


ATTACKS: Final[tuple[Attack, ...]] = (
    hang_up_with_large_bodies,
    send_trailers,
    delete_fork_chains,
    append_large_arrays,
    leave_idle_streams,
    poison_ordered_groups,
    read_nothing,
    ask_for_huge_counts,
    invent_producers,
    flood_with_pipelines,
    send_heads_slowly,
)


async def _keep_at_it(attack: Attack, target: Target) -> None:
    for turn in itertools.count():
        try:
            await attack(target, turn)
            target.answers["rounds"] += 1
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            target.answers[type(error).__name__] += 1
            await asyncio.sleep(0.1)


async def run(port: int, token: str, seconds: float) -> dict[str, Counter[str]]:
    """All attacks at once, each from an address of its own."""
    anyone = Target(port, token)
    seen: dict[str, Counter[str]] = {}
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as crowd:
            for number, attack in enumerate(ATTACKS, 2):
                target = replace(anyone, source=f"127.0.0.{number}", answers=Counter())
                seen[attack.__name__] = target.answers
                crowd.create_task(_keep_at_it(attack, target))
    return seen


def main() -> None:
    port, token, seconds = sys.argv[1:]
    os.nice(10)
    print(json.dumps(asyncio.run(run(int(port), token, float(seconds)))))


if __name__ == "__main__":
    main()
