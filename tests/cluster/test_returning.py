"""Shards that go to another node while something is looked up, and those that come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.core.decisions import Create
from headwater.core.errors import OwnedElsewhere
from headwater.core.groups.commands import Ack
from headwater.core.groups.config import GroupConfig
from headwater.core.limits import Limits
from headwater.core.subscriptions.state import (
    StreamTail,
    SubscriptionRecord,
    SubscriptionState,
)
from headwater.http.answers import json_answer
from headwater.http.feeds.follow import FollowResource
from headwater.http.feeds.heartbeat import Heartbeat
from headwater.http.messages import EventStream, Payload, Request, Response
from headwater.http.nodes.hinting import Telling
from headwater.http.nodes.relaying import FeedResource
from headwater.http.nodes.subscription_list import SubscriptionList
from headwater.http.resources.group_members import Fetch
from headwater.http.resources.streams import StreamResource
from headwater.service.feeds import Feeds
from headwater.service.groups.operations import Groups
from headwater.service.housekeeping import Trimming
from headwater.service.log import Log
from headwater.service.replies import Reply
from headwater.service.subscriptions.hints import Hint
from headwater.service.subscriptions.operations import Subscriptions
from headwater.service.subscriptions.subscription import Subscription
from headwater.service.subscriptions.survey import Survey
from headwater.store.memory.engine import MemoryEngine
from tests.subscriptions.model import pull_config
from tests.support.logs import BYTES, ManualClock, data, fork, until
from tests.support.members import fetch

PATH = "a/b"


@pytest.fixture
async def log() -> AsyncIterator[Log]:
    """One that has to look everything up."""
    log = await Log.start(MemoryEngine(), Limits(hot_bytes_per_stream_max=0))
    yield log
    await log.stop()


@pytest.fixture
async def grown(log: Log) -> str:
    await log.create(Create(PATH, BYTES))
    for body in (b"one", b"two"):
        await log.append(PATH, data(body))
    return PATH


# ── Readers ──────────────────────────────────────────────────────────────────────────────────


class Sink:
    """A connection that takes whatever is sent."""

    ended_here = cut_off = paused = False

    def __init__(self) -> None:
        self.sent = b""
        self.is_over = False

    def send(self, payload: Payload) -> bool:
        self.sent += payload.framed
        return True

    async def drained(self) -> bool:
        return True

    def end(self) -> None:
        self.is_over = True


@pytest.fixture
def goes_meanwhile(log: Log, grown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the first read looks something up, another node gets the shard, and gives it back."""

    async def gone(name: str, *arguments: object) -> object:
        for each, original in originals.items():
            monkeypatch.setattr(log, each, original)
        chunk = await originals[name](*arguments)
        entry = log.ready(PATH)
        assert entry is not None
        await log.release({entry.shard})
        return chunk

    originals = {name: getattr(log, name) for name in ("read_cold", "read_pieces")}
    for name in originals:
        monkeypatch.setattr(log, name, lambda *them, name=name: gone(name, *them))


@pytest.mark.usefixtures("goes_meanwhile")
async def test_a_reader_of_a_stream_that_went_is_sent_after_it(log: Log) -> None:
    """It must not be left with a feed that nothing comes on."""
    feeds, groups = Feeds(log), await Groups.start(log)
    streams = StreamResource(log, groups, feeds, Heartbeat(60), 30)
    answer = streams.get(Request("GET", b"/", b"offset=-1&live=sse", {}), PATH)
    assert not isinstance(answer, Response | EventStream)
    with pytest.raises(OwnedElsewhere):
        await answer
    groups.stop()


@pytest.mark.usefixtures("goes_meanwhile")
async def test_a_node_that_follows_a_stream_that_went_is_told(log: Log) -> None:
    resource = FeedResource(log, Feeds(log), Heartbeat(60), Telling(log))
    answer = await resource.get(Request("GET", b"/", b"stream=a%2Fb&live=true&after=-1", {}))
    assert isinstance(answer, Response)
    assert answer.status == 503


@pytest.mark.usefixtures("goes_meanwhile")
async def test_one_of_several_followed_streams_went(log: Log) -> None:
    """It is looked for again, on whichever node it is."""
    resource = FollowResource(log, Feeds(log), Heartbeat(60))
    body = b'{"streams":{"a/b":"-1"}}'
    answer = await resource.run(Request("POST", b"/", b"", {}, body))
    sink = Sink()
    answer.start(sink)
    await log.append(PATH, data(b"three"))
    await until(lambda: b"dGhyZWU" in sink.sent or sink.is_over)
    assert not sink.is_over
    answer.stopped()


# ── Groups ───────────────────────────────────────────────────────────────────────────────────


async def test_the_lag_of_a_group_goes_with_it(log: Log, grown: str) -> None:
    groups = await Groups.start(log)
    group, _ = await groups.put(PATH, "g", GroupConfig(start="first"))
    assert groups.lag_survey.look() == 2
    await log.release({group.entry.shard})
    # What was seen counts until everything was seen once more.
    assert [groups.lag_survey.look() for _ in range(3)][-1] == 0
    groups.stop()


async def test_a_fetch_that_acknowledges_says_so_where_it_did(log: Log, grown: str) -> None:
    groups = await Groups.start(log)
    group, _ = await groups.put(PATH, "g", GroupConfig(start="first"))
    held = [receipt for receipt, _ in await fetch(groups, PATH, "g", 2)]
    answer: Reply[bytes] = Reply()
    Fetch(group, "ann", 1, 60_000, group.settle(Ack(held)), answer).start()
    await log.release({group.entry.shard})
    body = await asyncio.wait_for(answer, 60)
    assert body == b'{"messages":[],"lag":0,"acked":2,"stale":[]}'
    groups.stop()


async def test_a_fetch_that_only_waits_is_sent_after_its_group(log: Log, grown: str) -> None:
    groups = await Groups.start(log)
    group, _ = await groups.put(PATH, "g", GroupConfig(start="latest"))
    answer: Reply[bytes] = Reply()
    Fetch(group, "ann", 1, 60_000, None, answer).start()
    await log.release({group.entry.shard})
    with pytest.raises(OwnedElsewhere):
        await asyncio.wait_for(answer, 60)
    groups.stop()


# ── Subscriptions ────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def subscriptions(log: Log) -> AsyncIterator[Subscriptions]:
    subscriptions = await Subscriptions.start(log)
    yield subscriptions
    await subscriptions.stop()


async def test_a_stream_that_was_made_elsewhere_and_grows_here(
    log: Log, subscriptions: Subscriptions
) -> None:
    """It grows before this node has found out that it belongs to a subscription."""
    config = pull_config(pattern="a/*", wake_stream="wakes")
    subscription, _ = await subscriptions.put("s", config, "")
    log.writer.observers.remove(subscriptions._observe)
    await log.create(Create(PATH, BYTES))
    log.writer.observers.append(subscriptions._observe)
    await log.append(PATH, data(b"one"))
    assert PATH not in subscription.state.links
    # A hint of the node that made it comes late.
    await subscriptions.look_at_paths({PATH})
    assert subscription.state.links[PATH].tail == 3
    await log.append(PATH, data(b"two"))
    assert subscription.state.links[PATH].tail == 6


async def test_a_stream_that_was_replaced_elsewhere_and_grows_here(
    log: Log, subscriptions: Subscriptions, grown: str
) -> None:
    config = pull_config(pattern="a/*", wake_stream="wakes")
    subscription, _ = await subscriptions.put("s", config, "")
    log.writer.observers.remove(subscriptions._observe)
    await log.delete(PATH)
    await log.create(Create(PATH, BYTES))
    log.writer.observers.append(subscriptions._observe)
    await log.append(PATH, data(b"1"))
    await subscriptions.look_at_paths({PATH})
    await log.append(PATH, data(b"2"))
    assert subscription.state.links[PATH].tail == 2


async def test_a_subscription_that_came_with_its_shard_while_it_was_made(
    log: Log, subscriptions: Subscriptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = pull_config(pattern="a/*", wake_stream="wakes")
    original = subscriptions.survey
    came: list[Subscription] = []

    async def survey(prefixes: Iterable[str], paths: Iterable[str]) -> dict[str, StreamTail]:
        monkeypatch.setattr(subscriptions, "survey", original)
        record = SubscriptionRecord(77, "s", 0, "")
        came.append(
            subscriptions._add(Subscription(subscriptions, SubscriptionState(record, config)))
        )
        return await original(prefixes, paths)

    monkeypatch.setattr(subscriptions, "survey", survey)
    subscription, is_new = await subscriptions.put("s", config, "")
    assert [subscription] == came
    assert not is_new
    assert [one.name for one in subscriptions.list("", "", 10)] == ["s"]


async def test_a_stream_that_was_made_here_and_deleted_elsewhere_during_a_survey(
    log: Log, subscriptions: Subscriptions, grown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hearing = SimpleNamespace(surveys=set())
    survey = Survey(log, cast("Any", hearing))
    tails = log.engine.streams.tails

    def change(*page: Any) -> list[StreamTail]:
        """On the thread that reads, after the page was read."""
        monkeypatch.setattr(log.engine.streams, "tails", tails)
        found = tails(*page)
        asyncio.run_coroutine_threadsafe(made(), loop).result(60)
        return found

    async def made() -> None:
        await log.create(Create("a/new", BYTES))
        # Another node has it now, and says that it is gone.
        log.writer.observers.remove(survey._note)
        await log.delete("a/new")
        survey.heard([Hint("a/new")])
        log.writer.observers.append(survey._note)

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(log.engine.streams, "tails", change)
    assert (await survey.run(["a/"], [])).keys() == {PATH}


async def test_a_list_covers_no_shard_that_came_while_it_was_made() -> None:
    node = SimpleNamespace(shards=frozenset({1, 2}), others=list)
    node.seen = SimpleNamespace(shards=[SimpleNamespace(id=shard) for shard in (1, 2, 3)])
    answers = 0

    async def settled() -> None:
        """What this node has is loaded."""

    async def answer(request: Request) -> Response:
        nonlocal answers
        answers += 1
        node.shards = frozenset({1, 2, 3})
        return json_answer({"subscriptions": [{"id": f"answer {answers}"}], "next": None})

    async def nothing(*_: object) -> None:
        """Nobody else is asked."""

    node.settled, node.change, node.refresh = settled, nothing, nothing
    made = SubscriptionList(cast("Any", node), answer, cast("Any", nothing), 60)
    found = await made.answer(Request("GET", b"/", b"", {}))
    assert isinstance(found, Response)
    assert isinstance(found.body, bytes)
    assert b"answer 2" in found.body


# ── Housekeeping ─────────────────────────────────────────────────────────────────────────────


async def test_what_another_node_has_by_now_does_not_stop_the_collection(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def elsewhere(path: str) -> bool:
        raise OwnedElsewhere(3)

    await log.collection.stop()
    monkeypatch.setattr(log, "remove_orphan", elsewhere)
    log.orphans[PATH] = None
    await log.collection.round()
    assert not log.orphans


async def test_what_another_node_left_is_collected(
    log: Log, grown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # More forks of forks than go at once.
    monkeypatch.setattr("headwater.service.forks._ANCESTORS_MAX", 1)
    await log.collection.stop()
    await log.create(fork("fork", PATH))
    await log.create(fork("fork of fork", "fork"))
    await log.delete(PATH)
    await log.delete("fork")
    await log.collection.round()
    await log.delete("fork of fork")
    # The node that knew of it is gone.
    log.orphans.clear()
    await log.collection.round()
    assert [one.path for one in log.engine.streams.soft_deleted(0, 10)] == [PATH, "fork"]
    await log.collection.gained({3})
    await log.collection.round()
    assert log.engine.streams.soft_deleted(0, 10) == []


async def test_what_is_about_to_go_is_trimmed_soon_if_it_stays(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def trim(path: str) -> bool:
        trimmed.append(path)
        if len(trimmed) == 1:
            raise OwnedElsewhere(3)
        return False

    trimmed: list[str] = []
    trimming, clock = Trimming(log), ManualClock()
    monkeypatch.setattr(log, "clock", clock)
    monkeypatch.setattr(log, "trim", trim)
    monkeypatch.setattr(log.engine.streams, "trimmable", lambda now_ms, most: [PATH])
    await trimming.round()
    clock.now_ms += 1_000
    await trimming.round()
    assert trimmed == [PATH, PATH]
    assert not trimming.failures
    await trimming.stop()


async def test_what_is_about_to_go_does_not_stop_the_expiry(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def expire(path: str) -> bool:
        raise OwnedElsewhere(3)

    monkeypatch.setattr(log, "expire", expire)
    monkeypatch.setattr(log.engine.streams, "expired", lambda now_ms, most: [PATH])
    assert await log.expiry.round() > 0
    assert not log.expiry.failures
