"""The goals Headwater has set itself, checked against a run."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.metrics import Better
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
    SPARK_READY,
    YJS_FILE,
    YJS_MEMORY,
    Results,
    figure,
    times,
)
from benchmarks.scenarios import cluster, endurance
from benchmarks.scenarios.append import BULK_STREAMS

_FILE, _MEMORY = "reference-file", "reference-memory"


@dataclass(frozen=True)
class Verdict:
    """A goal and what was measured; ``met`` is None when the run did not measure it."""

    goal: str
    measured: str
    met: bool | None


def verdicts(results: Results) -> list[Verdict]:
    """Each goal is judged by its worst variant, so one good one cannot hide a bad one."""
    return [
        _ratio(results, "durable appends over 16 streams: 0.7× the Rust server", 0.7,
               "append", "appends_per_second", [RUST], _over("16 streams")),
        _ratio(results, "durable appends over 1,000 streams: 0.7× the Rust server", 0.7,
               "append", "appends_per_second", [RUST], _over("1,000 streams")),
        _ratio(results, "one writer: 0.77× the speed of the Rust server (p50 within 1.3×)", 0.77,
               "append", "p50_ms", [RUST], _over("1 stream, 1 connection"), "lower"),
        _ratio(results, "bodies of 5,000 messages: 0.8× the Rust server", 0.8,
               "append", "mb_per_second", [RUST], _over(f"{BULK_STREAMS} streams, bodies")),
        _ratio(results, "CPU per event, many readers: at most the Rust server's", 1,
               "fanout", "server_cpu_us_per_event", [RUST], _over(""), "lower"),
        _ratio(results, "durable appends over 16 streams: 10× the reference's file store", 10,
               "append", "appends_per_second", [_FILE], _over("16 streams")),
        _ratio(results, "durable appends over 1,000 streams: 10× the reference's file store", 10,
               "append", "appends_per_second", [_FILE], _over("1,000 streams")),
        _ratio(results, "durable appends: at least the reference's memory store", 1,
               "append", "appends_per_second", [_MEMORY], _over("")),
        _ratio(results, "catch-up: 3× the reference", 3,
               "catchup", "mb_per_second", [_FILE, _MEMORY],
               _over(f"{FULL.catchup_bytes // MIB} MiB")),
        _limit(results, "memory per idle SSE reader: at most 32 KiB", 32,
               "fanout", "memory_kib_per_reader", _over("")),
        _limit(results, "memory with 100,000 streams at rest: under 300 MiB", 300,
               "startup", "memory_idle_mib", _over(f"{FULL.startup_streams:,} streams")),
        _limit(results, "keystroke to every other editor: p99 within 50 ms", 50,
               "editor", "p99_ms", _over("")),
        _limit(results, "documents, keystroke to every other editor: p99 within 50 ms", 50,
               "documents", "p99_ms", _over("")),
        _ratio(results, "documents, keystroke to editor p99: at most the published Yjs server's", 1,
               "documents", "p99_ms", [YJS_FILE, YJS_MEMORY], _over(""), "lower"),
        _ratio(results, "client, reading: 2× the PyPI client", 2,
               "client", "messages_per_second", [PEER_CLIENT], _over("read")),
        _ratio(results, "client, following: 2× the PyPI client", 2,
               "client", "messages_per_second", [PEER_CLIENT], _over("follow")),
        _ratio(results, "client, producing: 2× the PyPI client", 2,
               "client", "messages_per_second", [PEER_CLIENT], _over("produce")),
        _limit(results, "client memory while reading 1 GiB: flat, at most 8 MiB more than after "
               "a sixteenth of it", 8,
               "client", "growth_mib", _over(f"memory, {FULL.client_memory_bytes // MIB:,} MiB")),
        _ratio(results, "groups, durable, a message at a time: at least Redis and NATS", 1,
               "groups", "messages_per_second", [REDIS, NATS], _over("durable, one by one")),
        _ratio(results, "groups, durable, in batches: within 2× of Redis and NATS", 0.5,
               "groups", "messages_per_second", [REDIS, NATS], _over("durable, batches")),
        _at_least(results, "durable transactions: 5,000 a second", 5_000,
                  "groups", "transactions_per_second", _over("durable, ")),
        _limit(results, "change to query, 1 to 30 streams: p50 within 15 ms", 15,
               "queries", "p50_ms", _is_paced),
        _limit(results, "change to query, 1 to 30 streams: p99 within 50 ms", 50,
               "queries", "p99_ms", _is_paced),
        _at_least(results, "live changes with 100 templates and 1,000 waiters: 20,000 a second",
                  20_000, "queries", "changes_per_second", _over("")),
        _limit(results, "memory with 10,000 waiting queries: within 300 MiB", 300,
               "queries", "memory_mib", _over(f"{FULL.queries_waiters:,} waiters")),
        _ratio(results, "history, reading it from the start: 10× the reference", 10,
               "history", "mb_per_second", [_FILE, _MEMORY], _over("")),
        _ratio(results, "history, reading it from the start: half of what nginx does", 0.5,
               "history", "mb_per_second", [NGINX], _over("")),
        _limit(results, "history, first byte from anywhere in 10,000,000 messages: within 1.5× "
               "of 100,000", 1.5,
               "history", "first_byte_ratio",
               _over(f"{FULL.history_long_messages:,} messages")),
        _at_least(results, "history, appends while sealing: within 5 % of those without", 0.95,
                  "history", "sealing_rate", _over("")),
        _limit(results, "history, memory with 256 readers: within 1.2× of one reader", 1.2,
               "history", "memory_growth", _over("")),
        _at_least(results, "cluster, durable appends by PostgreSQL: 0.6× SQLite", 0.6,
                  "cluster", "of_sqlite", _over(f"{cluster.ALONE}, ")),
        _at_least(results, "cluster, durable appends by three PostgreSQL: 0.4× SQLite", 0.4,
                  "cluster", "of_sqlite", _over(f"{cluster.QUORUM}, 1 node")),
        _limit(results, "cluster, CPU of a request that is passed on: within 2× of a direct one", 2,
               "cluster", "cpu_of_direct", _over(cluster.FORWARDED)),
        _at_least(results, "Spark, history from files: 1,500,000 rows a second", 1_500_000,
                  "spark", "rows_per_second", _over("history from files")),
        _ratio(results, "Spark, history from files: 0.68× a source of ready batches", 0.68,
               "spark", "rows_per_second", [SPARK_READY], _over("history from files")),
        _at_least(results, "Spark, history over HTTP: 1,000,000 rows a second", 1_000_000,
                  "spark", "rows_per_second", _over("history over HTTP")),
        _ratio(results, "Spark, history over HTTP: 0.41× a source of ready batches", 0.41,
               "spark", "rows_per_second", [SPARK_READY], _over("history over HTTP")),
        _ratio(results, "Spark, typed rows: 2.5× from_json", 2.5,
               "spark", "rows_per_second", [SPARK_FROM_JSON], _over("typed rows")),
        _limit(results, "Spark, from an append to its row: half of them within 120 ms", 120,
               "spark", "p50_ms", _over("micro-batches")),
        _ratio(results, "Spark, table: 0.8× a plain Parquet read", 0.8,
               "spark", "rows_per_second", [SPARK_PARQUET], _over("table")),
        _limit(results, "five minutes of appends in memory: p99 within 60 ms", 60,
               "endurance", "p99_ms", _over(endurance.IN_MEMORY)),
        _limit(results, "five minutes of appends: CPU per append within 1.1× of the beginning", 1.1,
               "endurance", "cpu_growth", _over("")),
    ]  # fmt: skip


def _over(prefix: str) -> Callable[[str], bool]:
    return lambda variant: variant.startswith(prefix)


def _is_paced(variant: str) -> bool:
    return variant.endswith("changes/s each")


def _ratio(
    results: Results,
    goal: str,
    at_least: float,
    scenario: str,
    metric: str,
    references: list[str],
    chosen: Callable[[str], bool],
    better: Better = "higher",
) -> Verdict:
    gains = [
        gain
        for variant in filter(chosen, results.variants(scenario))
        for reference in references
        if (gain := results.gain(scenario, variant, metric, better, reference)) is not None
    ]
    if not gains:
        return Verdict(goal, "not measured", None)
    return Verdict(goal, times(min(gains)), min(gains) >= at_least)


def _limit(
    results: Results,
    goal: str,
    at_most: float,
    scenario: str,
    metric: str,
    chosen: Callable[[str], bool],
) -> Verdict:
    values = [
        (value, results.shown(scenario, variant, HEADWATER, metric))
        for variant in filter(chosen, results.variants(scenario))
        if (value := results.middle(scenario, variant, HEADWATER, metric)) is not None
    ]
    if not values:
        return Verdict(goal, "not measured", None)
    worst, shown = max(values)
    return Verdict(goal, shown, worst <= at_most)


def _at_least(
    results: Results,
    goal: str,
    at_least: float,
    scenario: str,
    metric: str,
    chosen: Callable[[str], bool],
) -> Verdict:
    values = [
        value
        for variant in filter(chosen, results.variants(scenario))
        if (value := results.middle(scenario, variant, HEADWATER, metric)) is not None
    ]
    if not values:
        return Verdict(goal, "not measured", None)
    return Verdict(goal, figure(min(values)), min(values) >= at_least)
