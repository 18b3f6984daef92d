"""Subscriptions in one process: commits that fail, races, restarts, and nobody in the way.

Webhooks are played by the test, which decides when and how each request is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import chain
from typing import Any

import msgspec
import pytest

from headwater.core.decisions import Create
from headwater.core.errors import StorageUnavailable, TooBusy
from headwater.core.limits import Limits
from headwater.core.offsets import Anchor
from headwater.core.subscriptions.config import SubscriptionConfig
from headwater.core.subscriptions.decisions import Ack
from headwater.core.subscriptions.errors import Fenced, SubscriptionNotFound
from headwater.core.subscriptions.state import Phase
from headwater.service.log import Log
from headwater.service.subscriptions.operations import Subscriptions
from headwater.service.subscriptions.subscription import Subscription
from headwater.service.subscriptions.webhooks import Outcome, Webhooks
from headwater.store.engine import Engine
from headwater.store.memory.engine import MemoryEngine
from tests.subscriptions.model import pull_config, webhook_config
from tests.support.faulty_engine import Fault, FaultyEngine
from tests.support.logs import BYTES, ManualClock, begin, data, outcome, turns, until
from tests.support.recounts import check_subscriptions

TAKEN, DONE, FAILED = Outcome(True), Outcome(True, done=True), Outcome(False, problem="down")


class PlayedWebhooks(Webhooks):
    """Requests wait here until the test answers them."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.open: list[tuple[dict[str, Any], asyncio.Future[Outcome]]] = []
        self.most = 0

    async def check(self, url: str) -> None:
        pass

    async def post(self, url: str, body: bytes, signature: str) -> Outcome:
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        request = msgspec.json.decode(body), future
        self.open.append(request)
        self.most = max(self.most, len(self.open))
        try:
            return await future
        finally:
            self.open.remove(request)

    async def next(self) -> dict[str, Any]:
        """The oldest request that is not answered."""
        await until(lambda: bool(self.open))
        return self.open[0][0]

    async def answer(self, outcome: Outcome) -> dict[str, Any]:
        body = await self.next()
        self.open[0][1].set_result(outcome)
        await turns(3)
        return body


class World:
    """A log, its subscriptions, and a restart of both."""

    def __init__(self, engine: FaultyEngine, clock: ManualClock, limits: Limits) -> None:
        self.engine = engine
        self.clock = clock
        self.limits = limits
        self.log: Log
        self.hooks: PlayedWebhooks
        self.subscriptions: Subscriptions

    async def start(self) -> None:
        self.log = await Log.start(self.engine, self.limits, clock=self.clock)
        self.hooks = PlayedWebhooks(self.limits)
        self.subscriptions = await Subscriptions.start(self.log, self.hooks)

    async def stop(self) -> None:
        self.engine.open_all_gates()
        check_subscriptions(self.subscriptions)
        await self.subscriptions.stop()
        await self.log.stop()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def create(self, path: str, body: bytes = b"") -> None:
        await self.log.create(Create(path, BYTES, body=body))

    async def append(self, path: str, body: bytes = b"hello") -> str:
        return (await self.log.append(path, data(body))).next_offset

    async def subscribe(
        self, name: str = "s", config: SubscriptionConfig | None = None
    ) -> Subscription:
        config = config or webhook_config()
        return (await self.subscriptions.put(name, config, "http://h"))[0]

    async def callback(self, body: dict[str, Any], *acks: Ack, done: bool = False) -> bool:
        return await self.subscriptions.settle(
            self.subscriptions.get(body["subscription_id"]),
            body["callback_token"],
            body["generation"],
            body["wake_id"],
            acks,
            done=done,
        )

    def pass_time(self, ms: int) -> None:
        """The clock moves, and whoever set an alarm is told."""
        self.clock.now_ms += ms
        self.subscriptions.timers._run()


class NoClosing:
    """Memory outlives the log, as a disk would."""

    def __init__(self, inner: Engine) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def close(self) -> None:
        pass


Build = Callable[..., Awaitable[World]]


@pytest.fixture
async def build() -> AsyncIterator[Build]:
    built: list[World] = []

    async def start(**limits: int) -> World:
        inner: Any = NoClosing(MemoryEngine())
        world = World(FaultyEngine(inner), ManualClock(), Limits(**limits))
        await world.start()
        built.append(world)
        return world

    yield start
    for world in built:
        await world.stop()


@pytest.fixture
async def world(build: Build) -> World:
    return await build()


def acks_of(body: dict[str, Any]) -> list[Ack]:
    return [Ack(stream["path"], stream["tail_offset"]) for stream in body["streams"]]


# ── Nobody in the way ────────────────────────────────────────────────────────────────────────


async def test_without_subscriptions_appends_are_not_looked_at(world: World) -> None:
    await world.create("in/a", b"x")
    await world.append("in/a")
    assert world.log.ready("in/a").watch is None  # type: ignore[union-attr]


async def test_a_stream_is_matched_once_and_not_with_every_append(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.subscribe()
    await world.create("in/a")
    await world.create("elsewhere")
    looked: list[str] = []
    look = Subscriptions._watch

    def noted(self: Subscriptions, path: str) -> object:
        looked.append(path)
        return look(self, path)

    monkeypatch.setattr(Subscriptions, "_watch", noted)
    for _ in range(5):
        await world.append("in/a")
        await world.append("elsewhere")
    assert sorted(looked) == ["elsewhere", "in/a"]


async def test_a_webhook_that_never_answers_holds_up_no_append(world: World) -> None:
    await world.subscribe()
    await world.create("in/a")
    for _ in range(100):
        await world.append("in/a")
        await world.create(f"in/{_}", b"x")
    await world.hooks.next()
    assert (len(world.hooks.open), world.hooks.most) == (1, 1)


async def test_only_so_many_requests_at_a_time(build: Build) -> None:
    world = await build(webhooks_at_once_max=2)
    for number in range(5):
        await world.subscribe(f"s{number}")
    await world.create("in/a", b"x")
    await until(lambda: len(world.hooks.open) == 2)
    seen = set()
    for _ in range(5):
        seen.add((await world.hooks.answer(DONE))["subscription_id"])
    assert (len(seen), world.hooks.most) == (5, 2)


async def test_streams_that_are_not_in_memory_wake_too(build: Build) -> None:
    world = await build(streams_in_memory_max=16)
    for number in range(60):
        await world.create(f"in/{number}")
    await world.subscribe()
    for number in range(60):
        await world.append(f"in/{number}")
        body = await world.hooks.answer(DONE)
        assert [s["path"] for s in body["streams"] if s["has_pending"]] == [f"in/{number}"]


async def test_more_streams_than_a_wake_shows_come_with_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.service.subscriptions.subscription.STREAMS_SHOWN_MAX", 2)
    await world.subscribe()
    for number in range(5):
        await world.create(f"in/{number}", b"x")
    first = await world.hooks.answer(FAILED)
    world.pass_time(2_000)
    bodies = [await world.hooks.answer(DONE) for _ in range(3)]
    assert len(first["streams"]) <= 2
    shown = [[s["path"] for s in body["streams"] if s["has_pending"]] for body in bodies]
    assert sorted(chain.from_iterable(shown)) == [f"in/{number}" for number in range(5)]


# ── Commits that fail ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_wake_that_is_not_committed_is_not_announced(world: World, fault: Fault) -> None:
    await world.subscribe()
    await world.create("in/a", b"x")
    body = await world.hooks.answer(DONE)
    subscription = world.subscriptions.get("s")
    await until(lambda: subscription.state.wake.phase is Phase.IDLE)
    await until(lambda: subscription.pending is None)
    world.engine.commit_gate.shut()
    appended = begin(world.append("in/a"))
    await world.engine.commit_gate.arrival()
    # The append at the gate is the next commit, and the wake that follows from it the one after.
    of_the_wake = world.engine.attempts + 2
    world.engine.plan = lambda attempt: fault if attempt == of_the_wake else None
    world.engine.commit_gate.open()
    await appended
    again = await world.hooks.next()
    assert again["generation"] == body["generation"] + 1
    assert world.engine.attempts > len(world.engine.commits) or fault is Fault.AFTER
    (stored,) = world.engine.inner.subscriptions.load()
    assert stored.wake.wake_id == again["wake_id"]


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_callback_that_cannot_be_committed_is_not_answered_with_yes(
    world: World, fault: Fault
) -> None:
    await world.subscribe()
    await world.create("in/a", b"x")
    body = await world.hooks.answer(TAKEN)
    subscription = world.subscriptions.get("s")
    await until(lambda: subscription.state.wake.phase is Phase.LEASED)
    await until(lambda: subscription.pending is None)
    world.engine.fail_next(fault)
    assert await outcome(world.callback(body, *acks_of(body), done=True)) is StorageUnavailable
    await until(lambda: not subscription.lost)
    (stored,) = world.engine.inner.subscriptions.load()
    assert subscription.state.wake.generation == stored.wake.generation
    if fault is Fault.BEFORE:
        assert await world.callback(body, *acks_of(body), done=True) is False
    else:
        assert await outcome(world.callback(body, done=True)) is Fenced
        assert not subscription.state.pending


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_creation_that_fails(world: World, fault: Fault) -> None:
    await world.create("in/a", b"x")
    world.engine.fail_next(fault)
    assert await outcome(world.subscribe()) is StorageUnavailable
    await until(lambda: not world.subscriptions._reloads)
    again = await world.subscribe()
    await world.append("in/a")
    assert (await world.hooks.next())["generation"] == again.state.wake.generation == 1


async def test_a_deletion_that_fails_leaves_it_at_work(world: World) -> None:
    await world.subscribe()
    world.engine.fail_next(Fault.BEFORE)
    assert await outcome(world.subscriptions.delete("s")) is StorageUnavailable
    await until(lambda: not world.subscriptions.get("s").lost)
    await world.create("in/a", b"x")
    await world.hooks.answer(DONE)
    await world.subscriptions.delete("s")
    with pytest.raises(SubscriptionNotFound):
        world.subscriptions.get("s")
    assert world.engine.inner.subscriptions.load() == []


async def test_a_state_that_cannot_be_read_again_is_tried_until_it_can(world: World) -> None:
    subscription = await world.subscribe(config=webhook_config(streams=("x",)))
    world.engine.fail_next(Fault.BEFORE)
    world.engine.fail_reads = StorageUnavailable()
    assert await outcome(world.subscriptions.unlink("s", "x")) is StorageUnavailable
    await until(lambda: not world.subscriptions._reloads)
    assert await outcome(world.subscriptions.unlink("s", "x")) is StorageUnavailable
    assert await outcome(world.subscribe()) is StorageUnavailable
    world.engine.fail_reads = None
    world.pass_time(1_000)
    await until(lambda: not subscription.lost)
    assert subscription.state.links["x"].explicit
    await world.subscriptions.unlink("s", "x")


async def test_a_full_queue_leaves_no_trace(build: Build) -> None:
    world = await build(queue_bytes_max=2_000, body_bytes_max=1_000)
    await world.subscribe("there")
    world.engine.commit_gate.shut()
    held = begin(world.create("held", b"x" * 1_000))
    await world.engine.commit_gate.arrival()
    more = [begin(world.create(f"held-{n}", b"x" * 300)) for n in range(3)]
    await turns(50)
    assert await outcome(world.subscriptions.delete("there")) is TooBusy
    assert await outcome(world.subscribe("new")) is TooBusy
    world.engine.open_all_gates()
    await asyncio.gather(held, *more, return_exceptions=True)
    assert [each.name for each in world.subscriptions.list("", "", 9)] == ["there"]
    await world.subscriptions.delete("there")


async def test_what_nobody_foresaw_ends_no_wakes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Subscription) -> str:
        raise ZeroDivisionError

    subscription = await world.subscribe()
    with monkeypatch.context() as patch:
        patch.setattr(Subscription, "_callback_url", broken)
        await world.create("in/a", b"x")
        await until(lambda: subscription._alarm.due_ms is not None)
    world.pass_time(1_000)
    assert (await world.hooks.next())["generation"] == 1


# ── Races ────────────────────────────────────────────────────────────────────────────────────


async def test_what_streams_do_while_a_subscription_is_made(world: World) -> None:
    for path in ("in/grows", "in/goes", "in/renewed", "in/rests"):
        await world.create(path, b"x")
    gate = world.engine.gate("tails")
    gate.shut()
    made = begin(world.subscribe())
    await gate.arrival()
    await world.append("in/grows")
    await world.log.delete("in/goes")
    await world.log.delete("in/renewed")
    await world.create("in/renewed", b"y")
    await world.create("in/new", b"x")
    gate.open()
    subscription = await made
    assert set(subscription.state.links) == {"in/grows", "in/renewed", "in/rests", "in/new"}
    assert not subscription.state.pending
    await world.append("in/new")
    assert (await world.hooks.next())["streams"][0]["path"] == "in/new"


async def test_two_who_create_the_same(world: World) -> None:
    made = await asyncio.gather(
        *(world.subscriptions.put("s", webhook_config(), "http://h") for _ in range(5))
    )
    assert sorted(new for _, new in made) == [False] * 4 + [True]
    assert len({subscription.state.record.id for subscription, _ in made}) == 1


async def test_created_again_while_it_is_deleted(world: World) -> None:
    first = await world.subscribe()
    deleted = begin(world.subscriptions.delete("s"))
    await turns(1)
    second = await world.subscribe()
    await deleted
    assert first is not second
    assert world.subscriptions.get("s") is second


async def test_a_stream_that_is_deleted_while_its_wake_is_under_way(world: World) -> None:
    subscription = await world.subscribe()
    await world.create("in/a", b"x")
    body = await world.hooks.answer(TAKEN)
    await world.log.delete("in/a")
    assert not subscription.state.pending
    assert await world.callback(body, done=True) is False


async def test_a_deleted_subscription_sends_nothing_more(world: World) -> None:
    await world.subscribe()
    await world.create("in/a", b"x")
    body = await world.hooks.next()
    await world.subscriptions.delete("s")
    assert world.hooks.open == []
    await world.append("in/a")
    await turns(50)
    assert world.hooks.open == []
    with pytest.raises(SubscriptionNotFound):
        await world.callback(body, done=True)


async def test_a_callback_during_the_request_begins_the_next_wake_after_it(world: World) -> None:
    await world.subscribe()
    await world.create("in/a", b"x")
    first = await world.hooks.next()
    assert await world.callback(first, done=True) is True
    await turns(50)
    assert [body["generation"] for body, _ in world.hooks.open] == [1]
    await world.hooks.answer(DONE)
    assert (await world.hooks.next())["generation"] == 2


# ── Time ─────────────────────────────────────────────────────────────────────────────────────


async def test_the_retries_of_a_receiver_that_is_down(world: World) -> None:
    subscription = await world.subscribe()
    await world.create("in/a", b"x")
    waits = []
    for _ in range(9):
        first = await world.hooks.answer(FAILED)
        await until(lambda: subscription.state.wake.until_ms > world.clock.now_ms)
        waits.append(subscription.state.wake.until_ms - world.clock.now_ms)
        await turns(20)
        assert world.hooks.open == []
        world.pass_time(waits[-1])
        assert (await world.hooks.next())["wake_id"] == first["wake_id"]
    middles = [1, 2, 4, 8, 16, 32, 60, 60, 60]
    pairs = zip(waits, middles, strict=True)
    assert all(800 * middle <= wait <= 1200 * middle for wait, middle in pairs)


async def test_a_lease_that_runs_out_wakes_again(world: World) -> None:
    subscription = await world.subscribe()
    await world.create("in/a", b"x")
    body = await world.hooks.answer(TAKEN)
    await until(lambda: subscription.state.wake.phase is Phase.LEASED)
    world.pass_time(5_000)
    again = await world.hooks.next()
    assert again["generation"] == 2
    with pytest.raises(Fenced):
        await world.callback(body, done=True)


async def test_a_lease_is_over_even_if_no_timer_said_so(world: World) -> None:
    subscription = await world.subscribe()
    await world.create("in/a", b"x")
    body = await world.hooks.answer(TAKEN)
    await until(lambda: subscription.state.wake.phase is Phase.LEASED)
    world.clock.now_ms += 5_000
    with pytest.raises(Fenced):
        await world.callback(body, *acks_of(body), done=True)
    assert subscription.state.pending


# ── Restarts ─────────────────────────────────────────────────────────────────────────────────


async def test_what_was_pending_wakes_after_a_restart(world: World) -> None:
    await world.create("in/old", b"x")
    await world.subscribe()
    await world.create("in/new", b"x")
    await world.append("in/old")
    before = await world.hooks.next()
    await world.restart()
    after = await world.hooks.next()
    assert (after["wake_id"], after["generation"]) == (before["wake_id"], 1)
    assert after["callback_token"] == before["callback_token"]
    offsets = {s["path"]: s["acked_offset"] == "-1" for s in after["streams"]}
    assert offsets == {"in/new": True, "in/old": False}


async def test_what_came_without_the_subscriptions_wakes_too(world: World) -> None:
    """As after a crash between the commit of an append and the commit of its wake."""
    await world.subscribe()
    await world.create("in/a")
    await world.subscriptions.stop()
    await world.append("in/a")
    await world.subscriptions.stop()
    world.subscriptions = await Subscriptions.start(world.log, world.hooks)
    assert (await world.hooks.next())["generation"] == 1


async def test_a_start_that_cannot_read_them_serves_streams_and_tries_again(world: World) -> None:
    await world.subscribe()
    await world.create("in/a")
    await world.stop()
    readable = world.engine.inner.subscriptions.load
    world.engine.inner.subscriptions.load = unreadable  # type: ignore[method-assign]
    await world.start()
    await world.append("in/a")
    with pytest.raises(StorageUnavailable):
        world.subscriptions.get("s")
    assert await outcome(world.subscribe()) is StorageUnavailable
    world.engine.inner.subscriptions.load = readable  # type: ignore[method-assign]
    world.pass_time(1_000)
    assert (await world.hooks.next())["generation"] == 1


def unreadable(subscription_id: int | None = None, shards: object = None) -> Any:
    raise StorageUnavailable


async def test_leases_schedules_and_keys_survive(world: World) -> None:
    leased, failing = await world.subscribe("leased"), await world.subscribe("failing")
    await world.create("in/a", b"x")
    body = {}
    for _ in range(2):
        request = await world.hooks.next()
        name = request["subscription_id"]
        body[name] = await world.hooks.answer(TAKEN if name == "leased" else FAILED)
    await until(lambda: leased.state.wake.phase is Phase.LEASED and failing.state.wake.attempts > 0)
    keys = await world.subscriptions.keyring.get()
    wakes = leased.state.wake, failing.state.wake
    await world.restart()
    again = [world.subscriptions.get(name).state.wake for name in ("leased", "failing")]
    assert tuple(again) == wakes
    assert (await world.subscriptions.keyring.get()).signing[0].kid == keys.signing[0].kid
    await turns(50)
    assert world.hooks.open == []
    assert await world.callback(body["leased"], *acks_of(body["leased"]), done=True) is False
    world.pass_time(2_000)
    assert (await world.hooks.next())["wake_id"] == body["failing"]["wake_id"]


async def test_acknowledged_offsets_survive_and_an_earlier_stream_does_not_count(
    world: World,
) -> None:
    await world.subscribe(config=webhook_config(streams=("named",)))
    await world.create("in/a", b"x")
    await world.create("named", b"x")
    await world.hooks.answer(DONE)
    await until(lambda: not world.subscriptions.get("s").state.pending)
    await world.restart()
    assert not world.subscriptions.get("s").state.pending
    await world.log.delete("named")
    await world.log.delete("in/a")
    await world.create("named", b"x")
    await world.restart()
    state = world.subscriptions.get("s").state
    assert (set(state.pending), set(state.links)) == ({"named"}, {"named"})


# ── Wake streams ─────────────────────────────────────────────────────────────────────────────


async def events(world: World, path: str = "in/wakes") -> list[Any]:
    chunk = await world.log.read(path, Anchor.START)
    values: list[Any] = msgspec.json.decode(b"[" + b"".join(chunk.bodies).rstrip(b",") + b"]")
    return values


async def test_an_event_and_its_generation_are_committed_together(world: World) -> None:
    subscription = await world.subscribe(config=pull_config())
    await world.create("in/a", b"x")
    await until(lambda: subscription.state.wake.phase is Phase.OFFERED)
    await until(lambda: subscription.pending is None)
    (event,) = await events(world)
    assert event == {
        "type": "wake",
        "subscription_id": "s",
        "stream": "in/a",
        "generation": 1,
        "ts": world.clock.now_ms,
    }


async def test_a_wake_stream_that_is_gone_is_tried_again_and_claims_work_anyway(
    world: World,
) -> None:
    subscription = await world.subscribe(config=pull_config())
    await world.log.delete("in/wakes")
    await world.create("in/a", b"x")
    await until(lambda: subscription.state.wake.attempts == 1)
    claimed = await world.subscriptions.claim("s", "me")
    assert claimed.generation == 1
    await world.subscriptions.release(subscription, claimed.token, 1, claimed.wake_id)
    await until(lambda: subscription.state.wake.attempts == 1)
    await world.log.create(Create("in/wakes", "application/json"))
    world.pass_time(2_000)
    await until(lambda: subscription.state.wake.phase is Phase.OFFERED)
    await until(lambda: subscription.pending is None)
    assert [event["generation"] for event in await events(world)] == [2]


async def test_every_wake_has_its_event_even_if_it_is_claimed_at_once(world: World) -> None:
    await world.subscribe(config=pull_config())
    await world.create("in/a")
    for generation in range(1, 4):
        await world.append("in/a")
        claimed = await world.subscriptions.claim("s", "me")
        assert claimed.generation == generation
        acks = [Ack(info.path, info.tail_offset) for info in claimed.streams]
        subscription = world.subscriptions.pulled("s")
        await world.subscriptions.settle(
            subscription, claimed.token, generation, claimed.wake_id, acks, done=True
        )
    assert [event["generation"] for event in await events(world)] == [1, 2, 3]
