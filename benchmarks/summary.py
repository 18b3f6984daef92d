"""The few lines that say how fast Headwater is compared with others: what the README shows.

A ratio over 1 is in Headwater's favour, whichever direction is better for the figure.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.metrics import Better
from benchmarks.results import (
    HEADWATER,
    NATS,
    NGINX,
    PEER_CLIENT,
    PRISMA,
    REDIS,
    RUST,
    SPARK_FROM_JSON,
    SPARK_PARQUET,
    YJS_FILE,
    Results,
    times,
)
from benchmarks.scenarios import cluster
from benchmarks.scenarios.append import BULK_STREAMS

_FILE = "reference-file"
_NAMES = {
    RUST: "Electric's Rust server",
    _FILE: "npm reference server, file store",
    NGINX: "nginx, static file",
    REDIS: "Redis Streams",
    NATS: "NATS JetStream",
    PEER_CLIENT: "`durable-streams` from PyPI",
    PRISMA: "Prisma Streams",
    YJS_FILE: "published Yjs server, file store",
    SPARK_PARQUET: "Spark's Parquet reader",
    SPARK_FROM_JSON: "Spark's `from_json`",
}


@dataclass(frozen=True)
class Row:
    """One figure of the first variant with that name prefix, next to each peer that has it too."""

    what: str
    scenario: str
    variant: str
    metric: str
    beside: tuple[str, ...] = ()
    better: Better = "higher"
    unit: str = ""
    ratio: tuple[str, str] | None = None
    """Instead of peers: a metric that is already a ratio, and to what."""


@dataclass(frozen=True)
class Line:
    """A row as it is shown; cells that repeat the line above are empty."""

    what: str
    headwater: str
    beside: str
    ratio: str


def lines(results: Results) -> list[Line]:
    return [line for row in ROWS for line in _lines(row, results)]


def _lines(row: Row, results: Results) -> Iterator[Line]:
    found = (v for v in results.variants(row.scenario) if v.startswith(row.variant))
    if (variant := next(found, None)) is None:
        return
    what, headwater = row.what, results.shown(row.scenario, variant, HEADWATER, row.metric)
    headwater += row.unit
    for name, ratio in _ratios(row, variant, results):
        yield Line(what, headwater, name, ratio)
        what = headwater = ""


def _ratios(row: Row, variant: str, results: Results) -> Iterator[tuple[str, str]]:
    if row.ratio is not None:
        metric, name = row.ratio
        value = results.middle(row.scenario, variant, HEADWATER, metric)
        if value is not None:
            yield name, times(value)
    for peer in row.beside:
        shown = results.shown_gain(row.scenario, variant, row.metric, row.better, peer)
        if results.gain(row.scenario, variant, row.metric, row.better, peer) is not None:
            yield _NAMES[peer], shown


_OF_SQLITE = ("of_sqlite", "Headwater on SQLite")
_BULK = f"{BULK_STREAMS} streams, bodies"

ROWS = (
    Row("durable appends/s, 16 streams, 64 connections",
        "append", "16 streams, 64", "appends_per_second", (RUST, _FILE)),
    Row("durable appends/s, 1,000 streams, 64 connections",
        "append", "1,000 streams, 64", "appends_per_second", (RUST,)),
    Row("one writer, p50",
        "append", "1 stream, 1 connection", "p50_ms", (RUST,), "lower", " ms"),
    Row("bodies of 5,000 messages, MB/s",
        "append", _BULK, "mb_per_second", (RUST,)),
    Row("CPU per delivered event, 5,000 SSE readers",
        "fanout", "5,000 readers", "server_cpu_us_per_event", (RUST, _FILE), "lower", " µs"),
    Row("catch-up, 4 readers, MB/s",
        "catchup", "256 MiB, 4 connections", "mb_per_second", (RUST, _FILE)),
    Row("history from files, 256 readers, MB/s",
        "history", "8 MiB, 256 readers", "mb_per_second", (NGINX, RUST)),
    Row("documents, keystroke to every other editor, p99",
        "documents", "200 documents", "p99_ms", (YJS_FILE,), "lower", " ms"),
    Row("group messages/s, durable, 64 members, one by one",
        "groups", "durable, one by one, 64", "messages_per_second", (REDIS, NATS)),
    Row("group messages/s, durable, 64 members, batches of 100",
        "groups", "durable, batches of 100, 64", "messages_per_second", (REDIS, NATS)),
    Row("group messages/s, without sync, 64 members, batches of 100",
        "groups", "not synced, batches of 100, 64", "messages_per_second", (REDIS, NATS)),
    Row("live changes/s, 100 templates, 1,000 waiting queries",
        "queries", "100 templates", "changes_per_second", (PRISMA,)),
    Row("Python client, reading, messages/s",
        "client", "read records, blocking", "messages_per_second", (PEER_CLIENT,)),
    Row("durable appends/s, PostgreSQL",
        "cluster", f"{cluster.ALONE}, 1 node", "appends_per_second", ratio=_OF_SQLITE),
    Row("durable appends/s, three PostgreSQL with quorum",
        "cluster", f"{cluster.QUORUM}, 1 node", "appends_per_second", ratio=_OF_SQLITE),
    Row("Spark, history from files, rows/s",
        "spark", "history from files", "rows_per_second", (SPARK_PARQUET,)),
    Row("Spark, JSON parsed, rows/s",
        "spark", "typed rows", "rows_per_second", (SPARK_FROM_JSON,)),
)  # fmt: skip
