"""Everyone who uses the server in a crash test, together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from random import Random

from headwater.store.history.large_appends import LARGE_BYTES
from tests.crash.check import check_from_the_start, check_readers, check_slots
from tests.crash.history import Kind
from tests.crash.lifecycle import Owner
from tests.crash.wire import Wire
from tests.crash.workload import Participant, PollReader, Producer, Reader, Slot, SseReader, Writer

WRITERS = PRODUCERS = OWNERS = 12
SLOTS_PER_KIND = 3
READERS_PER_SLOT = 2


class Crew:
    """Everyone who uses the server."""

    def __init__(self, port: int, rng: Random) -> None:
        self.port = port
        self.rng = rng
        self.slots = [
            Slot(f"{kind.name.lower()}-{number}", kind, ttl=number == 0)
            for kind in Kind
            for number in range(SLOTS_PER_KIND)
        ]
        large = Slot("large", Kind.TEXT, ttl=False, least_bytes=LARGE_BYTES)

        def dice() -> Random:
            return Random(rng.random())

        self.writers = [Writer(f"w{n}", port, self.slots, dice()) for n in range(WRITERS)]
        self.writers += [Producer(f"p{n}", port, self.slots, dice()) for n in range(PRODUCERS)]
        self.writers += [Writer("lw", port, [large], dice()), Producer("lp", port, [large], dice())]
        self.slots.append(large)
        self.owners = [Owner(f"o{n}", port, dice()) for n in range(OWNERS)]
        self.readers: list[Reader] = [
            kind(port, slot)
            for slot in self.slots
            for kind in (SseReader, PollReader)
            for _ in range(READERS_PER_SLOT)
        ]

    @property
    def done(self) -> int:
        """Requests that were acknowledged and so have to survive."""
        steps = sum(owner.steps for owner in self.owners)
        return steps + sum(writer.acked for writer in self.writers)

    @property
    def unavailable(self) -> int:
        """Requests that were refused because of the storage."""
        refused = sum(owner.unavailable for owner in self.owners)
        refused += sum(reader.unavailable for reader in self.readers)
        return refused + sum(writer.unavailable for writer in self.writers)

    async def work_until(self, the_end: Awaitable[None]) -> None:
        """Let everyone loose, until something brings the server down."""
        everyone: list[Participant] = [*self.writers, *self.owners, *self.readers]
        async with asyncio.TaskGroup() as tasks:
            for participant in everyone:
                tasks.create_task(participant.run())
            await the_end

    async def check(self) -> None:
        wire = Wire(self.port)
        try:
            await check_slots(wire, self.slots, self.rng)
            check_readers(self.readers)
            for owner in self.owners:
                await owner.check(wire)
        finally:
            await wire.close()

    async def check_everything(self) -> None:
        await self.check()
        wire = Wire(self.port)
        try:
            await check_from_the_start(wire, self.slots)
        finally:
            await wire.close()
