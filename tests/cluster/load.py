"""A small load that can tell at any time whether anything was lost, in bounded memory.

Each writer is an idempotent producer with a stream of its own and writes 0, 1, 2 and so on, each
until it is acknowledged. A checker reads on in every stream: a number that is missing was lost, one
that comes again was stored twice. What was acknowledged before a read began must be in it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Final

from tests.crash.wire import Lost, Reply, Wire

_PATIENCE_S: Final = 30.0
_JSON: Final = {"Content-Type": "application/json"}


class Tally:
    """What there is to show."""

    def __init__(self) -> None:
        self.acknowledged = self.checked = self.lost = self.doubled = self.retried = 0
        self.wait_s = 0.0
        """The longest time that a writer has waited for an acknowledgement."""

    def note(self, wait_s: float) -> None:
        self.wait_s = max(self.wait_s, wait_s)
        self.acknowledged += 1


class Writer:
    def __init__(self, name: str, ports: Sequence[int], tally: Tally, rest_s: float) -> None:
        self._path = f"load/{name}"
        self._name = name
        self._ports = ports
        self._tally = tally
        self._rest_s = rest_s
        self._rng = Random(name)
        self._acked = 0
        self._read = 0
        self._offset = "-1"

    async def _ask(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Reply:
        """One answer, from whichever node has one."""
        while True:
            wire = Wire(self._rng.choice(self._ports))
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    reply = await wire.call(method, target, headers, body)
                if reply.status < 300:
                    return reply
            except (Lost, TimeoutError):
                pass
            finally:
                await wire.close()
            self._tally.retried += 1
            await asyncio.sleep(0.1)

    async def write(self) -> None:
        await self._ask("PUT", f"/v1/stream/{self._path}", _JSON, b"")
        while True:
            number = self._acked
            stamp = {
                "Producer-Id": self._name,
                "Producer-Epoch": "0",
                "Producer-Seq": str(number),
            }
            began = time.monotonic()
            await self._ask("POST", f"/v1/stream/{self._path}", _JSON | stamp, b"%d" % number)
            self._acked += 1
            self._tally.note(time.monotonic() - began)
            await asyncio.sleep(self._rest_s)

    async def check(self) -> None:
        """Read on to the tail, and compare with what was acknowledged before."""
        due, is_done = self._acked, False
        while not is_done:
            target = f"/v1/stream/{self._path}?offset={self._offset}"
            reply = await self._ask("GET", target, {}, b"")
            for number in json.loads(reply.body):
                self._take(number)
            self._offset, is_done = reply.next_offset, reply.up_to_date
        self._tally.lost += max(0, due - self._read)
        self._read = max(due, self._read)

    def _take(self, number: int) -> None:
        self._tally.checked += 1
        if number < self._read:
            self._tally.doubled += 1
        else:
            self._tally.lost += number - self._read
            self._read = number + 1

    async def keep_checking(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            if self._acked:
                await self.check()


async def run(ports: Sequence[int], tally: Tally, writers: int, until: Callable[[], bool]) -> None:
    """Write and check until it is over."""
    crew = [Writer(f"w{number}", ports, tally, 0.02) for number in range(writers)]
    tasks = [asyncio.ensure_future(one.write()) for one in crew]
    tasks += [asyncio.ensure_future(one.keep_checking(1.0)) for one in crew]
    try:
        while not until():
            await asyncio.sleep(0.1)
            for task in tasks:
                if task.done():
                    task.result()
    finally:
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
