"""The well-behaved client beside the attack: it appends, follows, reads, works, looks after health.

It notes how long each of its requests took and what was acknowledged, so that afterwards both can
be held against what was promised. Of what happens while the server is down, only the
acknowledgements count.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Final

from tests.crash.wire import HOST, Lost, Reply, Wire, encode_request, read_head

JSON: Final = {"Content-Type": "application/json"}
WRITERS: Final = 3
KINDS: Final = ("append", "delivery", "read", "work", "health")
_PAUSE_S: Final = 0.02
_PROBE_PAUSE_S: Final = 0.1


def percentile(times: list[float], share: float) -> float:
    return sorted(times)[int(share * (len(times) - 1))] if times else 0.0


@dataclass
class Bystander:
    port: int
    token: str = field(repr=False)
    times: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    """How long each took. A delivery is from sending a message to having it by long-poll."""
    acknowledged: dict[str, list[int]] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    """Anything but success."""
    _over: bool = False
    _left: asyncio.Event = field(default_factory=asyncio.Event)
    _down_s: float | None = None
    """When the server went down, while it is."""
    _back_s: float = 0.0
    """When it last came back."""

    @property
    def login(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def server_goes(self) -> None:
        self._down_s = time.monotonic()

    def server_is_back(self) -> None:
        self._down_s, self._back_s = None, time.monotonic()

    def _counts(self, began: float) -> bool:
        """Whether something that began then has nothing to do with the server being down."""
        return self._down_s is None and began > self._back_s

    async def run(self, seconds: float) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(WRITERS):
                name = f"good/{number}"
                tasks.create_task(self._write(name))
                tasks.create_task(self._follow(name))
            tasks.create_task(self._read("good/0"))
            tasks.create_task(self._work("good/0"))
            for path in ("/healthz", "/readyz"):
                tasks.create_task(self._probe(path))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._left.wait(), seconds)
            self._over = True

    def leave(self) -> None:
        """Let `run` end now."""
        self._left.set()

    async def create(self) -> None:
        wire = Wire(self.port)
        for number in range(WRITERS):
            reply = await wire.request("PUT", f"good/{number}", {**self.login, **JSON})
            assert reply.status in (200, 201), reply
        group = await wire.request("PUT", "good/0/_groups/g", {**self.login, **JSON}, b"{}")
        assert group.status in (200, 201), group
        await wire.close()

    # ── What it does ─────────────────────────────────────────────────────────────────────────

    async def _write(self, name: str) -> None:
        wire = Wire(self.port)
        acknowledged = self.acknowledged.setdefault(name, [])
        number = len(acknowledged)
        while not self._over:
            number += 1
            body = json.dumps({"n": number, "sent": time.monotonic()}).encode()
            reply = await self._ask(wire, "append", "POST", name, body)
            if reply is not None and reply.status == 204:
                acknowledged.append(number)
            await asyncio.sleep(_PAUSE_S)
        # The last message lets the one who follows see that it is over.
        await self._ask(wire, None, "POST", name, b'{"over":true}')
        await wire.close()

    async def _follow(self, name: str) -> None:
        wire = Wire(self.port)
        offset, over = "now", False
        while not over:
            reply = await self._ask(wire, None, "GET", f"{name}?offset={offset}&live=long-poll")
            if reply is None or reply.status not in (200, 204):
                await asyncio.sleep(_PAUSE_S)
                over = self._over
                continue
            offset, now = reply.next_offset, time.monotonic()
            for message in json.loads(reply.body or b"[]"):
                over = over or "over" in message
                if "sent" in message and self._counts(message["sent"]):
                    self.times["delivery"].append(now - message["sent"])
        await wire.close()

    async def _read(self, name: str) -> None:
        """Read what has come since the last time, as someone who catches up."""
        wire, offset = Wire(self.port), "-1"
        while not self._over:
            reply = await self._ask(wire, "read", "GET", f"{name}?offset={offset}")
            offset = reply.next_offset if reply is not None and reply.status == 200 else offset
            await asyncio.sleep(_PROBE_PAUSE_S)
        await wire.close()

    async def _work(self, name: str) -> None:
        """Take messages of a group and acknowledge them."""
        wire, group = Wire(self.port), f"{name}/_groups/g"
        fetch = json.dumps({"consumer": "good", "max": 100}).encode()
        while not self._over:
            reply = await self._ask(wire, "work", "POST", f"{group}/fetch", fetch)
            messages = json.loads(reply.body)["messages"] if reply and reply.status == 200 else ()
            if messages:
                receipts = json.dumps({"receipts": [each["receipt"] for each in messages]})
                await self._ask(wire, "work", "POST", f"{group}/ack", receipts.encode())
            await asyncio.sleep(_PROBE_PAUSE_S)
        await wire.close()

    async def _ask(
        self, wire: Wire, kind: str | None, method: str, name: str, body: bytes = b""
    ) -> Reply | None:
        headers = {**self.login, **JSON} if body else self.login
        began = time.monotonic()
        try:
            reply = await wire.request(method, name, headers, body)
        except Lost as lost:
            if self._counts(began):
                self.refused[f"{method}: {lost}"] += 1
            return None
        if self._counts(began):
            if reply.status >= 300:
                self.refused[f"{method}: {reply.status} {reply.body[:80]!r}"] += 1
            if kind is not None:
                self.times[kind].append(time.monotonic() - began)
        return reply

    async def _probe(self, path: str) -> None:
        """Ask as an orchestrator does: each time on a new connection, without a key."""
        while not self._over:
            began, problem = time.monotonic(), None
            try:
                reader, writer = await asyncio.open_connection(HOST, self.port)
                with closing(writer):
                    writer.write(encode_request("GET", path, {"Connection": "close"}, b""))
                    status, headers = await read_head(reader)
                    body = await reader.readexactly(int(headers["content-length"]))
                if status != 200 or b"degraded" in body:
                    problem = f"{path}: {status} {body[:120]!r}"
            except (OSError, asyncio.IncompleteReadError) as error:
                problem = f"{path}: {error!r}"
            if self._counts(began):
                self.times["health"].append(time.monotonic() - began)
                self.refused.update([problem] if problem else [])
            await asyncio.sleep(_PROBE_PAUSE_S)

    # ── What it finds ────────────────────────────────────────────────────────────────────────

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
