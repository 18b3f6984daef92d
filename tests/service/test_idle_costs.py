"""What happens by itself costs what has changed, not what is there.

The same rounds are done over some thousands of idle things, and over many times as many. What they
cost is counted in steps of Python and of SQLite.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, Final

import apsw
import pytest

from headwater.core.decisions import Append, Create
from headwater.core.expiry import Lifetime
from headwater.core.groups.config import GroupConfig
from headwater.core.groups.mutations import GroupCreated
from headwater.core.groups.state import GroupRecord, MessageRef
from headwater.core.limits import Limits
from headwater.core.lineage import Lineage
from headwater.core.mutations import AnyMutation
from headwater.core.retention import Retention
from headwater.core.stream import Appended, Created, StreamConfig
from headwater.core.subscriptions.config import SubscriptionConfig
from headwater.core.subscriptions.state import SubscriptionCreated, SubscriptionRecord
from headwater.http.observe.collectors import add_all
from headwater.http.observe.metrics import Metrics
from headwater.http.wire.server import Server
from headwater.service.background import Background
from headwater.service.feeds import Feeds
from headwater.service.groups.operations import Groups
from headwater.service.live.registry import Live
from headwater.service.log import Log
from headwater.service.subscriptions.operations import Subscriptions
from headwater.store.engine import Engine
from headwater.store.history.policies import SealPolicy
from headwater.store.memory.engine import MemoryEngine
from headwater.store.sqlite.engine import SqliteEngine
from tests.support.logs import BYTES, ManualClock

LIMITS: Final = Limits(subscriptions_max=20_000)
_VM_STEPS: Final = 100


@dataclass
class Size:
    streams: int
    groups: int
    subscriptions: int


SOME: Final = Size(5_000, 1_900, 1_000)
MANY: Final = Size(100_000, 20_000, 20_000)


class Steps:
    """Counts what is done on every thread that begins after this was made."""

    def __init__(self) -> None:
        self.counted = 0
        self._counting = False

    def trace(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        if not self._counting:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._count

    def _count(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        self.counted += event == "opcode"
        return self._count

    def watch(self, connection: apsw.Connection) -> None:
        def progress() -> bool:
            self.counted += _VM_STEPS * self._counting
            return False

        connection.set_progress_handler(progress, _VM_STEPS)

    @contextmanager
    def counting(self) -> Iterator[None]:
        self._counting = True
        sys.settrace(self.trace)
        try:
            yield
        finally:
            sys.settrace(None)
            self._counting = False


def idle_world(size: Size, now_ms: int) -> Iterator[AnyMutation]:
    """Streams that expire and keep less some day, some of them with groups, and subscriptions."""
    retention, lifetime = Retention(age_s=86_400), Lifetime(ttl_s=86_400)
    for number in range(1, size.streams + 1):
        path = f"idle/{number}"
        yield Created(
            StreamConfig(
                *(number, path, BYTES, now_ms, lifetime),
                lineage=Lineage(number),
                retention=retention,
            )
        )
        yield Appended(number, 0, b"x", 0, 1, now_ms)
    for number in range(1, size.groups + 1):
        record = GroupRecord(number, 1 + number % 100, f"g{number}", now_ms)
        yield GroupCreated(record, GroupConfig(), MessageRef(1, 1, 0))
    for number in range(1, size.subscriptions + 1):
        config = SubscriptionConfig("pull-wake", pattern=f"p{number}/**", wake_stream="idle/1")
        subscription = SubscriptionRecord(number, f"s{number}", now_ms, "")
        yield SubscriptionCreated(subscription, config, ())


def fill(engine: Engine, size: Size, now_ms: int) -> Engine:
    mutations = idle_world(size, now_ms)
    while batch := list(islice(mutations, 20_000)):
        engine.commit(batch)
    return engine


@pytest.fixture
def steps() -> Iterator[Steps]:
    steps = Steps()
    threading.settrace(steps.trace)
    apsw.connection_hooks.append(steps.watch)
    yield steps
    apsw.connection_hooks.remove(steps.watch)
    threading.settrace(None)


async def costs(engine: Engine, steps: Steps, clock: ManualClock) -> dict[str, int]:
    """The steps of everything that is done without a request, and of what a scrape asks for."""
    log = await Log.start(engine, LIMITS, clock=clock, sealing=SealPolicy())
    groups, live = await Groups.start(log), Live(log)
    subscriptions, feeds = await Subscriptions.start(log), Feeds(log)
    server = Server(lambda request: None, LIMITS)  # type: ignore[arg-type, return-value]
    metrics = Metrics()
    add_all(metrics, log, feeds, groups, live, subscriptions, server, None)
    for number in range(1, 101):
        await groups.of(f"idle/{number}")
    await log.create(Create("busy", BYTES))
    scrape: Any = SimpleNamespace(headers={})

    async def append() -> None:
        await log.append("busy", Append(b"x", BYTES))
        await log.append("idle/1", Append(b"x", BYTES))

    async def come_and_go() -> None:
        await log.create(Create("new", BYTES))
        await log.delete("new", purge=True)

    work: dict[str, Callable[[], Any]] = {task.name: task.round for task in log.tasks}
    work |= {"live": live.tend_all, "metrics": lambda: metrics.handle(scrape)}
    work |= {"append": append, "create and delete": come_and_go}
    found = {}
    for name, do in work.items():
        # What has to be looked at once after the start has been, and statements are prepared.
        for _ in range(3):
            await do()
        before = steps.counted
        with steps.counting():
            await do()
        found[name] = steps.counted - before
    await subscriptions.stop()
    groups.stop()
    await live.stop()
    await log.stop()
    return found


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_idle_things_cost_nothing(
    kind: str, tmp_path: Path, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Background, "start", lambda self: None)
    clock = ManualClock()
    found = []
    for name, size in (("some", SOME), ("many", MANY)):
        engine: Engine = MemoryEngine() if kind == "memory" else SqliteEngine(tmp_path / name)
        found.append(await costs(fill(engine, size, clock.now_ms), steps, clock))
    few, many = found
    for name, count in many.items():
        # Trees are deeper, and hash tables differ: but not twice the steps for 20 times as much.
        assert count < 1.5 * few[name] + 3_000, (name, few, many)
