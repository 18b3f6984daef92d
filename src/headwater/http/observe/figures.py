"""`GET /v1/figures`: how the server did over the last hour, for charts.

There is a point every five seconds, kept in memory: counter growth per second since the previous
point, and current gauges. Nothing is counted here: on each tick, one timer reads a few numbers that
other parts keep anyway. Use Prometheus for longer periods.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Iterator
from math import isnan, nan
from pathlib import Path
from resource import getpagesize
from time import monotonic, process_time
from typing import Final

from headwater.core.histograms import Histogram
from headwater.http.answers import json_answer
from headwater.http.messages import Request, Response
from headwater.http.queries import number_in, query_of
from headwater.http.wire.server import Server
from headwater.service.background import Watch
from headwater.service.clock import Clock
from headwater.service.feeds import Feeds
from headwater.service.groups.operations import Groups
from headwater.service.log import Log

STEP_S: Final = 5
POINTS_MAX: Final = 720
_MEMORY: Final = Path("/proc/self/statm")

Read = Callable[[], float]


class Growth:
    """The growth of a counter, per second."""

    def __init__(self, count: Read) -> None:
        self._count = count
        self._before = count()

    def __call__(self, passed_s: float) -> float:
        now = self._count()
        grown, self._before = now - self._before, now
        return max(0.0, grown) / passed_s


class Mean:
    """The mean of a histogram's values since the last call; NaN if there were none."""

    def __init__(self, seen: Histogram, scale: float) -> None:
        self._seen = seen
        self._scale = scale
        self._before = (seen.count, seen.total)

    def __call__(self, passed_s: float) -> float:
        (count, total), now = self._before, (self._seen.count, self._seen.total)
        self._before = now
        return self._scale * (now[1] - total) / (now[0] - count) if now[0] > count else nan


Figure = Callable[[float], float]
"""Takes the seconds since the previous point; returns NaN if there is nothing to report."""


class Figures:
    """The last hour: a ring of points, and the timer that adds one."""

    def __init__(self, clock: Clock) -> None:
        self.watch = Watch("figures")
        self._clock = clock
        self._sources: dict[str, Figure] = {}
        self._times: array[int] = array("q")
        self._values: dict[str, array[float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._looked_s = 0.0

    def start(self, log: Log, feeds: Feeds, groups: Groups, server: Server) -> None:
        self._sources = dict(_sources(log, feeds, groups, server))
        self._values = {name: array("d") for name in self._sources}
        self._looked_s = monotonic()
        self._wait()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(STEP_S, self._tick)

    def _tick(self) -> None:
        self._wait()
        try:
            self.take()
        except Exception as error:
            self.watch.failed(error)
        else:
            self.watch.succeeded()

    def take(self) -> None:
        """Add a point; drops the oldest if the ring is full."""
        now_s = monotonic()
        passed_s = max(0.001, now_s - self._looked_s)
        self._looked_s = now_s
        point = {name: source(passed_s) for name, source in self._sources.items()}
        for name, value in point.items():
            self._values[name].append(value)
        self._times.append(self._clock())
        del self._times[:-POINTS_MAX]
        for values in self._values.values():
            del values[:-POINTS_MAX]

    def handle(self, request: Request) -> Response:
        query = query_of(request)
        since_ms = number_in(query, "since") if "since" in query else 0
        first = next((i for i, at in enumerate(self._times) if at > since_ms), len(self._times))
        body = {
            "step_ms": STEP_S * 1000,
            "times": self._times[first:].tolist(),
            "figures": {
                name: [None if isnan(one) else round(one, 3) for one in values[first:]]
                for name, values in self._values.items()
            },
        }
        return json_answer(body)


def _sources(
    log: Log, feeds: Feeds, groups: Groups, server: Server
) -> Iterator[tuple[str, Figure]]:
    writer, traffic = log.writer.figures, server.traffic
    yield "messages_per_s", Growth(lambda: writer.messages)
    yield "appends_per_s", Growth(lambda: writer.appends)
    yield "appended_bytes_per_s", Growth(lambda: writer.appended_bytes)
    yield "commit_ms", Mean(writer.seconds, 1000)
    yield (
        "requests_per_s",
        Growth(lambda: sum(one.requests for one in list(traffic.tallies.values()))),
    )
    yield "errors_per_s", Growth(lambda: sum(traffic.errors.values()))
    yield "reads_per_s", Growth(lambda: sum(feeds.figures.reads.values()))
    yield "events_per_s", Growth(lambda: feeds.figures.events)
    yield "live_reads", lambda _: server.readers.live
    yield "connections", lambda _: server.connections
    yield "queue_bytes", lambda _: log.writer.queued_bytes
    yield "group_lag_messages", lambda _: groups.lag_survey.look()
    yield "cpu_percent", _percent(Growth(process_time))
    yield "memory_bytes", lambda _: _memory_bytes()


def _percent(share: Figure) -> Figure:
    return lambda passed_s: 100 * share(passed_s)


def _memory_bytes() -> float:
    try:
        return int(_MEMORY.read_bytes().split()[1]) * getpagesize()
    except (OSError, ValueError, IndexError):
        # Not Linux.
        return nan
