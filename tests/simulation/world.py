"""The world of the simulation: what outlives a crash, and the log that does not."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final

from headwater.core.decisions import AppendReply, CreateReply
from headwater.core.errors import StreamError
from headwater.core.limits import Limits
from headwater.core.mutations import AnyMutation
from headwater.core.stream import Mutation
from headwater.service.groups.operations import Groups
from headwater.service.log import Log
from headwater.service.transactions import Transactions
from headwater.store.memory.engine import MemoryEngine
from tests.simulation.ledger import Ledger
from tests.simulation.virtual_loop import VirtualThread, take_over
from tests.support.faulty_engine import Fault, FaultyEngine

EPOCH_MS: Final = 1_700_000_000_000
PATHS: Final = [f"s/{number}" for number in range(20)] + [f"short/{n}" for n in range(4)]
LIMITS: Final = Limits(
    body_bytes_max=64,
    queue_bytes_max=16 * 1024,
    streams_in_memory_max=16,
    hot_bytes_per_stream_max=60,
    chunk_bytes_max=50,
    producer_wait_ms=20,
)


class Work:
    """What those who work in groups were told."""

    def __init__(self) -> None:
        self.acked: set[int] = set()
        self.perhaps_acked: set[int] = set()
        self.rejected: set[int] = set()


class WitnessedEngine(FaultyEngine):
    """Enters every transaction into the ledger at the moment at which it is stored."""

    def __init__(self, ledger: Ledger, random: Random) -> None:
        super().__init__(MemoryEngine(), self._choose)
        self.ledger = ledger
        self.calm = False
        self.objection: AssertionError | None = None
        self._random = random

    def _choose(self, number: int) -> Fault | None:
        chance = self._random.random()
        if self.calm or chance > 0.1:
            return None
        return Fault.BEFORE if chance > 0.04 else Fault.AFTER

    def stored(self, mutations: Sequence[AnyMutation]) -> None:
        try:
            self.ledger.enter([m for m in mutations if isinstance(m, Mutation)])
        except AssertionError as error:
            # The writer would take this for a failed commit and carry on.
            self.objection = self.objection or error
            raise


class NoAnswer(Exception):
    """The server is gone, or the client did not wait for it."""


class World:
    """Everything that outlives a crash, and the log that does not."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.ledger = Ledger()
        self.engine = WitnessedEngine(self.ledger, random)
        self.trace: list[str] = []
        self.counts: Counter[str] = Counter()
        self.tokens: dict[str, list[str]] = {path: [] for path in PATHS}
        self.work = Work()
        self.log: Log
        self.groups: Groups
        self.transactions: Transactions
        self.thread: VirtualThread
        self._crashed: asyncio.Event

    async def start(self) -> None:
        self.log = await Log.start(self.engine, LIMITS, clock=self.clock)
        self.groups = await Groups.start(self.log)
        self.transactions = Transactions(self.log, self.groups)
        self.thread = take_over(self.log.writer)
        self._crashed = asyncio.Event()

    def clock(self) -> int:
        return EPOCH_MS + int(asyncio.get_running_loop().time() * 1000)

    def note(self, who: str, what: str, result: object) -> None:
        if isinstance(result, BaseException):
            result = type(result).__name__
        elif isinstance(result, CreateReply | AppendReply):
            result = result.next_offset
        moment = asyncio.get_running_loop().time() * 1000
        self.trace.append(f"{moment:10.3f} ms  {who:<4} {what}: {result}")

    @property
    def has_crashed(self) -> bool:
        return self._crashed.is_set()

    def crash(self) -> None:
        """Commits that were not under way yet never happen, and nobody gets an answer."""
        self.thread.die()
        self._crashed.set()

    async def ask(self, work: Awaitable[Any]) -> Any:
        """A request to the log. It may be cut off by a crash, or by the client itself."""
        request = asyncio.ensure_future(work)
        crash = asyncio.ensure_future(self._crashed.wait())
        patience = 0.005 if self.random.random() < 0.03 else None
        await asyncio.wait([request, crash], timeout=patience, return_when="FIRST_COMPLETED")
        crash.cancel()
        if not request.done():
            request.cancel()
            with suppress(asyncio.CancelledError, StreamError):
                await request
            raise NoAnswer
        return request.result()
