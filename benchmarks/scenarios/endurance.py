"""The same appends for minutes: neither time nor CPU may grow with the amount stored."""

from collections.abc import Generator

from benchmarks.load.process import Result
from benchmarks.results import HEADWATER
from benchmarks.scenarios.append import take
from benchmarks.scenarios.base import Context, Step
from benchmarks.servers import Server
from benchmarks.subjects import Subject, headwater, headwater_in_memory

DURABLE, IN_MEMORY = "durable", "in memory"
_WINDOWS = 10
_STREAMS, _CONNECTIONS = 16, 64


def steps(context: Context, subject: Subject) -> Generator[Step]:
    # Once takes long enough.
    if subject.name != HEADWATER or context.repetition:
        return
    durable, in_memory = context.plan.endurance_seconds
    with context.fresh_server(headwater(context.python)) as server:
        yield Step(DURABLE, lambda: _take(context, server, durable))
    with context.fresh_server(headwater_in_memory(context.python)) as server:
        yield Step(IN_MEMORY, lambda: _take(context, server, in_memory))


def _take(context: Context, server: Server, seconds: float) -> Result:
    """Windows of equal length: the worst of them, and the last one compared with the first."""
    length = seconds / _WINDOWS
    windows = [take(context, server, _STREAMS, _CONNECTIONS, length) for _ in range(_WINDOWS)]
    cpu = [window["server_cpu_us_per_append"] for window in windows]
    return {
        "appends": sum(window["appends"] for window in windows),
        "appends_per_second": min(window["appends_per_second"] for window in windows),
        "p99_ms": max(window["p99_ms"] for window in windows),
        "server_cpu_us_per_append": cpu[0],
        "last_cpu_us_per_append": cpu[-1],
        "cpu_growth": cpu[-1] / cpu[0],
        "errors": sum(window["errors"] for window in windows),
    }
