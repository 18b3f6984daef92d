"""Work that is handed out by groups, over crashes.

**The line.** Sources put numbered jobs into the first stream, as idempotent producers. Workers take
them and move them on to the second stream, others from there to the third: each time with a
transaction that acknowledges and publishes at once. In the end every job is in each of the
streams, once.

**The audit.** Another group on the first stream, whose members acknowledge, return with a delay,
reject, or do nothing at all. What was answered has to hold: an acknowledged message is never
delivered again, nor is a rejected one, which goes to the dead-letter stream once; a returned
message does not come before its time; and what nobody has settled comes back until someone does.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from tests.crash.check import read_all
from tests.crash.history import Kind, Violation
from tests.crash.wire import EventStream, Lost, Wire
from tests.crash.workload import Participant

FIRST, SECOND, THIRD = LINE = ("jobs/first", "jobs/second", "jobs/third")
DEAD: Final = "jobs/dead"
MOVERS: Final = "movers"
AUDIT: Final = "audit"
LEASE_MS: Final = 1_500
_SETTINGS: Final = {"ack_timeout_ms": LEASE_MS, "max_in_flight": 300}
_JSON: Final = {"Content-Type": "application/json"}
_DEPTH: Final = 40
"""So many jobs may be on their way: the work has to keep up, or the end would be long in coming."""


async def post(wire: Wire, target: str, **body: Any) -> tuple[int, Any]:
    reply = await wire.call("POST", target, body=json.dumps(body).encode())
    return reply.status, json.loads(reply.body)


async def act(wire: Wire, path: str, group: str, action: str, **body: Any) -> Any:
    status, answer = await post(wire, f"/v1/stream/{path}/_groups/{group}/{action}", **body)
    if status != 200:
        raise Violation(f"{action} on {path}: {status} {answer}")
    return answer


async def prepare(wire: Wire) -> None:
    """Make what is not there yet."""
    for path in LINE:
        await wire.request("PUT", path, _JSON)
    for path, group, extra in (
        (FIRST, MOVERS, {}),
        (SECOND, MOVERS, {}),
        (FIRST, AUDIT, {"dead_letter": DEAD}),
    ):
        body = json.dumps(_SETTINGS | extra).encode()
        reply = await wire.request("PUT", f"{path}/_groups/{group}", _JSON, body)
        if reply.status not in (200, 201):
            raise Violation(f"making a group: {reply}")


class Source:
    """Puts jobs into the first stream; what was not answered is sent again."""

    def __init__(self, name: str, port: int, audit: Audit) -> None:
        self.name = name
        self.port = port
        self.audit = audit
        self.acked = 0
        self.stopped = False

    @property
    def jobs(self) -> list[str]:
        return [f"{self.name}.{number}" for number in range(self.acked)]

    async def run(self) -> None:
        wire = Wire(self.port)
        try:
            await prepare(wire)
            while not self.stopped:
                await self.audit.room()
                await self._send(wire)
        except Lost:
            pass
        finally:
            await wire.close()

    async def _send(self, wire: Wire) -> None:
        stamp = {
            "Producer-Id": self.name,
            "Producer-Epoch": "0",
            "Producer-Seq": str(self.acked),
        }
        body = json.dumps({"job": f"{self.name}.{self.acked}"}).encode()
        reply = await wire.request("POST", FIRST, _JSON | stamp, body)
        if reply.status not in (200, 204):
            raise Violation(f"a source was answered {reply}")
        self.acked += 1


@dataclass(frozen=True)
class Delivery:
    job: str
    receipt: str
    asked_at: float
    """No later than this the member asked for it."""


class Member:
    """Takes messages, by fetching them or by having them pushed."""

    path: str
    group: str

    def __init__(self, name: str, port: int, rng: Random, *, pushed: bool) -> None:
        self.name = name
        self.port = port
        self.rng = rng
        self.pushed = pushed

    async def run(self) -> None:
        wire = Wire(self.port)
        try:
            await prepare(wire)
            async with aclosing(self._pushes() if self.pushed else self._fetches(wire)) as batches:
                async for batch in batches:
                    await self.work(wire, batch)
        except Lost:
            pass
        finally:
            await wire.close()

    async def _fetches(self, wire: Wire) -> AsyncGenerator[list[Delivery], None]:
        while True:
            asked_at, most = time.time(), self.rng.choice((1, 5, 20))
            answer = await act(
                wire, self.path, self.group, "fetch", consumer=self.name, max=most, wait_ms=200
            )
            if answer["messages"]:
                yield [_delivery(message, asked_at) for message in answer["messages"]]

    async def _pushes(self) -> AsyncGenerator[list[Delivery], None]:
        while True:
            path, query = f"{self.path}/_groups/{self.group}", f"consumer={self.name}&max=10"
            stream = EventStream(self.port, path, query=query)
            asked_at = time.time()
            async with aclosing(stream.events()) as events:
                async for event in events:
                    yield [_delivery(json.loads(event.data), asked_at)]
            if stream.status != 200:
                raise Violation(f"a member of {self.path} was answered {stream.status}")

    async def work(self, wire: Wire, batch: list[Delivery]) -> None:
        raise NotImplementedError


def _delivery(message: Any, asked_at: float) -> Delivery:
    return Delivery(message["value"]["job"], message["receipt"], asked_at)


class Mover(Member):
    """Moves jobs on along the line, each exactly once."""

    group = MOVERS

    def __init__(
        self, name: str, port: int, rng: Random, path: str, target: str, *, pushed: bool
    ) -> None:
        super().__init__(name, port, rng, pushed=pushed)
        self.path = path
        self.target = target
        self.moved = 0

    async def work(self, wire: Wire, batch: list[Delivery]) -> None:
        if self.rng.random() < 0.02:
            return  # Forgotten: the leases run out.
        status, answer = await post(
            wire,
            "/v1/transaction",
            ack={
                "stream": self.path,
                "group": self.group,
                "receipts": [delivery.receipt for delivery in batch],
            },
            publish=[
                {"stream": self.target, "value": {"job": delivery.job, "by": self.name}}
                for delivery in batch
            ],
        )
        if status == 200:
            self.moved += len(batch)
        elif status != 409 or answer["error"]["code"] != "stale_receipts":
            raise Violation(f"a transaction was answered {status} {answer}")


@dataclass
class Audit:
    """What the auditors were told."""

    settled: dict[str, float] = field(default_factory=dict)
    """When the answer came that says so."""
    perhaps: set[str] = field(default_factory=set)
    """No answer came."""
    not_before: dict[str, float] = field(default_factory=dict)
    rejected: set[str] = field(default_factory=set)
    perhaps_rejected: set[str] = field(default_factory=set)
    sources: list[Source] = field(default_factory=list)

    async def room(self) -> None:
        """Be slow while the auditors have not caught up."""
        if self.open_jobs > _DEPTH * len(self.sources):
            await asyncio.sleep(0.02)

    @property
    def open_jobs(self) -> int:
        acked = sum(source.acked for source in self.sources)
        return acked - len(self.settled.keys() | self.perhaps)

    def received(self, delivery: Delivery) -> None:
        settled_at = self.settled.get(delivery.job)
        if settled_at is not None and settled_at < delivery.asked_at:
            raise Violation(f"{delivery.job} was settled and is delivered again")
        if time.time() < self.not_before.pop(delivery.job, 0):
            raise Violation(f"{delivery.job} is delivered before its delay is over")


class Auditor(Member):
    path = FIRST
    group = AUDIT

    def __init__(self, name: str, port: int, rng: Random, audit: Audit, *, pushed: bool) -> None:
        super().__init__(name, port, rng, pushed=pushed)
        self.audit = audit

    async def work(self, wire: Wire, batch: list[Delivery]) -> None:
        for delivery in batch:
            self.audit.received(delivery)
        chance = self.rng.random()
        if chance < 0.02:
            return
        jobs = {delivery.receipt: delivery.job for delivery in batch}
        if chance < 0.12:
            await self._nack(wire, jobs)
        elif chance < 0.2:
            await self._reject(wire, jobs)
        else:
            if chance < 0.3:
                await self._act(wire, "extend", jobs, ms=LEASE_MS)
            self.audit.perhaps.update(jobs.values())
            self._settled(await self._act(wire, "ack", jobs))

    async def _act(self, wire: Wire, action: str, jobs: dict[str, str], **body: Any) -> list[str]:
        """Returns the jobs that it was done to."""
        receipts = list(jobs)
        answer = await act(wire, self.path, self.group, action, receipts=receipts, **body)
        return [job for receipt, job in jobs.items() if receipt not in answer["stale"]]

    def _settled(self, jobs: list[str]) -> None:
        now = time.time()
        for job in jobs:
            self.audit.settled.setdefault(job, now)

    async def _nack(self, wire: Wire, jobs: dict[str, str]) -> None:
        delay_ms, asked_at = self.rng.choice((0, 100, 400)), time.time()
        for job in await self._act(wire, "nack", jobs, delay_ms=delay_ms):
            # It may be in the hands of another member already, if there was no delay.
            if delay_ms:
                self.audit.not_before[job] = asked_at + delay_ms / 1000 - 0.002

    async def _reject(self, wire: Wire, jobs: dict[str, str]) -> None:
        self.audit.perhaps.update(jobs.values())
        self.audit.perhaps_rejected.update(jobs.values())
        rejected = await self._act(wire, "reject", jobs)
        self.audit.rejected.update(rejected)
        self._settled(rejected)


# ── Everyone, and the reckoning ──────────────────────────────────────────────────────────────


class Shift:
    """Everyone who works."""

    def __init__(self, port: int, rng: Random) -> None:
        self.port = port
        self.audit = Audit()
        self.sources = [Source(f"s{n}", port, self.audit) for n in range(3)]
        self.audit.sources = self.sources

        def dice() -> Random:
            return Random(rng.random())

        self.movers = [
            Mover(f"m{n}-{path[-1]}", port, dice(), path, target, pushed=n == 0)
            for path, target in ((FIRST, SECOND), (SECOND, THIRD))
            for n in range(3)
        ]
        self.auditors = [Auditor(f"a{n}", port, dice(), self.audit, pushed=n < 2) for n in range(4)]

    @property
    def done(self) -> int:
        return sum(mover.moved for mover in self.movers) + len(self.audit.settled)

    async def work_until(self, the_end: Awaitable[None]) -> None:
        participants: list[Participant] = [*self.sources, *self.movers, *self.auditors]
        async with asyncio.TaskGroup() as tasks:
            everyone = [tasks.create_task(participant.run()) for participant in participants]
            await the_end
            # Who is left when the server is still there goes home.
            await asyncio.sleep(0)
            for task in everyone:
                task.cancel()

    async def finish(self) -> None:
        """No new jobs, and everyone works until nothing is left to do."""
        for source in self.sources:
            source.stopped = True
        await self.work_until(self._quiet())

    async def _quiet(self) -> None:
        wire = Wire(self.port)
        groups = ((FIRST, MOVERS), (SECOND, MOVERS), (FIRST, AUDIT))
        try:
            async with asyncio.timeout(180):
                while True:
                    replies = [
                        await wire.request("GET", f"{path}/_groups/{group}")
                        for path, group in groups
                    ]
                    if all(json.loads(reply.body)["lag"] == 0 for reply in replies):
                        return
                    await asyncio.sleep(0.05)
        finally:
            await wire.close()

    async def check(self) -> None:
        wire = Wire(self.port)
        try:
            sent = {job for source in self.sources for job in source.jobs}
            first = await _jobs(wire, FIRST)
            # The last request of a source may have been stored without an answer.
            if not sent <= first.keys() or first.total() > len(sent) + len(self.sources):
                raise Violation("the first stream does not hold what the sources were told")
            for path in LINE:
                found = await _jobs(wire, path)
                if found != Counter(first.keys()):
                    raise Violation(f"{path}: {_differences(Counter(first.keys()), found)}")
            self._check_audit(set(first), await _jobs(wire, DEAD))
        finally:
            await wire.close()

    def _check_audit(self, jobs: set[str], dead: Counter[str]) -> None:
        audit = self.audit
        skipped = jobs - audit.settled.keys() - audit.perhaps
        if skipped:
            raise Violation(f"nobody was given {sorted(skipped)[:10]}")
        if dead.total() != len(dead):
            raise Violation(f"dead twice: {dead.most_common(3)}")
        if not audit.rejected <= dead.keys() <= audit.perhaps_rejected:
            raise Violation("the dead-letter stream does not hold what was rejected")


async def _jobs(wire: Wire, path: str) -> Counter[str]:
    content, _, _ = await read_all(wire, path, Kind.JSON, "-1")
    values = json.loads(b"[" + content.removesuffix(b",") + b"]")
    return Counter((value.get("value") or value)["job"] for value in values)


def _differences(expected: Counter[str], found: Counter[str]) -> str:
    missing, extra = list((expected - found).items()), list((found - expected).items())
    return f"{len(missing)} missing {missing[:5]}, {len(extra)} too many {extra[:5]}"
