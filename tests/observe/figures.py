"""What a server says at /metrics, in a form that tests can ask."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families


class Figures:
    """One answer of /metrics."""

    def __init__(self, text: str) -> None:
        self.families: dict[str, Metric] = {f.name: f for f in text_string_to_metric_families(text)}
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    @classmethod
    def of(cls, url: str) -> Figures:
        answer = httpx.get(f"{url}/metrics")
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        return cls(answer.text)

    def __call__(self, name: str, **labels: str) -> float:
        """A figure of ours; 0 if nothing of the kind has happened yet."""
        return self.samples.get((f"headwater_{name}", frozenset(labels.items())), 0)

    @property
    def sample_names(self) -> set[str]:
        """Every name that a query can use, also those that have no values yet."""
        return {name for family in self.families.values() for name in names_of(family)}


def names_of(family: Metric) -> Iterator[str]:
    match family.type:
        case "counter":
            yield f"{family.name}_total"
        case "histogram":
            yield from (f"{family.name}_{part}" for part in ("bucket", "sum", "count"))
        case _:
            yield family.name
