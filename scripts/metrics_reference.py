"""The tables of docs/reference/metrics.md, from what a server reports at /metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from headwater.testing import running_server
from scripts.markers import replaced

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "metrics.md"
OURS = "headwater_"

_HEAD = "| Metric | Type | Labels | Meaning |\n| --- | --- | --- | --- |\n"


def families() -> list[Metric]:
    """The metrics of a server that has done a little of everything, so that all labels appear."""
    with running_server() as server:
        httpx.put(server.stream_url("a"), content=b"x")
        httpx.get(server.stream_url("missing"))
        text = httpx.get(f"{server.url}/metrics").text
    return [family for family in text_string_to_metric_families(text) if OURS in family.name]


def generate() -> dict[Path, str]:
    """The page with its current table."""
    return {PAGE: replaced(PAGE, {"metrics": table()})}


def table() -> str:
    return _HEAD + "".join(f"| {' | '.join(row)} |\n" for row in _rows())


def _rows() -> Iterator[tuple[str, ...]]:
    for family in families():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        if family.name == "headwater_disk_bytes":
            # A server that keeps everything in memory has no files.
            labels.add("part")
        shown = ", ".join(f"`{label}`" for label in sorted(labels))
        yield f"`{name}`", family.type, shown, family.documentation


if __name__ == "__main__":
    raise SystemExit("run make generate, or python -m scripts.generate")
