"""The goals Headwater has set itself, checked against a run.

A goal is judged by its worst variant, and against its strongest peer: one good figure hides no bad
one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from benchmarks.plan import FULL, MIB
from benchmarks.results import (
    HEADWATER,
    NATS,
    NGINX,
    PEER_CLIENT,
    REDIS,
    RUST,
    SPARK_FROM_JSON,
    SPARK_PARQUET,
    YJS_FILE,
    YJS_MEMORY,
    Results,
    figure,
)
from benchmarks.scenarios import cluster, endurance
from benchmarks.scenarios.append import BULK_STREAMS

_FILE, _MEMORY = "reference-file", "reference-memory"
_PACED = ("1 stream,", "10 streams,", "30 streams,")


@dataclass(frozen=True)
class Goal:
    """A bound for a figure, or for that figure as a multiple of each peer's."""

    what: str
    scenario: str
    variants: str | tuple[str, ...]
    """Prefixes of the names of the variants it applies to."""
    metric: str
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "×"
    beside: tuple[str, ...] = ()

    @property
    def wanted(self) -> str:
        bound, sign = (self.at_most, "≤") if self.at_least is None else (self.at_least, "≥")
        return f"{sign} {bound:,.9g}{self.unit}"

    def is_met(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )

    def values(self, results: Results) -> Iterator[float]:
        for variant in results.variants(self.scenario):
            if not variant.startswith(self.variants):
                continue
            ours = results.middle(self.scenario, variant, HEADWATER, self.metric)
            if ours is None:
                continue
            if not self.beside:
                yield ours
            for peer in self.beside:
                if theirs := results.middle(self.scenario, variant, peer, self.metric):
                    unknown = results.is_bound(self.scenario, variant, HEADWATER, self.metric)
                    yield inf if unknown else ours / theirs


@dataclass(frozen=True)
class Verdict:
    """A goal and what was measured; ``met`` is None if the run did not measure it."""

    goal: str
    wanted: str
    measured: str
    met: bool | None

    @property
    def word(self) -> str:
        return {True: "met", False: "missed", None: "not measured"}[self.met]


def verdicts(results: Results) -> list[Verdict]:
    return [_verdict(goal, results) for goal in GOALS]


def _verdict(goal: Goal, results: Results) -> Verdict:
    values = list(goal.values(results))
    if not values:
        return Verdict(goal.what, goal.wanted, "–", None)
    worst = max(values) if goal.at_least is None else min(values)
    shown = "not all arrived" if worst == inf else figure(worst) + goal.unit
    return Verdict(goal.what, goal.wanted, shown, goal.is_met(worst))


GOALS = (
    Goal("appends/s over 16 streams, beside the Rust server",
         "append", "16 streams, 64", "appends_per_second", at_least=0.7, beside=(RUST,)),
    Goal("appends/s over 1,000 streams, beside the Rust server",
         "append", "1,000 streams, 64", "appends_per_second", at_least=0.7, beside=(RUST,)),
    Goal("one writer, p50, beside the Rust server",
         "append", "1 stream, 1 connection", "p50_ms", at_most=1.3, beside=(RUST,)),
    Goal("bodies of 5,000 messages, MB/s, beside the Rust server",
         "append", f"{BULK_STREAMS} streams, bodies", "mb_per_second",
         at_least=0.8, beside=(RUST,)),
    Goal("CPU per event, many SSE readers, beside the Rust server",
         "fanout", "", "server_cpu_us_per_event", at_most=1, beside=(RUST,)),
    Goal("durable appends/s over 16 streams, beside the reference's file store",
         "append", "16 streams", "appends_per_second", at_least=10, beside=(_FILE,)),
    Goal("durable appends/s over 1,000 streams, beside the reference's file store",
         "append", "1,000 streams", "appends_per_second", at_least=10, beside=(_FILE,)),
    Goal("durable appends/s, beside the reference's memory store",
         "append", "", "appends_per_second", at_least=1, beside=(_MEMORY,)),
    Goal("ten minutes of durable appends: CPU per append, the last minute beside the first",
         "endurance", endurance.DURABLE, "cpu_growth", at_most=1.1),
    Goal("five minutes of appends in memory at full load: p99",
         "endurance", endurance.IN_MEMORY, "p99_ms", at_most=60, unit=" ms"),
    Goal("memory per idle SSE reader",
         "fanout", "", "memory_kib_per_reader", at_most=32, unit=" KiB"),
    Goal("catch-up, MB/s, beside the reference",
         "catchup", f"{FULL.catchup_bytes // MIB} MiB", "mb_per_second",
         at_least=3, beside=(_FILE, _MEMORY)),
    Goal("memory with 100,000 streams at rest",
         "startup", f"{FULL.startup_streams:,} streams", "memory_idle_mib",
         at_most=300, unit=" MiB"),
    Goal("keystroke to every other editor, streams: p99",
         "editor", "", "p99_ms", at_most=50, unit=" ms"),
    Goal("keystroke to every other editor, documents: p99",
         "documents", "", "p99_ms", at_most=50, unit=" ms"),
    Goal("keystroke to every other editor, documents: p99 beside the published Yjs server",
         "documents", "", "p99_ms", at_most=1, beside=(YJS_FILE, YJS_MEMORY)),
    Goal("groups, durable, one by one, messages/s, beside Redis with sync",
         "groups", "durable, one by one", "messages_per_second", at_least=0.7, beside=(REDIS,)),
    Goal("groups, durable, in batches, messages/s, beside Redis and NATS with sync",
         "groups", "durable, batches", "messages_per_second", at_least=0.5, beside=(REDIS, NATS)),
    Goal("durable transactions",
         "groups", "durable, ", "transactions_per_second", at_least=5_000, unit="/s"),
    Goal("change to live query, 1 to 30 streams: p50",
         "queries", _PACED, "p50_ms", at_most=15, unit=" ms"),
    Goal("change to live query, 1 to 30 streams: p99",
         "queries", _PACED, "p99_ms", at_most=50, unit=" ms"),
    Goal("live changes with 100 templates and 1,000 waiting queries",
         "queries", "", "changes_per_second", at_least=20_000, unit="/s"),
    Goal("memory with 10,000 waiting queries",
         "queries", f"{FULL.queries_waiters:,} waiters", "memory_mib", at_most=300, unit=" MiB"),
    Goal("history from the start, MB/s, beside the reference",
         "history", "", "mb_per_second", at_least=10, beside=(_FILE, _MEMORY)),
    Goal("history from the start, MB/s, beside nginx with a static file",
         "history", "", "mb_per_second", at_least=0.5, beside=(NGINX,)),
    Goal("history, first byte from anywhere in 10,000,000 messages, beside 100,000",
         "history", f"{FULL.history_long_messages:,} messages", "first_byte_ratio", at_most=1.5),
    Goal("history, appends/s while sealing, beside those without",
         "history", "", "sealing_rate", at_least=0.95),
    Goal("history, memory with 256 readers, beside one reader",
         "history", "", "memory_growth", at_most=1.2),
    Goal("client, reading, messages/s, beside the client from PyPI",
         "client", "read", "messages_per_second", at_least=2, beside=(PEER_CLIENT,)),
    Goal("client, following, messages/s, beside the client from PyPI",
         "client", "follow", "messages_per_second", at_least=2, beside=(PEER_CLIENT,)),
    Goal("client, producing, messages/s, beside the client from PyPI",
         "client", "produce", "messages_per_second", at_least=2, beside=(PEER_CLIENT,)),
    Goal(f"client, reading {FULL.client_memory_bytes // MIB:,} MiB: memory after a sixteenth of it",
         "client", f"memory, {FULL.client_memory_bytes // MIB:,} MiB", "growth_mib",
         at_most=8, unit=" MiB"),
    Goal("PostgreSQL, durable appends/s, beside SQLite",
         "cluster", f"{cluster.ALONE}, ", "of_sqlite", at_least=0.6),
    Goal("three PostgreSQL with quorum, durable appends/s by 1 node, beside SQLite",
         "cluster", f"{cluster.QUORUM}, 1 node", "of_sqlite", at_least=0.4),
    Goal("three PostgreSQL with quorum, durable appends/s by 3 nodes, beside SQLite",
         "cluster", f"{cluster.QUORUM}, {cluster.NODES} nodes", "of_sqlite", at_least=0.4),
    Goal("three PostgreSQL with quorum, appends/s of 64 connections, beside 8",
         "cluster", "", "of_few", at_least=1),
    Goal("CPU of a request that a node passes on, beside a direct one",
         "cluster", cluster.FORWARDED, "cpu_of_direct", at_most=2),
    Goal("Spark, history from files",
         "spark", "history from files", "rows_per_second", at_least=1_500_000, unit=" rows/s"),
    Goal("Spark, history over HTTP",
         "spark", "history over HTTP", "rows_per_second", at_least=1_000_000, unit=" rows/s"),
    Goal("Spark, typed rows/s, beside from_json",
         "spark", "typed rows", "rows_per_second", at_least=2.5, beside=(SPARK_FROM_JSON,)),
    Goal("Spark, from an append to its row: p50",
         "spark", "micro-batches", "p50_ms", at_most=120, unit=" ms"),
    Goal("Spark, a table, rows/s, beside plain Parquet",
         "spark", "table", "rows_per_second", at_least=0.8, beside=(SPARK_PARQUET,)),
)  # fmt: skip
