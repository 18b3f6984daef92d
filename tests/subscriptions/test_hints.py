"""What a node hears of the streams of others, and when it asks the database instead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.core.lineage import Lineage
from headwater.core.stream import Appended, Deleted
from headwater.core.subscriptions.config import SubscriptionConfig
from headwater.core.subscriptions.state import (
    Link,
    StreamTail,
    SubscriptionRecord,
    SubscriptionState,
)
from headwater.service.entries import Entry
from headwater.service.hot_tail import HeldBytes
from headwater.service.subscriptions.hints import Hearing, Hint, hints_of
from headwater.service.subscriptions.survey import Survey


class Timers:
    def __init__(self) -> None:
        self.set: list[tuple[int, Callable[[], None]]] = []

    def at(self, due_ms: int, work: Callable[[], None]) -> None:
        self.set.append((due_ms, work))

    def ring(self) -> None:
        due, self.set = self.set, []
        for _, work in due:
            work()


class Follower:
    over = False

    def __init__(self, *links: Link) -> None:
        record = SubscriptionRecord(1, "ears", 0, "")
        self.state = SubscriptionState(record, SubscriptionConfig("webhook", pattern="bells/**"))
        self.state.links = {link.path: link for link in links}

    def grew(self, link: Link, stream_id: int, tail: int) -> None:
        self.state.grew(link, stream_id, tail)


class Registry:
    """Counts what the database is asked."""

    def __init__(self, *followers: Follower) -> None:
        watch = SimpleNamespace(failed=lambda *_: None, succeeded=lambda: None)
        self.streams = SimpleNamespace(watch=lambda name: watch, clock=lambda: 0)
        self.timers = Timers()
        self.version = 1
        self.index = SimpleNamespace(concerned=lambda path: list(followers))
        self.looks: list[Set[str] | None] = []

    async def look_at_all(self) -> None:
        self.looks.append(None)

    async def look_at_paths(self, paths: Set[str]) -> None:
        self.looks.append(paths)


def known(path: str, stream_id: int, tail: int = 0) -> Link:
    return Link(path, False, Lineage(stream_id), tail, 0)


async def idle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def hearing_of(*followers: Follower) -> tuple[Hearing, Registry]:
    registry = Registry(*followers)
    return Hearing(cast("Any", registry)), registry


async def test_what_is_heard_of_a_known_stream_needs_no_question() -> None:
    follower = Follower(known("bells/a", 7))
    hearing, registry = hearing_of(follower)
    hearing.heard([Hint("bells/a", 7, 30)])
    hearing.heard([Hint("bells/a", 7, 10)])
    await idle()
    assert follower.state.links["bells/a"].tail == 30
    assert list(follower.state.pending) == ["bells/a"]
    assert registry.looks == []
    assert registry.timers.set == []


@pytest.mark.parametrize(
    "hint",
    [
        pytest.param(Hint("bells/a"), id="it came or went"),
        pytest.param(Hint("bells/a", 8, 10), id="another stream of that name"),
        pytest.param(Hint("bells/b", 9, 10), id="one that was not known"),
    ],
)
async def test_what_is_not_known_is_looked_up(hint: Hint) -> None:
    hearing, registry = hearing_of(Follower(known("bells/a", 7)))
    hearing.heard([hint])
    await idle()
    assert registry.looks == [{hint.path}]


async def test_a_stream_that_was_named_before_it_was_made_is_looked_up() -> None:
    """Neither has an id: not the link, nor what is said of a stream that has come."""
    hearing, registry = hearing_of(Follower(Link("bells/a", True, None, 0, 0)))
    hearing.heard([Hint("bells/a")])
    await idle()
    assert registry.looks == [{"bells/a"}]


async def test_streams_that_nobody_follows_are_not_looked_up() -> None:
    hearing, registry = hearing_of(Follower())
    hearing.heard([Hint("other"), Hint("other/a", 3, 5)])
    await idle()
    assert registry.looks == []


async def test_the_database_is_asked_again_and_again_only_while_somebody_is_not_heard() -> None:
    hearing, registry = hearing_of(Follower())
    hearing.set_deaf(True)
    hearing.set_deaf(True)
    for turn in range(1, 4):
        assert len(registry.timers.set) == 1
        registry.timers.ring()
        await idle()
        assert registry.looks == [None] * turn
    hearing.set_deaf(False)
    registry.timers.ring()
    await idle()
    assert registry.timers.set == []
    assert registry.looks == [None] * 3


async def test_a_look_that_fails_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.service.background._PAUSE_AFTER_FAILURE_S", 0)
    hearing, registry = hearing_of(Follower())
    failures = iter([OSError("gone"), OSError("gone")])

    async def look_at_all() -> None:
        for error in failures:
            raise error
        looked.set()

    looked = asyncio.Event()
    registry.look_at_all = look_at_all  # type: ignore[method-assign]
    hearing.look()
    async with asyncio.timeout(60):
        await looked.wait()
    await hearing.stop()


def entry_of(path: str) -> Entry:
    return Entry(path, HeldBytes())


def test_a_commit_gives_one_hint_per_stream() -> None:
    first, second = entry_of("a"), entry_of("b")
    appended = [
        (first, Appended(1, 0, b"xx", 1, 0, 0)),
        (first, Appended(1, 2, b"yy", 1, 1, 0)),
        (second, Appended(2, 0, b"z", 1, 0, 0)),
        (second, Deleted(2, 0)),
    ]
    assert hints_of(cast("Any", appended)) == [Hint("a", 1, 4), Hint("b")]


async def test_what_is_heard_during_a_survey_counts() -> None:
    """A page shows the past; what other nodes said meanwhile is newer."""
    survey: Survey
    pages = {"bells/a": StreamTail("bells/a", Lineage(7), 10)}

    def tails(prefix: str, after: str, limit: int) -> list[StreamTail]:
        found = [pages[path] for path in sorted(pages) if path.startswith(prefix) and path > after]
        return found[:limit]

    async def in_thread(work: Callable[..., object], *arguments: object) -> object:
        found = work(*arguments)
        if len(pages) == 1:
            pages["bells/new"] = StreamTail("bells/new", Lineage(8), 5)
            survey.heard([Hint("bells/a", 7, 40), Hint("bells/new"), Hint("elsewhere")])
            found_later.append("elsewhere")
        return found

    found_later: list[str] = []
    writer = SimpleNamespace(observers=[], failure_observers=[])
    engine = SimpleNamespace(streams=SimpleNamespace(tails=tails))
    streams = SimpleNamespace(writer=writer, engine=engine, in_thread=in_thread)
    hearing = SimpleNamespace(surveys=set())
    survey = Survey(cast("Any", streams), cast("Any", hearing))
    found = await survey.run(["bells/"], [])
    assert found_later == ["elsewhere"]
    assert {path: stream.tail for path, stream in found.items()} == {"bells/a": 40, "bells/new": 5}
    assert not hearing.surveys
    assert not writer.observers
