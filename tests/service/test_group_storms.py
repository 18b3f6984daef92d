"""Random work on a group while commits of it and deletions of its stream fail.

A group delivers before anything of that is stored, so a commit that fails leaves it with deliveries
that only its members know of, and with a copy in memory that replaces the one that is void. While
its stream is being deleted it goes on working, on a future that may never come. Whatever happens:

- what was acknowledged is never delivered again;
- nothing is skipped: in the end every message was acknowledged.

The work runs on the virtual loop of the simulation, so that it takes no time and a seed always
fails in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from random import Random
from typing import Any, Final

import pytest

from headwater.core.content_types import JSON
from headwater.core.decisions import AppendReply, Create
from headwater.core.errors import StorageUnavailable
from headwater.core.groups.config import GroupConfig
from headwater.core.groups.decisions import Outcome
from headwater.core.mutations import AnyMutation
from headwater.core.stream import Deleted
from headwater.service.groups.operations import Groups
from headwater.service.log import Log
from headwater.store.memory.engine import MemoryEngine
from tests.simulation.virtual_loop import VirtualLoop, take_over
from tests.support import seeds
from tests.support.faulty_engine import Fault, FaultyEngine
from tests.support.logs import begin, outcome, turns
from tests.support.members import ack, fetch, json, nack
from tests.support.recounts import check_groups

LEASE_MS: Final = 1_000
STEPS: Final = 120
PATH, NAME = "s", "g"
EPOCH_MS: Final = 1_700_000_000_000


class Undeletable(FaultyEngine):
    """Whatever else it is told to do, it deletes no stream."""

    def commit(self, mutations: Sequence[AnyMutation]) -> None:
        if any(isinstance(mutation, Deleted) for mutation in mutations):
            raise StorageUnavailable("no stream is deleted here")
        super().commit(mutations)


class Worker:
    """Appends, takes and acknowledges at random, and keeps books on it."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.engine = Undeletable(MemoryEngine())
        self.sent = 0
        """Messages are numbers, and this one is next."""
        self.places = {"first": 0}
        """Where the group can be moved to, and which message is next there."""
        self.held: dict[int, str] = {}
        """The latest receipts. Some are stale, as those of a worker who took too long."""
        self.done: set[int] = set()
        """Acknowledged, or passed over on purpose."""
        self.moving = False
        """Whether the group may be elsewhere, where it delivers what is done once more."""
        self.trace: list[str] = []
        self.log: Log
        self.groups: Groups

    async def start(self) -> None:
        self.log = await Log.start(self.engine, clock=self.clock)
        take_over(self.log.writer)
        self.groups = await Groups.start(self.log)
        await self.log.create(Create(PATH, JSON))
        await self.groups.put(PATH, NAME, GroupConfig(ack_timeout_ms=LEASE_MS))

    async def stop(self) -> None:
        check_groups(self.groups)
        self.groups.stop()
        await self.log.stop()

    def clock(self) -> int:
        return EPOCH_MS + int(asyncio.get_running_loop().time() * 1000)

    def note(self, what: str, answer: object) -> None:
        self.trace.append(f"{self.clock() - EPOCH_MS:8} ms  {what}: {answer}")

    # ── Work ─────────────────────────────────────────────────────────────────────────────────

    async def work(self) -> None:
        await self.start()
        await self.live()
        await self.finish()
        await self.stop()

    async def live(self) -> None:
        often = [self.fetch, self.acknowledge, self.pass_time]
        rarely = [self.append, self.give_back, self.seek, self.look, self.fail]
        actions = [*often, *often, *rarely, self.storm, self.storm]
        for _ in range(STEPS):
            await self.dice.choice(actions)()
            self.moving = False

    async def append(self) -> None:
        for _ in range(self.dice.randint(2, 8)):
            reply = await outcome(self.log.append(PATH, json(str(self.sent))))
            assert isinstance(reply, AppendReply)
            self.note("append", self.sent)
            self.sent += 1
            self.places[reply.next_offset] = self.places["latest"] = self.sent

    async def fetch(self) -> None:
        found = await self.ask("fetch", fetch(self.groups, PATH, NAME, self.dice.randint(1, 4)))
        # Whatever is refused comes with a later one.
        for receipt, text in found if isinstance(found, list) else ():
            number = int(text)
            self.note("took", number)
            again = number in self.done and not self.moving
            assert not again, f"{number} was acknowledged, and is delivered again"
            self.held[number] = receipt

    async def acknowledge(self) -> None:
        if self.held:
            count = self.dice.randint(1, len(self.held))
            await self.settle(*self.dice.sample(sorted(self.held), count))

    async def settle(self, *numbers: int) -> None:
        receipts = [self.held[number] for number in numbers]
        found = await self.ask(f"acknowledge {numbers}", ack(self.groups, PATH, NAME, *receipts))
        for message in found.done if isinstance(found, Outcome) else ():
            self.done.add(message.ref.number)
            self.held.pop(message.ref.number, None)

    async def give_back(self) -> None:
        if self.held:
            number, delay_ms = self.dice.choice(sorted(self.held)), self.dice.choice([0, 5, 50])
            returning = nack(self.groups, PATH, NAME, self.held[number], delay_ms=delay_ms)
            await self.ask(f"give back {number} for {delay_ms} ms", returning)

    async def seek(self) -> None:
        to, number = self.dice.choice([*self.places.items()])
        self.moving = True
        result = await self.ask(f"seek {number}", self.groups.seek(PATH, NAME, to))
        # Also in a storm, if looking up the place took longer than that.
        if result is None:
            self.done = {*range(number)}

    async def look(self) -> None:
        """Deliveries are stored before anybody is told of them."""
        await self.ask("look", self.groups.infos(PATH))

    async def pass_time(self) -> None:
        await asyncio.sleep(self.dice.choice([1, 11, 11, 60, LEASE_MS + 100]) / 1000)

    async def ask(self, what: str, request: Awaitable[Any]) -> Any:
        """The answer, or the error that came instead of it."""
        result = await outcome(request)
        if isinstance(result, type):
            answer = result.__name__
        elif isinstance(result, Outcome):
            answer = f"{[message.ref.number for message in result.done]} done"
        else:
            answer = "answered"
        self.note(what, answer)
        return result

    # ── Trouble ──────────────────────────────────────────────────────────────────────────────

    async def fail(self) -> None:
        """Let a commit fail, so that the copy in memory is void."""
        fault = self.dice.choice([*Fault])
        self.engine.fail_next(fault)
        changing = self.groups.pause(PATH, NAME, paused=False)
        assert await self.ask(f"fail {fault.name}", changing) is StorageUnavailable

    async def storm(self) -> None:
        """Work goes on while the stream is being deleted, and then it is not deleted."""
        await self.groups.get(PATH, NAME)
        await self.log.writer.reply_after_all(None)
        # A gate of the engine would stop the loop, which does the work of that thread.
        self.log.writer.thread.hold()
        deleting = begin(self.ask("delete", self.log.delete(PATH, purge=True)))
        await turns(60)
        actions = [self.fetch, self.fetch, self.acknowledge, self.give_back, self.seek]
        work = []
        for _ in range(self.dice.randint(2, 8)):
            action = self.dice.choice(actions)
            self.note("storm", action.__name__)
            work.append(begin(action()))
            await turns(60)
            await asyncio.sleep(self.dice.choice([0, 0, 6]) / 1000)
        self.log.writer.thread.release()
        assert await deleting is StorageUnavailable
        await asyncio.gather(*work)

    # ── The end ──────────────────────────────────────────────────────────────────────────────

    async def finish(self) -> None:
        """Nothing fails any more: everything that is left is done."""
        self.note("finish", "from here on nothing fails")
        for _ in range(self.sent + 3):
            await asyncio.sleep((LEASE_MS + 100) / 1000)
            await self.fetch()
            if not self.held:
                break
            await self.settle(*sorted(self.held))
            self.held.clear()
        skipped = {*range(self.sent)} - self.done
        assert not skipped, f"{skipped} are never delivered"
        later = await Groups.start(self.log)
        stored = (await later.get(PATH, NAME)).state
        assert (stored.cursor.number, stored.outstanding) == (self.sent, {})
        later.stop()


@pytest.mark.parametrize("seed", seeds.several(60))
def test_nothing_is_skipped_and_nothing_that_is_done_comes_back(seed: int) -> None:
    dice = Random(seed)
    worker = Worker(dice)
    try:
        with asyncio.Runner(loop_factory=lambda: VirtualLoop(dice)) as runner:
            runner.run(worker.work())
    except Exception as error:
        error.add_note("\n".join(["What happened:", *worker.trace]))
        raise
