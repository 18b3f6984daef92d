"""Which figures of a scenario are shown, and which direction is better."""

from dataclasses import dataclass
from typing import Literal

Better = Literal["higher", "lower", "neither"]


@dataclass(frozen=True)
class Metric:
    key: str
    label: str
    better: Better = "neither"


GENERATOR = Metric("generator_cpu_share", "generator, cores used")
GENERATOR_LAG = Metric("generator_lag_p99_ms", "generator late by p99, ms")
_ERRORS = Metric("errors", "errors")

_EDITING = (
    Metric("p50_ms", "keystroke to editor p50, ms", "lower"),
    Metric("p99_ms", "keystroke to editor p99, ms", "lower"),
    Metric("offered_per_second", "edits/s offered"),
    Metric("appends_per_second", "edits/s acknowledged", "higher"),
    Metric("delivered_percent", "delivered, %", "higher"),
    _ERRORS,
    Metric("server_cpu_share", "server, cores used", "lower"),
    GENERATOR,
    GENERATOR_LAG,
)

SHOWN: dict[str, tuple[Metric, ...]] = {
    "append": (
        Metric("appends_per_second", "appends/s", "higher"),
        Metric("p50_ms", "answered after p50, ms", "lower"),
        Metric("p99_ms", "answered after p99, ms", "lower"),
        Metric("server_cpu_us_per_append", "server CPU per append, µs", "lower"),
        Metric("mb_per_second", "MB/s", "higher"),
        _ERRORS,
        GENERATOR,
    ),
    "latency": (
        Metric("p50_ms", "delivered after p50, ms", "lower"),
        Metric("p99_ms", "delivered after p99, ms", "lower"),
        Metric("delivered_percent", "delivered, %"),
        GENERATOR,
        GENERATOR_LAG,
    ),
    "fanout": (
        Metric("events_per_second", "events/s", "higher"),
        Metric("server_cpu_us_per_event", "server CPU per event, µs", "lower"),
        Metric("memory_kib_per_reader", "memory per idle reader, KiB", "lower"),
        Metric("p99_ms", "append to reader p99, ms", "lower"),
        GENERATOR,
    ),
    "catchup": (
        Metric("mb_per_second", "MB/s", "higher"),
        Metric("server_cpu_ms_per_mb", "server CPU per MB, ms", "lower"),
        GENERATOR,
    ),
    "startup": (
        Metric("ready_seconds", "ready after, s", "lower"),
        Metric("memory_ready_mib", "memory when ready, MiB", "lower"),
        Metric("memory_idle_mib", "memory at rest, MiB", "lower"),
        Metric("memory_created_mib", "memory after creating them, MiB", "lower"),
        Metric("creates_per_second", "streams created/s", "higher"),
    ),
    "editor": _EDITING,
    "documents": _EDITING,
    "client": (
        Metric("messages_per_second", "messages/s", "higher"),
        Metric("client_cpu_us_per_message", "client CPU per message, µs", "lower"),
        Metric("peak_mib", "peak memory of the client, MiB", "lower"),
        Metric("peak_early_mib", "peak after a sixteenth of it, MiB"),
        Metric("growth_mib", "growth from there on, MiB"),
        Metric("generator_cpu_share", "client, cores used"),
        Metric("appended_per_second", "messages/s appended meanwhile"),
    ),
    "groups": (
        Metric("messages_per_second", "messages/s", "higher"),
        Metric("transactions_per_second", "transactions/s", "higher"),
        Metric("p50_ms", "append to member p50, ms", "lower"),
        Metric("p99_ms", "append to member p99, ms", "lower"),
        Metric("delivered_percent", "delivered, %"),
        Metric("server_cpu_us_per_message", "server CPU per message, µs", "lower"),
        Metric("groups_created_per_second", "groups created/s", "higher"),
        GENERATOR,
        GENERATOR_LAG,
    ),
    "queries": (
        Metric("p50_ms", "change to query p50, ms", "lower"),
        Metric("p99_ms", "change to query p99, ms", "lower"),
        Metric("seen_per_second", "changes seen/s", "higher"),
        Metric("changes_per_second", "changes/s", "higher"),
        Metric("memory_mib", "memory with all of them, MiB", "lower"),
        Metric("memory_kib_per_waiter", "memory per waiter, KiB", "lower"),
        Metric("delivered_percent", "delivered, %"),
        Metric("wakes", "wakes"),
        Metric("false_wakes", "wakes without a reason", "lower"),
        Metric("fallback_percent", "changes told coarsely, %"),
        Metric("server_cpu_us_per_change", "server CPU per change, µs", "lower"),
        Metric("server_cpu_us_per_wait", "server CPU per new waiter, µs", "lower"),
        _ERRORS,
        GENERATOR,
        GENERATOR_LAG,
    ),
    "history": (
        Metric("mb_per_second", "MB/s", "higher"),
        Metric("server_cpu_s_per_gb", "server CPU per GB, s", "lower"),
        Metric("memory_mib", "memory meanwhile, MiB", "lower"),
        Metric("memory_growth", "memory, times that with one reader"),
        Metric("first_byte_p50_ms", "first byte p50, ms", "lower"),
        Metric("first_byte_p99_ms", "first byte p99, ms", "lower"),
        Metric("short_first_byte_p50_ms", "of the short stream p50, ms"),
        Metric("short_first_byte_p99_ms", "of the short stream p99, ms"),
        Metric("first_byte_ratio", "p50, times that of the short stream"),
        Metric("untouched_first_byte_p50_ms", "where nobody has read before, p50, ms"),
        Metric("appends_per_second", "appends/s", "higher"),
        Metric("unsealed_appends_per_second", "appends/s without sealing"),
        Metric("sealing_rate", "appends/s, times those without sealing"),
        Metric("server_cpu_us_per_append", "server CPU per append, µs", "lower"),
        Metric("unsealed_server_cpu_us_per_append", "server CPU per append without sealing, µs"),
        Metric("sealed_mb_per_second", "sealed meanwhile, MB/s"),
        _ERRORS,
        GENERATOR,
    ),
    "cluster": (
        Metric("appends_per_second", "appends/s", "higher"),
        Metric("of_sqlite", "times those of SQLite", "higher"),
        Metric("of_few", "times those of 8 connections", "higher"),
        Metric("p50_ms", "answered or delivered after p50, ms", "lower"),
        Metric("p99_ms", "answered or delivered after p99, ms", "lower"),
        Metric("server_cpu_us_per_append", "CPU of all nodes per append, µs", "lower"),
        Metric("cpu_of_direct", "times that of the owner asked", "lower"),
        Metric("events_per_second", "events/s", "higher"),
        Metric("server_cpu_us_per_event", "CPU of all nodes per event, µs", "lower"),
        Metric("memory_kib_per_reader", "memory per idle reader, KiB", "lower"),
        _ERRORS,
        GENERATOR,
    ),
    "spark": (
        Metric("rows_per_second", "rows/s", "higher"),
        Metric("cpu_us_per_row", "CPU per row, µs", "lower"),
        Metric("p50_ms", "append to row p50, ms", "lower"),
        Metric("p99_ms", "append to row p99, ms", "lower"),
    ),
    "endurance": (
        Metric("appends_per_second", "appends/s in the slowest tenth", "higher"),
        Metric("p99_ms", "answered after p99 in the worst tenth, ms", "lower"),
        Metric("server_cpu_us_per_append", "server CPU per append in the first tenth, µs", "lower"),
        Metric("last_cpu_us_per_append", "server CPU per append in the last tenth, µs", "lower"),
        Metric("cpu_growth", "the last, times the first", "lower"),
        Metric("appends", "appends"),
        _ERRORS,
    ),
}

TITLES = {
    "append": "Appends",
    "latency": "Append to SSE delivery",
    "fanout": "Fan-out to SSE readers",
    "catchup": "Catch-up reads",
    "startup": "Start-up with existing streams",
    "editor": "Collaborative editors",
    "documents": "Collaborative documents",
    "client": "Python clients",
    "groups": "Work distribution",
    "queries": "Live queries",
    "history": "History",
    "cluster": "A cluster on PostgreSQL",
    "spark": "Spark",
    "endurance": "Minutes of appends",
}
