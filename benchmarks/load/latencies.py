"""The median and the 99th percentile of request times."""

from collections.abc import Iterable

from benchmarks.load.measure import Result
from headwater.cli.bench.generator import percentile


def latency_figures(latencies_ns: Iterable[int]) -> Result:
    ordered = sorted(latencies_ns)
    return {"p50_ms": percentile(ordered, 50) / 1e6, "p99_ms": percentile(ordered, 99) / 1e6}
