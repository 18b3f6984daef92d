"""Whatever runs without a request: it fails, that is seen, and it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from headwater.cli.serving import reloading
from headwater.cli.serving.reloading import Reloader
from headwater.core.decisions import Create
from headwater.core.groups.config import GroupConfig
from headwater.core.limits import Limits
from headwater.core.live.journal import Waiter
from headwater.http.access.key_sets import KeysAtUrl
from headwater.http.feeds import heartbeat
from headwater.http.feeds.heartbeat import Heartbeat
from headwater.http.wire import server
from headwater.http.wire.server import Server
from headwater.service import background, timers
from headwater.service.background import Background, Retried, Watch
from headwater.service.entries import Event
from headwater.service.feeds import Feeds
from headwater.service.following import Update
from headwater.service.groups.operations import Groups
from headwater.service.live.registry import Live
from headwater.service.live.waits import Deadlines, Wait
from headwater.service.log import Log
from headwater.service.subscriptions.operations import Subscriptions
from headwater.service.subscriptions.webhooks import Webhooks
from headwater.service.timers import Timers
from headwater.store.memory.engine import MemoryEngine
from tests.support.logs import data, until


class Flaky:
    """Fails once, and counts how often it was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, *_: object, **__: object) -> None:
        self.calls += 1
        if self.calls == 1:
            raise RuntimeError("injected")

    async def asynchronously(self, *_: object) -> None:
        self()


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (background, "_PAUSE_AFTER_FAILURE_S"),
        (server, "_SWEEP_S"),
        (reloading, "INTERVAL_S"),
    ):
        monkeypatch.setattr(module, name, 0.01)
    monkeypatch.setattr(timers, "_PAUSE_MS", 10)


@pytest.fixture
async def log() -> AsyncIterator[Log]:
    log = await Log.start(MemoryEngine())
    yield log
    await log.stop()


def timer(log: Log, flaky: Flaky) -> Watch:
    watch = log.watch("timers")
    Timers(log.clock, watch).at(0, flaky)
    return watch


def retried(log: Log, flaky: Flaky) -> Watch:
    watch = log.watch("retried")
    Retried(watch).start(flaky.asynchronously)
    return watch


def sweep(log: Log, flaky: Flaky) -> Watch:
    swept = Server(lambda request: None, Limits())  # type: ignore[arg-type, return-value]
    swept._sweep_once = flaky  # type: ignore[method-assign]
    swept._sweep()
    log.watches.append(swept.watch)
    return swept.watch


def reload(log: Log, flaky: Flaky) -> Watch:
    reloader = Reloader()
    reloader.each_time(flaky)
    reloader.start()
    log.watches += reloader.watches
    return reloader.watches[0]


def tending(log: Log, flaky: Flaky) -> Watch:
    live = Live(log)
    live.tend_all = flaky.asynchronously  # type: ignore[method-assign]
    live._start_ticking()
    return live._tending


@pytest.mark.parametrize("begin", [timer, retried, sweep, reload, tending])
async def test_what_fails_is_seen_and_done_again(
    begin: Callable[[Log, Flaky], Watch], log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    flaky = Flaky()
    watch = begin(log, flaky)
    await until(lambda: watch.failures == 1)
    assert f"{watch.name}_failed" in "".join(capsys.readouterr())
    assert watch in log.watched()
    async with asyncio.timeout(60):
        await until(lambda: flaky.calls >= 2 and not watch.is_failing)
    assert watch.failures == 1


@pytest.mark.parametrize("task", ["expiry", "trimming", "forgetting", "collection"])
async def test_rounds_that_fail_are_seen_and_done_again(
    task: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = (one for one in log.tasks if one.name == task)
    flaky = Flaky()

    async def fail_once() -> float:
        flaky()
        return 0.01

    monkeypatch.setattr(found, "round", fail_once)
    async with asyncio.timeout(120):
        await until(lambda: found.failures == 1)
        assert isinstance(found, Background)
        await until(lambda: flaky.calls > 1 and not log.problems())


# ── One of many ──────────────────────────────────────────────────────────────────────────────


async def test_a_reader_that_fails_does_not_end_the_heartbeat_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heartbeat, "KEEP_ALIVE_S", 0)

    class Sink:
        paused = False
        sent = 0

        def send(self, payload: object) -> bool:
            self.sent += 1
            return True

    class Reader:
        gone = False

        def __init__(self, sink: object) -> None:
            self.sink = sink
            self.ended = False

        def end(self) -> None:
            self.ended = True

    beats = Heartbeat(60)
    broken, well = Reader(object()), Reader(Sink())
    for reader in (broken, well):
        beats.add(reader)  # type: ignore[arg-type]
    async with asyncio.timeout(60):
        await until(lambda: well.sink.sent >= 2)  # type: ignore[attr-defined]
    beats.stop()
    assert broken.ended
    assert beats.watch.failures == 1


async def test_a_wait_that_cannot_time_out_is_answered_and_the_others_have_their_turn() -> None:
    watch, over = Watch("waits"), Flaky()
    deadlines = Deadlines(lambda: 10, watch)
    waits = [Wait(Waiter(()), due, over, fine=True) for due in (1, 2)]  # type: ignore[arg-type]
    for wait in waits:
        deadlines.add(wait)
    await until(lambda: over.calls == 2)
    deadlines.stop()
    assert isinstance(waits[0].future.exception(), RuntimeError)
    assert watch.failures == 1


async def test_a_listener_that_fails_keeps_nobody_from_being_told_or_answered(log: Log) -> None:
    await log.create(Create("s"))
    entry = await log.entry("s")
    told: list[Event] = []
    observed = Flaky()
    flaky = Flaky()
    entry.listeners.add(flaky)
    entry.listeners.add(told.append)
    log.writer.observers.append(observed)
    await log.append("s", data(b"x"))
    assert told == [Event.CHANGED]
    assert log.writer.watch.failures == 2
    assert "listeners" in log.problems()
    await log.append("s", data(b"y"))
    assert (flaky.calls, observed.calls) == (2, 2)


async def test_a_follower_that_fails_does_not_end_the_feed(log: Log) -> None:
    class Follower:
        gone = False

        def __init__(self, *, fails: bool) -> None:
            self.position = 0
            self.fails = fails
            self.updates = 0
            self.ended = False

        def take(self, update: Update) -> int:
            if self.fails and self.updates:
                raise RuntimeError("injected")
            self.updates += 1
            self.position = update.end
            return 1

        def deleted(self) -> None: ...

        def end(self) -> None:
            self.ended = True

        async def drained(self) -> bool:
            return True

    feeds = Feeds(log)
    await log.create(Create("s"))
    entry = await log.entry("s")
    feed = feeds.of(entry, log.view(entry))
    broken, well = Follower(fails=True), Follower(fails=False)
    for follower in (broken, well):
        feed.admit()
        feed.join(follower)
    for _ in range(3):
        await log.append("s", data(b"x"))
    assert broken.ended
    assert well.updates == 4
    assert feeds.watch.failures


async def test_groups_and_subscriptions_are_seen_when_they_fail(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = await Groups.start(log)
    subscriptions = await Subscriptions.start(log, Webhooks(Limits()), public_url="")
    await log.create(Create("s"))
    names = {watch.name for watch in log.watched()}
    assert {"groups", "group_timers", "group_lookups", "dead_letters"} <= names
    assert {"subscriptions", "subscription_timers", "subscription_lookups"} <= names
    await groups.put("s", "g", GroupConfig())
    group = await groups.get("s", "g")
    flaky = Flaky()
    monkeypatch.setattr(group, "_prepare", flaky)
    group.kick()
    await until(lambda: "groups" in log.problems())
    groups.stop()
    await subscriptions.stop()


async def test_keys_at_an_address_that_answers_nonsense_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = KeysAtUrl("https://example.invalid/keys")
    monkeypatch.setattr("headwater.http.access.key_sets._fetch", Flaky())
    keys.refresh_if_due()
    await until(lambda: keys.watch.is_failing)
    await keys.stop()


def test_every_task_and_timer_is_accounted_for() -> None:
    """A new one is supervised, or ends with a request; then it is added here."""
    root = Path(background.__file__).parents[1]
    marks = ("create_task(", "call_later(", "ensure_future(", "Thread(", ".call_at(")
    found = {
        path.relative_to(root).as_posix()
        for package in ("service", "responses", "http", "store")
        for path in (root / package).rglob("*.py")
        if any(mark in path.read_text() for mark in marks)
    }
    assert found == SUPERVISED | ENDS_WITH_A_REQUEST | ENDS_WITH_THE_PROCESS


SUPERVISED = {
    "http/access/key_sets.py",
    "http/observe/figures.py",
    "http/feeds/heartbeat.py",
    "http/nodes/hinting.py",
    "http/nodes/relaying.py",
    "http/wire/server.py",
    "responses/responses.py",
    "responses/transfer.py",
    "service/background.py",
    "service/commit_thread.py",
    "service/feeds.py",
    "service/groups/dead_letters.py",
    "service/groups/group.py",
    "service/live/changes.py",
    "service/live/stream.py",
    "service/subscriptions/subscription.py",
    "service/timers.py",
    "service/writer.py",
    "store/postgresql/membership.py",
}
ENDS_WITH_A_REQUEST = {
    "http/resources/about.py",
    "http/wire/file_sending.py",
    "http/wire/handshakes.py",
    "http/nodes/leases.py",
    "http/feeds/long_poll.py",
    "http/resources/group_members.py",
    "http/wire/outcomes.py",
    "http/reads.py",
    "http/nodes/passing.py",
    "http/resources/responses.py",
    "http/nodes/liveness.py",
    "service/history/fetching.py",
    "service/polls.py",
    "service/reordering.py",
    "service/shared_quotas.py",
    "store/history/abandonable_calls.py",
}
ENDS_WITH_THE_PROCESS = {
    "http/observe/tracing.py",
    "service/history/archiving.py",
}
