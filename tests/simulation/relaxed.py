"""Relaxed streams in the simulation: acknowledged before the commit, and cleared now and then.

A crash or a failed commit takes the last appends of such a stream, acknowledged or not. Producers
then learn which sequence is expected and send again from there; others go on. Checked:

- appends are stored whole, in the order in which they were sent, and once;
- what is stored of a producer has no gap: only the end of what it sent was ever lost;
- what is acknowledged when nothing fails any more is stored;
- what a clear dropped is never read again, and nothing goes that no clear could mean.
"""

from __future__ import annotations

import asyncio
from typing import Final

from headwater.core.decisions import AppendReply, Create
from headwater.core.errors import SequenceGap, StreamNotFound
from headwater.core.offsets import Offset, parse_offset
from headwater.service.chunks import Chunk
from headwater.service.clearing import clear
from tests.simulation.workers import Worker, answer
from tests.simulation.world import World
from tests.support.logs import BYTES, data

RELAXED: Final = ["r/0", "r/1"]


class Clicker(Worker):
    """Appends one numbered body after the other, as a producer or plainly."""

    def __init__(self, world: World, name: str, path: str, *, produces: bool) -> None:
        super().__init__(world, name)
        self.path = path
        self.produces = produces
        self.next = 0
        self.acknowledged: set[int] = set()

    def body(self, number: int) -> bytes:
        return f"<{self.name}.{number}>".encode()

    async def step(self) -> None:
        number = self.next
        command = data(self.body(number), (self.name, 0, number) if self.produces else None)
        result = await self.ask("click", answer(self.world.log.append(self.path, command)))
        if isinstance(result, AppendReply):
            assert result.relaxed or result.duplicate
            self.acknowledged.add(number)
            self.next = number + 1
        elif isinstance(result, StreamNotFound):
            create = Create(self.path, BYTES, relaxed=True)
            await self.ask("prepare", self.world.log.create(create))
        elif isinstance(result, SequenceGap):
            assert result.expected < number, "a gap before the first that it was not told of"
            self.next = result.expected
        else:
            assert isinstance(result, Exception)
            # Whether it was stored is open. A producer repeats it, others may not.
            self.next = number if self.produces else number + 1

    def check(self) -> None:
        stored = self.stored()
        assert stored == sorted(set(stored)), "in another order, or twice"
        if self.produces:
            assert stored == list(range(len(stored))), "a gap"
        lost = self.acknowledged.difference(stored)
        self.world.counts["click lost"] += len(lost)

    def stored(self) -> list[int]:
        """The numbers that were ever committed, in their order."""
        content = self.world.ledger.content(self.path)
        assert content.count(b"<") == content.count(b">"), "half of one"
        bodies = [body.removeprefix(b"<").split(b".") for body in content.split(b">")[:-1]]
        return [int(number) for name, number in bodies if name.decode() == self.name]


class Cleaner(Worker):
    """Clears, and reads what is left."""

    def __init__(self, world: World, name: str, path: str) -> None:
        super().__init__(world, name)
        self.path = path
        self.cleared = 0
        """Where the stream begins at the least."""
        self.perhaps = 0
        """Where it may begin: a clear whose outcome is open may have come so far."""

    async def step(self) -> None:
        if self.random.random() < 0.3:
            result = await self.ask("clear", clear(self.world.log, self.world.groups, self.path))
            reached = len(self.world.ledger.content(self.path))
            if isinstance(result, Offset):
                assert result.position <= reached, "cleared what is not committed"
                reached = result.position
                self.cleared = max(self.cleared, reached)
            self.perhaps = max(self.perhaps, reached)
            return
        chunk = await self.ask("look", self.world.log.read(self.path, parse_offset("-1")))
        if isinstance(chunk, Chunk):
            content = self.world.ledger.content(self.path)
            assert self.cleared <= chunk.start <= self.perhaps, "begins where it should not"
            assert b"".join(chunk.bodies) == content[chunk.start : chunk.end], "wrong bytes"


def relaxed_team(world: World) -> list[Worker]:
    return [
        *(Clicker(world, f"cp{n}", path, produces=True) for n, path in enumerate(RELAXED * 2)),
        *(Clicker(world, f"cl{n}", path, produces=False) for n, path in enumerate(RELAXED)),
        *(Cleaner(world, f"rm{n}", path) for n, path in enumerate(RELAXED)),
    ]


async def finish_relaxed(workers: list[Worker]) -> None:
    """Nothing fails any more: what is acknowledged now is stored, a moment later."""
    clickers = [worker for worker in workers if isinstance(worker, Clicker)]
    before = {clicker.name: clicker.acknowledged for clicker in clickers}
    for clicker in clickers:
        clicker.acknowledged = set()
        for _ in range(20):
            await asyncio.sleep(0.01)
            await clicker.step()
        assert clicker.acknowledged, "it cannot go on"
    await asyncio.sleep(1)
    for clicker in clickers:
        assert clicker.acknowledged <= set(clicker.stored()), "acknowledged in peace, and lost"
        clicker.acknowledged |= before[clicker.name]
        clicker.check()
