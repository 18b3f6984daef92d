"""`GET /metrics`: the figures of this server, for Prometheus.

Nothing is counted here. Every subsystem keeps plain numbers where it does its work, and a collector
reads them on request. To add metrics, a subsystem writes a function that yields its figures (see
`observe.collectors` for examples), and the code that assembles the server passes it to
`Metrics.add`. There is no global state, so a process can run several servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from time import monotonic
from typing import Final

from prometheus_client import GCCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry

from headwater.core.histograms import Histogram
from headwater.http.answers import NO_STORE
from headwater.http.messages import Request, Response

Collect = Callable[[], Iterable[Metric]]
Prepare = Callable[[], Awaitable[None]]

PREFIX: Final = "headwater_"
_REST_PER_WORK: Final = 3.0


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._prepare: list[Prepare] = []
        self._turns = asyncio.Lock()
        """Scrapes take turns, with a pause after each, so that none can keep the CPU busy."""
        self._rested_s = 0.0
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def add(self, collect: Collect, prepare: Prepare | None = None) -> None:
        """Include what `collect` yields in every answer.

        `collect` runs on the event loop and must be quick. Anything that has to wait for a disk
        belongs in `prepare`, which is awaited first.
        """
        self._registry.register(_Adapter(collect))
        if prepare is not None:
            self._prepare.append(prepare)

    async def handle(self, request: Request) -> Response:
        accept = request.headers.get(b"accept", b"").decode("latin-1")
        encode, content_type = choose_encoder(accept)
        headers = [("Content-Type", content_type), NO_STORE]
        async with self._turns:
            await asyncio.sleep(self._rested_s - monotonic())
            for prepare in self._prepare:
                await prepare()
            figures = _Collected(list(self._registry.collect()))
            began_s = monotonic()
            # Reading the figures is quick, encoding them is not.
            text = await asyncio.get_running_loop().run_in_executor(None, encode, figures)
            now_s = monotonic()
            self._rested_s = now_s + _REST_PER_WORK * (now_s - began_s)
        return Response(200, headers, text)


class _Collected(CollectorRegistry):
    """Figures as they were at one moment."""

    def __init__(self, figures: list[Metric]) -> None:
        super().__init__()
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        return iter(self._figures)


class _Adapter(Collector):
    def __init__(self, collect: Collect) -> None:
        self._collect = collect

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry would ask for figures before there are any."""
        return ()

    def collect(self) -> Iterable[Metric]:
        return self._collect()


# ── Helpers ──────────────────────────────────────────────────────────────────────────────────


def counter(name: str, text: str, value: float) -> Metric:
    """A number that only grows. Its name gets the suffix `_total`."""
    return CounterMetricFamily(PREFIX + name, text, value=value)


def gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def counters(name: str, text: str, label: str, values: dict[str, int]) -> Metric:
    """One number for each value of a label. Labels must have few values: never a path, and names
    only if there are few of them.
    """
    return _labelled(CounterMetricFamily(PREFIX + name, text, labels=[label]), values)


def gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    return _labelled(GaugeMetricFamily(PREFIX + name, text, labels=[label]), values)


def _labelled(
    family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[str, float]
) -> Metric:
    for value, number in values.items():
        family.add_metric([value], number)
    return family


def histogram(name: str, text: str, values: Histogram) -> Metric:
    return histograms(name, text, (), {(): values})


def histograms(
    name: str, text: str, labels: tuple[str, ...], values: dict[tuple[str, ...], Histogram]
) -> Metric:
    family = HistogramMetricFamily(PREFIX + name, text, labels=labels)
    for key, seen in values.items():
        family.add_metric(key, buckets=list(_added_up(seen)), sum_value=seen.total)
    return family


def _added_up(seen: Histogram) -> Iterator[tuple[str, float]]:
    total = 0
    for bound, count in zip((*seen.bounds, float("inf")), seen.counts, strict=True):
        total += count
        yield ("+Inf" if bound == float("inf") else repr(bound)), total
