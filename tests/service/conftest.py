"""A log over an engine that fails when told to, with a clock that stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Protocol

import pytest

from headwater.core.limits import Limits
from headwater.service.log import Log
from headwater.store.memory.engine import MemoryEngine
from tests.support.faulty_engine import FaultyEngine
from tests.support.logs import ManualClock


class StartLog(Protocol):
    def __call__(self, limits: Limits | None = None, *, linger_ms: int = 0) -> Awaitable[Log]: ...


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine() -> FaultyEngine:
    return FaultyEngine(MemoryEngine())


@pytest.fixture
async def start_log(engine: FaultyEngine, clock: ManualClock) -> AsyncIterator[StartLog]:
    """Start a log with other limits than usual; it is stopped when the test ends."""
    started: list[Log] = []

    async def start(limits: Limits | None = None, *, linger_ms: int = 0) -> Log:
        started.append(await Log.start(engine, limits, linger_ms=linger_ms, clock=clock))
        return started[-1]

    yield start
    engine.open_all_gates()
    for log in started:
        await log.stop()


@pytest.fixture
async def log(start_log: StartLog) -> Log:
    return await start_log()
