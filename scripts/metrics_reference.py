"""Write the tables of docs/reference/metrics.md from what a server says at /metrics.

`python scripts/metrics_reference.py` rewrites what stands between the two markers; `--check` writes
nothing and fails if the page is not what this script would write.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from headwater.testing import running_server

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "metrics.md"
BEGIN = "<!-- metrics: written by scripts/metrics_reference.py, do not edit -->"
END = "<!-- metrics: end -->"
OURS = "headwater_"

_HEAD = "| Metric | Type | Labels | Meaning |\n| --- | --- | --- | --- |\n"


def families() -> list[Metric]:
    """What a server says that has done a little of everything, so that all labels are there."""
    with running_server() as server:
        httpx.put(server.stream_url("a"), content=b"x")
        httpx.get(server.stream_url("missing"))
        text = httpx.get(f"{server.url}/metrics").text
    return [family for family in text_string_to_metric_families(text) if OURS in family.name]


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


def with_table(page: str) -> str:
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} has lost one of its markers:\n  {BEGIN}\n  {END}")
    return f"{before}{BEGIN}\n\n{table()}\n{END}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the page is out of date")
    arguments = parser.parse_args()
    old = PAGE.read_text(encoding="utf-8")
    new = with_table(old)
    if old == new:
        return 0
    if arguments.check:
        print(f"{PAGE} is out of date: run python {sys.argv[0]}", file=sys.stderr)
        return 1
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
