"""Signs of life and the end of event streams, under a clock that the test moves."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import pytest

from headwater.http.feeds import heartbeat
from headwater.http.feeds.heartbeat import KEEP_ALIVE_S, Heartbeat
from headwater.http.messages import Payload

if TYPE_CHECKING:
    from headwater.http.feeds.readers import SseReader

LIFETIME_S = 60.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.25


class SkippingSelector(selectors.SelectSelector):
    """Waits for nothing: when there is nothing to do, the clock jumps to the next timer."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is not None:
            self._clock.now += timeout
        return ready


class SkippingLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: Clock) -> None:
        self._test_clock = clock
        super().__init__(SkippingSelector(clock))

    def time(self) -> float:
        return self._test_clock.now


class Sink:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.beats: list[float] = []
        self.takes_more = True
        self.paused = False

    def send(self, payload: Payload) -> bool:
        assert payload.raw.startswith(b":")
        assert payload.raw.endswith(b"\n\n")
        if self.takes_more:
            self.beats.append(self._clock.now)
        return self.takes_more


class Reader:
    """As much of an event stream as the heartbeat needs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.began_at = clock.now
        self.ended_at: float | None = None
        self.gone = False
        self.sink = Sink(clock)

    def end(self) -> None:
        assert self.ended_at is None
        self.ended_at = self._clock.now
        self.gone = True

    def as_reader(self) -> SseReader:
        return cast("SseReader", self)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(heartbeat, "monotonic", lambda: clock.now)
    return clock


@pytest.fixture
def run(clock: Clock) -> Iterator[Callable[..., None]]:
    loop = SkippingLoop(clock)
    yield loop.run_until_complete
    loop.close()


def test_a_reader_hears_of_the_server_until_the_end(clock: Clock, run: Callable[..., None]) -> None:
    async def scenario() -> Reader:
        heartbeat, reader = Heartbeat(LIFETIME_S), Reader(clock)
        heartbeat.add(reader.as_reader())
        await asyncio.sleep(2 * LIFETIME_S)
        heartbeat.stop()
        return reader

    reader = cast(Reader, run(scenario()))
    moments = [reader.began_at, *reader.sink.beats]
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert len(gaps) >= 2
    assert all(KEEP_ALIVE_S - 1 <= gap <= KEEP_ALIVE_S + 3 for gap in gaps)
    assert reader.ended_at is not None
    assert 0.8 * LIFETIME_S <= reader.ended_at - reader.began_at <= 1.2 * LIFETIME_S + 3


def test_readers_that_came_together_do_not_go_together(
    clock: Clock, run: Callable[..., None]
) -> None:
    async def scenario() -> list[Reader]:
        heartbeat, readers = Heartbeat(LIFETIME_S), [Reader(clock) for _ in range(200)]
        for reader in readers:
            heartbeat.add(reader.as_reader())
        await asyncio.sleep(2 * LIFETIME_S)
        heartbeat.stop()
        return readers

    readers = cast(list[Reader], run(scenario()))
    assert len({reader.ended_at for reader in readers}) > 5
    assert all(reader.ended_at is not None for reader in readers)


def test_a_reader_that_is_gone_is_left_alone(clock: Clock, run: Callable[..., None]) -> None:
    async def scenario() -> Reader:
        heartbeat, reader = Heartbeat(LIFETIME_S), Reader(clock)
        heartbeat.add(reader.as_reader())
        reader.gone = True
        await asyncio.sleep(2 * LIFETIME_S)
        heartbeat.stop()
        return reader

    reader = cast(Reader, run(scenario()))
    assert reader.sink.beats == []
    assert reader.ended_at is None


def test_a_reader_that_takes_no_more_is_forgotten(clock: Clock, run: Callable[..., None]) -> None:
    async def scenario() -> Reader:
        heartbeat, reader = Heartbeat(LIFETIME_S), Reader(clock)
        reader.sink.takes_more = False
        heartbeat.add(reader.as_reader())
        await asyncio.sleep(2 * LIFETIME_S)
        heartbeat.stop()
        return reader

    assert cast(Reader, run(scenario())).ended_at is None


def test_a_heartbeat_starts_again_after_a_rest(clock: Clock, run: Callable[..., None]) -> None:
    async def scenario() -> list[Reader]:
        heartbeat, readers = Heartbeat(LIFETIME_S), []
        for _ in range(3):
            readers.append(Reader(clock))
            heartbeat.add(readers[-1].as_reader())
            # Long enough for nobody to be left.
            await asyncio.sleep(10 * LIFETIME_S)
        heartbeat.stop()
        return readers

    for reader in cast(list[Reader], run(scenario())):
        assert reader.ended_at is not None
        assert reader.ended_at - reader.began_at <= 1.2 * LIFETIME_S + 3


def test_short_lives_end_too(clock: Clock, run: Callable[..., None]) -> None:
    async def scenario() -> Reader:
        heartbeat, reader = Heartbeat(0.1), Reader(clock)
        heartbeat.add(reader.as_reader())
        await asyncio.sleep(10)
        heartbeat.stop()
        return reader

    reader = cast(Reader, run(scenario()))
    assert reader.ended_at is not None
    assert reader.sink.beats == []
