"""The well-behaved client beside the attack: it appends, it follows, it asks how the server is.

It notes how long each of its requests took and what was acknowledged, so that afterwards both can
be held against what was promised.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tests.crash.wire import HOST, Lost, Reply, Wire, encode_request, read_head

JSON: Final = {"Content-Type": "application/json"}
WRITERS: Final = 3
_PAUSE_S: Final = 0.02
_PROBE_PAUSE_S: Final = 0.1


def percentile(times: list[float], share: float) -> float:
    return sorted(times)[int(share * (len(times) - 1))] if times else 0.0


@dataclass
class Bystander:
    port: int
    token: str = field(repr=False)
    appends: list[float] = field(default_factory=list)
    """How long each append took."""
    deliveries: list[float] = field(default_factory=list)
    """From sending a message to having it back by long-poll."""
    probes: list[float] = field(default_factory=list)
    acknowledged: dict[str, list[int]] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    """Anything but success."""
    _over: bool = False

    @property
    def login(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    async def run(self, seconds: float) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(WRITERS):
                name = f"good/{number}"
                tasks.create_task(self._write(name))
                tasks.create_task(self._follow(name))
            for path in ("/healthz", "/readyz"):
                tasks.create_task(self._probe(path))
            await asyncio.sleep(seconds)
            self._over = True

    async def create(self) -> None:
        wire = Wire(self.port)
        for number in range(WRITERS):
            reply = await wire.request("PUT", f"good/{number}", {**self.login, **JSON})
            assert reply.status in (200, 201), reply
        await wire.close()

    async def _write(self, name: str) -> None:
        wire = Wire(self.port)
        acknowledged = self.acknowledged.setdefault(name, [])
        number = len(acknowledged)
        while not self._over:
            number += 1
            body = json.dumps({"n": number, "sent": time.monotonic()}).encode()
            began = time.monotonic()
            reply = await self._ask(wire, "POST", name, JSON, body)
            self.appends.append(time.monotonic() - began)
            if reply is not None and reply.status == 204:
                acknowledged.append(number)
            await asyncio.sleep(_PAUSE_S)
        # The last message lets the one who follows see that it is over.
        await self._ask(wire, "POST", name, JSON, b'{"over":true}')
        await wire.close()

    async def _follow(self, name: str) -> None:
        wire = Wire(self.port)
        offset, over = "now", False
        while not over:
            query = f"?offset={offset}&live=long-poll"
            reply = await self._ask(wire, "GET", f"{name}{query}")
            if reply is None or reply.status not in (200, 204):
                await asyncio.sleep(_PAUSE_S)
                over = self._over
                continue
            offset, now = reply.next_offset, time.monotonic()
            for message in json.loads(reply.body or b"[]"):
                over = over or "over" in message
                if "sent" in message:
                    self.deliveries.append(now - message["sent"])
        await wire.close()

    async def _ask(
        self,
        wire: Wire,
        method: str,
        name: str,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> Reply | None:
        try:
            reply = await wire.request(method, name, {**self.login, **(headers or {})}, body)
        except Lost as lost:
            self.refused[f"{method}: {lost}"] += 1
            return None
        if reply.status >= 300:
            self.refused[f"{method}: {reply.status} {reply.body[:80]!r}"] += 1
        return reply

    async def _probe(self, path: str) -> None:
        """Ask as an orchestrator does: each time on a new connection, without a key."""
        while not self._over:
            began = time.monotonic()
            try:
                reader, writer = await asyncio.open_connection(HOST, self.port)
                writer.write(encode_request("GET", path, {"Connection": "close"}, b""))
                status, headers = await read_head(reader)
                body = await reader.readexactly(int(headers["content-length"]))
                writer.close()
                if status != 200 or b"degraded" in body:
                    self.refused[f"{path}: {status} {body[:120]!r}"] += 1
            except (OSError, asyncio.IncompleteReadError) as error:
                self.refused[f"{path}: {error!r}"] += 1
            self.probes.append(time.monotonic() - began)
            await asyncio.sleep(_PROBE_PAUSE_S)

    async def missing(self) -> dict[str, list[int]]:
        """What was acknowledged and is not there, or not once, or not in order."""
        wire, missing = Wire(self.port), {}
        for name, acknowledged in self.acknowledged.items():
            stored, offset, more = [], "-1", True
            while more:
                reply = await wire.request("GET", name, self.login, query=f"offset={offset}")
                assert reply.status == 200, reply
                offset, more = reply.next_offset, not reply.up_to_date
                stored += [message["n"] for message in json.loads(reply.body) if "n" in message]
            lost = sorted(set(acknowledged) - set(stored))
            if lost or stored != sorted(set(stored)):
                missing[name] = lost
        await wire.close()
        return missing
