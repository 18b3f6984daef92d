"""Work in the simulation: groups, transactions and unique ids, over faults and crashes.

Sources fill `w/in`. Movers take messages from it and publish each to two streams, one of which
checks ids, with a transaction that acknowledges it. Auditors of another group acknowledge, return,
reject or forget messages. Passers-by use groups on the streams that everyone deletes and creates
anew. Checked:

- a message is moved once, whatever failed in between, and to both streams or to none;
- what was acknowledged is never delivered again, and what was rejected only as a dead letter;
- whatever is delivered is what the stream holds there;
- in the end everything is moved, and everything is acknowledged or among the dead letters, once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from typing import Any, Final

import msgspec

from headwater.core.decisions import Append, AppendReply, Create
from headwater.core.errors import (
    DuplicateIds,
    GroupNotFound,
    PublishRefused,
    StreamError,
    StreamNotFound,
)
from headwater.core.groups.commands import Ack, Command, Nack, Reject
from headwater.core.groups.config import GroupConfig
from headwater.core.groups.decisions import Outcome
from headwater.core.groups.state import format_receipt
from headwater.core.unique_ids import UniqueIds
from headwater.service.groups.group import Group
from headwater.service.groups.members import Delivery
from headwater.service.transactions import Acknowledge, Publish
from tests.simulation.world import PATHS, NoAnswer, Work, World
from tests.support.logs import BYTES, data
from tests.support.members import Member

IN: Final = "w/in"
OUT: Final = "w/out"
CHECKED: Final = "w/checked"
DEAD: Final = "w/dead"
_LEASE_MS: Final = 100
_MOVERS: Final = GroupConfig(ack_timeout_ms=_LEASE_MS, max_in_flight=8)
_AUDIT: Final = GroupConfig(
    ack_timeout_ms=_LEASE_MS, max_in_flight=8, max_deliveries=4, dead_letter=DEAD
)


class Taken(Member):
    """Checks at the very moment of a delivery that it may happen."""

    def __init__(self, worker: Worker, most: int) -> None:
        super().__init__(worker.name, most)
        self._worker = worker

    def give(self, deliveries: list[Delivery], lag: int) -> None:
        assert self.group is not None
        try:
            for delivery in deliveries if not self.future.done() else ():
                self._worker.check_delivery(self.group, delivery)
        except AssertionError as error:
            # Here it would be the group's trouble, and nobody would hear of it.
            engine = self._worker.world.engine
            engine.objection = engine.objection or error
        super().give(deliveries, lag)


class Worker:
    group = ""
    path = IN
    config = _MOVERS

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.random = world.random

    @property
    def work(self) -> Work:
        return self.world.work

    async def ask(self, what: str, request: Awaitable[Any]) -> Any:
        """The answer, or the error that came instead of it."""
        result: Any
        try:
            result = await self.world.ask(request)
        except (StreamError, NoAnswer) as error:
            result = error
        kind = type(result).__name__ if isinstance(result, Exception) else "done"
        self.world.note(self.name, f"{what} {self.path}", kind)
        if self.world.engine.objection is not None:
            raise self.world.engine.objection
        self.world.counts[f"{what} {kind}"] += 1
        return result

    async def live(self, steps: int) -> None:
        for _ in range(steps):
            await asyncio.sleep(self.random.random() * 0.02)
            await self.step()
            if self.world.has_crashed:
                return

    async def step(self) -> None:
        taken = await self.ask("fetch", self.fetch(self.random.choice([1, 3])))
        if isinstance(taken, GroupNotFound | StreamNotFound):
            await self.ask("join", self.world.groups.put(self.path, self.group, self.config))
        elif isinstance(taken, list) and taken:
            await self.do(taken)

    async def make_streams(self) -> None:
        for command in (
            Create(IN, BYTES),
            Create(OUT, BYTES),
            Create(CHECKED, BYTES, unique_ids=UniqueIds("fail")),
        ):
            await self.ask("prepare", self.world.log.create(command))

    async def fetch(self, most: int) -> list[tuple[Delivery, str]]:
        member = Taken(self, most)
        await member.join(self.world.groups, self.path, self.group)
        group = member.group
        assert group is not None
        try:
            async with asyncio.timeout(0.02):
                deliveries = await member.future
        except TimeoutError:
            return []
        finally:
            member.future.cancel()
            group.leave(member)
        return [(d, format_receipt(group.state.record.id, d[0])) for d in deliveries]

    def check_delivery(self, group: Group, delivery: Delivery) -> None:
        message, content = delivery
        account = self.world.ledger.accounts[group.state.record.stream_id]
        assert account.content[message.ref.start :].startswith(content), "not what is there"

    async def do(self, taken: list[tuple[Delivery, str]]) -> None:
        raise NotImplementedError

    async def settle(self, what: str, command: Command) -> Any:
        async def settle() -> Outcome:
            group = await self.world.groups.get(self.path, self.group)
            return await group.settle(command)

        result = await self.ask(what, settle())
        assert isinstance(result, Outcome | Exception)
        return result


class Source(Worker):
    """Sends each message until it is told that it is stored."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._seq = 0

    async def step(self) -> None:
        body = f"<{self.name}.{self._seq}>".encode()
        command = data(body, (self.name, 0, self._seq))
        result = await self.ask("supply", answer(self.world.log.append(IN, command)))
        if isinstance(result, AppendReply):
            self._seq += 1
        elif isinstance(result, StreamNotFound):
            await self.make_streams()
        else:
            assert isinstance(result, Exception)


class Mover(Worker):
    group = "movers"

    async def do(self, taken: list[tuple[Delivery, str]]) -> None:
        if self.random.random() < 0.05:
            return
        jobs = [content for (_, content), _ in taken]
        work = [
            *(Publish(OUT, Append(job, BYTES), "fail") for job in jobs),
            *(
                Publish(CHECKED, Append(job, BYTES, message_id=job.decode()), "fail")
                for job in jobs
            ),
        ]
        receipts = [receipt for _, receipt in taken]
        acknowledge = Acknowledge(IN, self.group, receipts)
        result = await self.ask("move", self.world.transactions.run(acknowledge, work))
        moved = [self.world.ledger.holds(OUT, job) for job in jobs]
        if isinstance(result, list):
            assert all(moved), "acknowledged, but not committed"
        elif isinstance(result, PublishRefused):
            if isinstance(result.reason, DuplicateIds):
                assert any(moved), "refused as a duplicate of nothing"
            else:
                assert isinstance(result.reason, StreamNotFound)
                await self.make_streams()
        else:
            # The group may be missing: it hands out before its creation is committed.
            assert isinstance(result, Exception)


class Auditor(Worker):
    group = "audit"
    config = _AUDIT

    def check_delivery(self, group: Group, delivery: Delivery) -> None:
        super().check_delivery(group, delivery)
        number = delivery[0].ref.number
        assert number not in self.work.acked, "delivered although it was acknowledged"
        assert number not in self.work.rejected, "delivered although it was rejected"

    async def do(self, taken: list[tuple[Delivery, str]]) -> None:
        receipts = [receipt for _, receipt in taken]
        chance = self.random.random()
        if chance < 0.1:
            return
        if chance < 0.3:
            delay_ms = self.random.choice([0, 30, 300])
            await self.settle("return", Nack(receipts, delay_ms))
        elif chance < 0.4:
            result = await self.settle("reject", Reject(receipts))
            if isinstance(result, Outcome):
                self.work.rejected.update(message.ref.number for message in result.done)
        else:
            numbers = [message.ref.number for (message, _), _ in taken]
            result = await self.settle("acknowledge", Ack(receipts))
            if isinstance(result, Outcome):
                numbers = [message.ref.number for message in result.done]
                self.work.acked.update(numbers)
            self.work.perhaps_acked.update(numbers)


class PasserBy(Worker):
    """Works on streams that come and go."""

    group = "passers-by"
    config = GroupConfig(ack_timeout_ms=_LEASE_MS, max_deliveries=3)

    async def step(self) -> None:
        self.path = self.random.choice(PATHS[:5])
        chance = self.random.random()
        if chance < 0.05:
            await self.ask("disband", self.world.groups.delete(self.path, self.group))
        elif chance < 0.1:
            await self.ask("seek", self.world.groups.seek(self.path, self.group, "first"))
        else:
            await super().step()

    async def do(self, taken: list[tuple[Delivery, str]]) -> None:
        receipts = [receipt for _, receipt in taken]
        await self.settle("acknowledge", Ack(receipts))


def team(world: World) -> list[Worker]:
    return [
        *(Source(world, f"in{number}") for number in range(2)),
        *(Mover(world, f"mv{number}") for number in range(3)),
        *(Auditor(world, f"au{number}") for number in range(3)),
        *(PasserBy(world, f"pb{number}") for number in range(3)),
    ]


async def finish(world: World, workers: list[Worker]) -> None:
    """Nothing fails any more: everything that is left is done."""
    for worker in workers:
        if isinstance(worker, Mover | Auditor):
            await _finish_one(world, worker)
    await asyncio.sleep(2)
    check_the_end(world)


async def _finish_one(world: World, worker: Worker) -> None:
    for _ in range(2_000):
        await worker.step()
        group = await world.groups.get(worker.path, worker.group)
        if group.lag == 0:
            return
    raise AssertionError(f"{worker.group} never comes to an end")


def check_the_end(world: World) -> None:
    supplied = _bodies(world, IN)
    for path in (OUT, CHECKED):
        assert Counter(_bodies(world, path)) == Counter(supplied), f"not exactly once in {path}"
    letters = msgspec.json.decode(b"[" + world.ledger.content(DEAD).removesuffix(b",") + b"]")
    dead = Counter(letter["origin"]["number"] for letter in letters)
    work = world.work
    assert dead.total() == len(dead), "dead twice"
    assert work.rejected <= dead.keys(), "rejected, but not among the dead"
    assert not work.acked & dead.keys(), "acknowledged, and dead"
    assert dead.keys() | work.perhaps_acked == set(range(len(supplied))), "somebody was skipped"


def _bodies(world: World, path: str) -> list[bytes]:
    return [body + b">" for body in world.ledger.content(path).split(b">")[:-1]]


async def answer(work: Awaitable[Any]) -> Any:
    return await work
