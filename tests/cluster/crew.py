"""Everyone who uses a cluster while it is disturbed; each request goes to a node at random.

What is asked and answered is recorded, for `tests.cluster.history` to judge.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final, Self

from tests.cluster.history import Delivered, Fate, History, Seen, Sent, Settled
from tests.crash.wire import EventStream, Lost, Reply, Wire

JSON: Final = {"Content-Type": "application/json"}
PATIENCE_S: Final = 20.0
GROUP: Final = "desk"
_REST_S: Final = 0.02
_ACK_TIMEOUT_MS: Final = 3_000
_SETTLING_S: Final = 120

now = time.monotonic


class Desk:
    """What all of them share."""

    def __init__(self, ports: Sequence[int], rng: Random) -> None:
        self.ports = ports
        self.rng = rng
        self.history = History()
        self.errors: dict[str, int] = {}
        self.is_over = False
        self.plain = [f"plain-{n}" for n in range(3)]
        self.unique = ["unique-0"]
        self.joint = [f"joint-{n}" for n in range(3)]
        self.work = ["work-0"]

    @property
    def streams(self) -> list[str]:
        return [*self.plain, *self.unique, *self.joint, *self.work]

    def note(self, what: object) -> None:
        text = str(what)[:80]
        self.errors[text] = self.errors.get(text, 0) + 1

    async def prepare(self) -> None:
        body = json.dumps({"ack_timeout_ms": _ACK_TIMEOUT_MS}).encode()
        async with Client("setup", self) as client:
            for stream in self.streams:
                headers = dict(JSON)
                if stream in self.unique:
                    headers |= {"Stream-Unique-Ids": "succeed", "Stream-Id-Pointer": "/id"}
                await client.insist("PUT", f"/v1/stream/{stream}", headers)
            for stream in self.work:
                await client.insist("PUT", f"/v1/stream/{stream}/_groups/{GROUP}", JSON, body)


class Client:
    """One who asks, on a connection to each node."""

    def __init__(self, name: str, desk: Desk) -> None:
        self.name = name
        self.desk = desk
        self.rng = Random(f"{desk.rng.random()}")
        self._wires: dict[int, Wire] = {}
        self._number = 0

    def next_id(self) -> str:
        self._number += 1
        return f"{self.name}-{self._number}"

    async def ask(
        self, method: str, target: str, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        """One request to any node. Raises Lost if nobody knows what became of it."""
        port = self.rng.choice(self.desk.ports)
        wire = self._wires.setdefault(port, Wire(port))
        try:
            async with asyncio.timeout(PATIENCE_S):
                reply = await wire.call(method, target, headers, body)
        except BaseException as error:
            # Whatever still comes on this connection belongs to nobody.
            self._wires.pop(port, None)
            await wire.close()
            if isinstance(error, TimeoutError):
                raise Lost("no answer in time") from None
            raise
        if reply.status >= 500:
            self.desk.note(f"{reply.status} {reply.body[:60]!r}")
            if reply.status != 503:
                raise Lost(f"status {reply.status}")
        return reply

    async def insist(
        self, method: str, target: str, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        """Ask until it is done."""
        while True:
            with suppress(Lost):
                reply = await self.ask(method, target, headers, body)
                if reply.status < 300:
                    return reply
                assert reply.status in (429, 503), reply
            await asyncio.sleep(0.1)

    async def run(self) -> None:
        async with self:
            while not self.desk.is_over:
                try:
                    await self.step()
                except Lost as error:
                    self.desk.note(error)
                    await asyncio.sleep(0.05)
                await asyncio.sleep(self.rng.uniform(0, 2 * _REST_S))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for wire in self._wires.values():
            await wire.close()

    async def step(self) -> None:
        raise NotImplementedError

    async def send(self, sent: Sent, target: str, headers: dict[str, str], body: Any) -> None:
        """Ask once, and note what came of it."""
        self.desk.history.sent.append(sent)
        reply = await self.ask("POST", target, headers, json.dumps(body).encode())
        sent.ended = now()
        sent.fate = Fate.ACKED if reply.status < 300 else Fate.REFUSED
        assert reply.status < 300 or reply.status in (429, 503), reply


class Writer(Client):
    """Sends once, whatever happens."""

    async def step(self) -> None:
        stream = self.rng.choice(self.desk.plain)
        ids = [self.next_id() for _ in range(self.rng.choice((1, 1, 3)))]
        sent = Sent(self.name, {stream: ids}, now())
        await self.send(sent, f"/v1/stream/{stream}", JSON, [{"id": one} for one in ids])


class Repeating(Client):
    """Sends until it is told that it is stored."""

    headers: dict[str, str]

    async def store(self, stream: str, headers: dict[str, str]) -> None:
        sent = Sent(self.name, {stream: [self.next_id()]}, now())
        self.desk.history.sent.append(sent)
        body = json.dumps({"id": sent.messages[stream][0]}).encode()
        while not self.desk.is_over:
            with suppress(Lost):
                reply = await self.ask("POST", f"/v1/stream/{stream}", JSON | headers, body)
                if reply.status < 300:
                    sent.ended, sent.fate = now(), Fate.ACKED
                    return
                assert reply.status in (429, 503), reply
            await asyncio.sleep(0.05)


class Producer(Repeating):
    """Numbers its appends."""

    def __init__(self, name: str, desk: Desk, stream: str) -> None:
        super().__init__(name, desk)
        self._stream = stream
        self._seq = -1

    async def step(self) -> None:
        self._seq += 1
        stamp = {"Producer-Id": self.name, "Producer-Epoch": "0", "Producer-Seq": str(self._seq)}
        await self.store(self._stream, stamp)


class UniqueWriter(Repeating):
    """Writes where each id is taken once."""

    async def step(self) -> None:
        await self.store(self.rng.choice(self.desk.unique), {})


class Transactor(Client):
    """Publishes to several streams at once."""

    async def step(self) -> None:
        streams = self.rng.sample(self.desk.joint, self.rng.choice((2, 3)))
        sent = Sent(self.name, {stream: [self.next_id()] for stream in streams}, now())
        publish = [{"stream": s, "value": {"id": ids[0]}} for s, ids in sent.messages.items()]
        await self.send(sent, "/v1/transaction", JSON, {"publish": publish})


class Reader(Client):
    """Reads on, at times from the beginning, at times waiting for more."""

    def __init__(self, name: str, desk: Desk, *, waits: bool = False) -> None:
        super().__init__(name, desk)
        self._waits = waits
        self._stream = ""
        self._begin()

    def _begin(self) -> None:
        self._stream = self.rng.choice(self.desk.streams)
        self._offset, self._count = "-1", 0

    async def step(self) -> None:
        began = now()
        waits = self._waits and self._offset != "-1"
        live = "&live=long-poll" if waits else ""
        reply = await self.ask("GET", f"/v1/stream/{self._stream}?offset={self._offset}{live}")
        if reply.status not in (200, 204):
            assert reply.status in (429, 503), reply
            return
        ids = [one["id"] for one in json.loads(reply.body or b"[]")]
        tail = reply.up_to_date
        seen = Seen(self.name, self._stream, self._count, ids, began, now(), tail, waits)
        self.desk.history.saw(seen)
        self._offset, self._count = reply.next_offset, seen.count
        if reply.up_to_date and self.rng.random() < 0.05:
            self._begin()


class Follower(Client):
    """Has everything sent as it comes (SSE)."""

    def __init__(self, name: str, desk: Desk) -> None:
        super().__init__(name, desk)
        self._stream = self.rng.choice(desk.streams)
        self._offset, self._count = "-1", 0

    async def step(self) -> None:
        port = self.rng.choice(self.desk.ports)
        source = EventStream(port, self._stream, self._offset)
        events = source.events()
        pending: list[str] = []
        began = now()
        try:
            async with asyncio.timeout(PATIENCE_S):
                async for event in events:
                    if event.kind == "data":
                        pending += [one["id"] for one in json.loads(event.data)]
                    elif event.kind == "control":
                        # What came before belongs to this offset; without it, it comes again.
                        seen = Seen(
                            *(self.name, self._stream, self._count, pending, began, now()), False
                        )
                        self.desk.history.saw(seen)
                        self._count, pending = seen.count, []
                        self._offset = json.loads(event.data)["streamNextOffset"]
                    if self.desk.is_over:
                        return
        except TimeoutError:
            raise Lost("an event stream was silent") from None
        finally:
            await events.aclose()
        if source.status >= 500:
            self.desk.note(f"{source.status} for an event stream")
        await asyncio.sleep(0.05)


class Listener(Client):
    """Has several streams sent over one connection (`/v1/follow`)."""

    def __init__(self, name: str, desk: Desk) -> None:
        super().__init__(name, desk)
        self._offsets = dict.fromkeys(self.rng.sample(desk.streams, 4), "-1")
        self._counts = dict.fromkeys(self._offsets, 0)

    async def step(self) -> None:
        source = EventStream.of_several(self.rng.choice(self.desk.ports), self._offsets)
        events = source.events()
        began, speaking = now(), ""
        pending: dict[str, list[str]] = {}
        try:
            async with asyncio.timeout(PATIENCE_S):
                async for event in events:
                    if event.kind == "stream":
                        speaking = json.loads(event.data)["stream"]
                    elif event.kind == "data":
                        said = [one["id"] for one in json.loads(event.data)]
                        pending.setdefault(speaking, []).extend(said)
                    elif event.kind == "control":
                        self._note(speaking, pending.pop(speaking, []), began)
                        self._offsets[speaking] = json.loads(event.data)["streamNextOffset"]
                    elif event.kind == "failed":
                        self.desk.note(f"not followed: {event.data[:60]!r}")
                    if self.desk.is_over:
                        return
        except TimeoutError:
            raise Lost("streams that are followed were silent") from None
        finally:
            await events.aclose()
        await asyncio.sleep(0.05)

    def _note(self, stream: str, messages: list[str], began: float) -> None:
        seen = Seen(self.name, stream, self._counts[stream], messages, began, now(), False)
        self.desk.history.saw(seen)
        self._counts[stream] = seen.count


class Worker(Client):
    """Takes messages of a group and reports them as done."""

    async def step(self) -> None:
        stream = self.rng.choice(self.desk.work)
        await self.work_on(stream)

    async def work_on(self, stream: str) -> int:
        base = f"/v1/stream/{stream}/_groups/{GROUP}"
        ask = json.dumps({"consumer": self.name, "max": 5, "wait_ms": 300}).encode()
        began = now()
        reply = await self.ask("POST", f"{base}/fetch", JSON, ask)
        if reply.status != 200:
            assert reply.status in (429, 503), reply
            return 0
        found = json.loads(reply.body)["messages"]
        if not found:
            return 0
        ids = [message["value"]["id"] for message in found]
        self.desk.history.delivered.append(Delivered(stream, ids, began, now()))
        settled = Settled(stream, ids, now())
        self.desk.history.settled.append(settled)
        receipts = [message["receipt"] for message in found]
        body = json.dumps({"receipts": receipts}).encode()
        reply = await self.ask("POST", f"{base}/ack", JSON, body)
        settled.ended = now()
        if reply.status == 200:
            stale = set(json.loads(reply.body).get("stale", []))
            settled.messages = [
                one for one, receipt in zip(ids, receipts, strict=True) if receipt not in stale
            ]
            settled.fate = Fate.ACKED
        else:
            settled.fate = Fate.REFUSED
        return len(ids)


def crew(desk: Desk) -> list[Client]:
    return [
        *(Writer(f"w{n}", desk) for n in range(3)),
        *(Producer(f"p{n}", desk, stream) for n, stream in enumerate(desk.plain)),
        *(Producer(f"q{n}", desk, stream) for n, stream in enumerate(desk.work * 2)),
        UniqueWriter("u0", desk),
        UniqueWriter("u1", desk),
        Transactor("t0", desk),
        Transactor("t1", desk),
        *(Reader(f"r{n}", desk) for n in range(3)),
        *(Reader(f"l{n}", desk, waits=True) for n in range(4)),
        Follower("f0", desk),
        Follower("f1", desk),
        Listener("m0", desk),
        Listener("m1", desk),
        Worker("g0", desk),
        Worker("g1", desk),
    ]


async def conclude(desk: Desk) -> None:
    """When everything works again: settle what is left, and read every stream from its start."""
    async with Worker("last", desk) as worker:
        for stream in desk.work:
            await _settle(worker, stream)
    async with Client("final", desk) as reader:
        for stream in desk.streams:
            desk.history.final[stream] = await _read(reader, stream)


async def _settle(worker: Worker, stream: str) -> None:
    target = f"/v1/stream/{stream}/_groups/{GROUP}"
    deadline = now() + _SETTLING_S
    while now() < deadline:
        with suppress(Lost):
            await worker.work_on(stream)
        state = json.loads((await worker.insist("GET", target)).body)
        unsettled = state["lag"] + state["in_flight"]
        worker.desk.history.unsettled[stream] = unsettled
        if not unsettled:
            return


async def _read(reader: Client, stream: str) -> list[str]:
    messages: list[str] = []
    offset, is_done = "-1", False
    while not is_done:
        reply = await reader.insist("GET", f"/v1/stream/{stream}?offset={offset}")
        messages += [one["id"] for one in json.loads(reply.body)]
        offset, is_done = reply.next_offset, reply.up_to_date
    return messages
