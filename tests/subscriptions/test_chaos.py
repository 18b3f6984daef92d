"""Commits fail, receivers fail, streams come and go: in the end everything was worked on.

The webhook is played by the test and answers at once, at random. Whatever it says it is done with
is remembered. When the storms are over, that must cover every append that was acknowledged.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from headwater.core.decisions import Create
from headwater.core.errors import StreamError
from headwater.core.limits import Limits
from headwater.core.subscriptions.decisions import Ack
from headwater.core.subscriptions.state import Phase
from headwater.service.subscriptions.webhooks import Outcome
from headwater.store.memory.engine import MemoryEngine
from tests.subscriptions.model import webhook_config
from tests.subscriptions.test_service import NoClosing, PlayedWebhooks, World
from tests.support import seeds
from tests.support.faulty_engine import Fault, FaultyEngine
from tests.support.logs import BYTES, ManualClock, data, turns, until

PATHS = [f"in/{number}" for number in range(6)]
STEPS = 150


class Storm:
    def __init__(self, world: World, dice: Random) -> None:
        self.world = world
        self.dice = dice
        self.acknowledged: dict[tuple[str, str], str] = {}
        """The last offset that was given out, by path and by the stream that was there."""
        self.covered: dict[tuple[str, str], str] = {}
        self.generations: list[tuple[int, str]] = []
        self.reporting = False

    async def step(self) -> None:
        path = self.dice.choice(PATHS)
        action = self.dice.choice([self.append] * 6 + [self.create] * 3 + [self.delete, self.age])
        # Whatever is refused is not promised.
        with suppress(StreamError):
            await action(path)

    async def create(self, path: str) -> None:
        await self.world.log.create(Create(path, BYTES))

    async def append(self, path: str) -> None:
        reply = await self.world.log.append(path, data(b"x" * self.dice.randrange(1, 9)))
        run, _, _ = reply.next_offset.partition("_")
        self.acknowledged[path, run] = reply.next_offset

    async def delete(self, path: str) -> None:
        # Even if it is refused, it may have been done.
        self.acknowledged = {k: v for k, v in self.acknowledged.items() if k[0] != path}
        await self.world.log.delete(path)

    async def age(self, path: str) -> None:
        self.world.pass_time(self.dice.choice([100, 1_500, 6_000, 70_000]))

    async def receive(self) -> None:
        """The webhook: it fails, it is done, it reports in its own time, or it forgets to."""
        while True:
            body = await self.world.hooks.next()
            mood = self.dice.random()
            self.generations.append((body["generation"], body["wake_id"]))
            if mood < 0.2:
                await self.world.hooks.answer(Outcome(False, problem="moody"))
            elif mood < 0.5:
                self.cover(body)
                await self.world.hooks.answer(Outcome(True, done=True))
            else:
                await self.world.hooks.answer(Outcome(True))
                if mood < 0.9:
                    await self.report(body)

    async def report(self, body: dict[str, Any]) -> None:
        acks = [
            Ack(stream["path"], stream["tail_offset"])
            for stream in body["streams"]
            if stream["has_pending"]
        ]
        self.cover(body)
        self.reporting = True
        try:
            # It may count or not; if not, the wake comes again.
            with suppress(StreamError):
                await self.world.callback(body, *acks, done=True)
        finally:
            # Also if the receiver ends in the middle of it.
            self.reporting = False

    def is_over(self) -> bool:
        """Whether nothing happens any more unless time passes."""
        subscriptions = self.world.subscriptions
        subscription = subscriptions.get("s")
        at_work = subscription._task or subscription.pending or subscriptions._reloads
        return not (at_work or self.reporting or self.world.hooks.open)

    def cover(self, body: dict[str, Any]) -> None:
        for stream in body["streams"]:
            run, _, _ = stream["tail_offset"].partition("_")
            key = stream["path"], run
            self.covered[key] = max(self.covered.get(key, ""), stream["tail_offset"])


@pytest.mark.parametrize("seed", seeds.several(16))
async def test_everything_is_worked_on_in_the_end(seed: int) -> None:
    dice = Random(seed)
    calm = False

    def plan(number: int) -> Fault | None:
        return None if calm or dice.random() > 0.08 else dice.choice(list(Fault))

    inner: Any = NoClosing(MemoryEngine())
    world = World(FaultyEngine(inner), ManualClock(), Limits())
    await world.start()
    await world.subscribe(config=webhook_config(pattern="in/**", streams=(PATHS[0],)))
    world.engine.plan = plan
    storm = Storm(world, dice)
    receiver = asyncio.create_task(storm.receive())
    for number in range(STEPS):
        await storm.step()
        await turns(dice.randrange(5))
        if number == STEPS // 2:
            receiver.cancel()
            await world.restart()
            receiver = asyncio.create_task(storm.receive())
    calm = True
    subscription = world.subscriptions.get("s")
    # On a busy machine a commit may take longer than several of these turns.
    for _ in range(1_000):
        await until(storm.is_over)
        if subscription.state.wake.phase is Phase.IDLE and not subscription.state.pending:
            break
        # Nobody is at work: something waits for its time.
        world.pass_time(70_000)
    assert not subscription.state.pending
    links = {p: (link.stream_id, link.tail) for p, link in subscription.state.links.items()}
    there = {t.path: (t.lineage.own, t.tail) for t in world.engine.streams.tails("in/", "", 100)}
    assert links == {PATHS[0]: (0, 0)} | there
    lost = {k: v for k, v in storm.acknowledged.items() if storm.covered.get(k, "") < v}
    assert lost == {}
    numbers = [generation for generation, _ in storm.generations]
    assert numbers == sorted(numbers)
    assert len(set(storm.generations)) == len(set(numbers)), "a generation has one wake"
    assert isinstance(world.hooks, PlayedWebhooks)
    receiver.cancel()
    await world.stop()
