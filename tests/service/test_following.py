"""A followed stream knows whether it is still there, and why it is not."""

from __future__ import annotations

import asyncio

import pytest

from headwater.core.content_types import JSON
from headwater.core.decisions import Append, Create
from headwater.core.errors import StreamGone, StreamNotFound
from headwater.core.lineage import ForkRequest
from headwater.service.chunks import Chunk
from headwater.service.feeds import Feeds
from headwater.service.following import FollowedStream, Update
from headwater.service.log import Log


async def follow(log: Log, path: str) -> FollowedStream:
    entry = await log.entry(path)
    return FollowedStream(log, entry, log.view(entry))


async def test_a_stream_of_the_same_name_is_another_stream(log: Log) -> None:
    await log.create(Create("s", JSON, b"[1]"))
    stream = await follow(log, "s")
    assert stream.view is not None
    await log.delete("s")
    assert stream.view is None
    await log.create(Create("s", JSON, b"[2]"))
    assert stream.view is None
    assert isinstance(stream.missing(), StreamNotFound)
    with pytest.raises(StreamNotFound):
        await stream.read(0)


async def test_a_stream_that_forks_still_read_is_gone(log: Log) -> None:
    await log.create(Create("s", JSON, b"[1]"))
    stream = await follow(log, "s")
    await log.create(Create("f", fork=ForkRequest("s")))
    await log.delete("s")
    assert stream.view is None
    with pytest.raises(StreamGone):
        await stream.read(0)


async def test_catching_up_ends_at_the_tail(log: Log) -> None:
    await log.create(Create("s", JSON))
    for number in range(3):
        await log.append("s", Append(b"%d" % number, JSON))
    stream = await follow(log, "s")
    chunks = [chunk async for chunk in stream.catch_up(0)]
    assert b"".join(body for chunk in chunks for body in chunk.bodies) == b"0,1,2,"
    assert chunks[-1].up_to_date
    (at_tail,) = [chunk async for chunk in stream.catch_up(chunks[-1].end)]
    assert at_tail.is_empty


class Poll:
    """Someone who waits, and what became of that."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.timer: asyncio.TimerHandle | None = None
        self.outcome: Update | Chunk | Exception | None = None

    def take(self, update: Update) -> None:
        self.outcome = update

    def nothing_new(self, at_tail: Chunk) -> None:
        self.outcome = at_tail

    def failed(self, error: Exception) -> None:
        self.outcome = error


async def test_polls_of_one_position_share_one_update(log: Log) -> None:
    await log.create(Create("s", JSON))
    entry = await log.entry("s")
    feeds = Feeds(log)
    polls = [Poll(0) for _ in range(3)]
    for poll in polls:
        feeds.of(entry, log.view(entry)).polls.add(poll, 60)
    assert feeds.readers == {"long-poll": 3, "sse": 0}
    await log.append("s", Append(b"1", JSON))
    assert isinstance(polls[0].outcome, Update)
    assert all(poll.outcome is polls[0].outcome for poll in polls)
    assert feeds.readers_of(entry) == 0
    assert not entry.listeners


async def test_polls_learn_why_a_stream_is_gone(log: Log) -> None:
    await log.create(Create("s", JSON))
    entry = await log.entry("s")
    poll = Poll(0)
    Feeds(log).of(entry, log.view(entry)).polls.add(poll, 60)
    await log.delete("s")
    assert isinstance(poll.outcome, StreamNotFound)


async def test_polls_are_answered_whatever_goes_wrong_with_the_read(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log.create(Create("s", JSON))
    entry = await log.entry("s")
    poll = Poll(0)
    feed = Feeds(log).of(entry, log.view(entry))
    feed.polls.add(poll, 60)

    async def fail(self: FollowedStream, position: int, max_bytes: int | None = None) -> Chunk:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(FollowedStream, "chunk_at", lambda *arguments: None)
    monkeypatch.setattr(FollowedStream, "read", fail)
    await log.append("s", Append(b"1", JSON))
    await log.append("s", Append(b"2", JSON))
    assert isinstance(poll.outcome, RuntimeError)
