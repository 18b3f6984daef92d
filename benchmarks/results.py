"""Measurements, and what is computed from them: medians, spreads, ratios."""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.metrics import Better

HEADWATER = "headwater"
RUST = "rust"
PEER_CLIENT = "peer-client"
REDIS = "redis"
NATS = "nats"
PRISMA = "prisma"
YJS_FILE = "yjs-file"
YJS_MEMORY = "yjs-memory"
NGINX = "nginx"
SPARK_READY = "spark-ready"
SPARK_PARQUET = "spark-parquet"
SPARK_TEXT = "spark-text"
SPARK_FROM_JSON = "spark-from-json"
SPARK_READERS = {
    SPARK_READY: "ready batches",
    SPARK_PARQUET: "Parquet",
    SPARK_TEXT: "text",
    SPARK_FROM_JSON: "from_json",
}
"""What the Spark source is compared with."""
FILE_NAME = "results.json"

_OTHERS = "others_cpu_share"


@dataclass(frozen=True)
class Measurement:
    """One step of one scenario, for one subject, in one repetition."""

    scenario: str
    variant: str
    subject: str
    repetition: int
    metrics: dict[str, float] = field(default_factory=dict)
    failure: str | None = None


@dataclass
class Results:
    """All measurements of one run."""

    plan: str
    machine: dict[str, str]
    subjects: dict[str, str]
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each scenario took."""
    measurements: list[Measurement] = field(default_factory=list)

    def forget(self, scenarios: Collection[str]) -> None:
        """Drop the measurements of these, to measure them again."""
        self.measurements = [m for m in self.measurements if m.scenario not in scenarios]

    def repetitions(self, scenario: str) -> int:
        """How often Headwater and its nearest peers were measured."""
        return 1 + max(
            (m.repetition for m in self.measurements if m.scenario == scenario), default=0
        )

    def scenarios(self) -> list[str]:
        return list(dict.fromkeys(m.scenario for m in self.measurements if m.metrics))

    def variants(self, scenario: str) -> list[str]:
        found = (m.variant for m in self.measurements if m.scenario == scenario and m.metrics)
        return list(dict.fromkeys(found))

    def subjects_of(self, scenario: str) -> list[str]:
        """Who took part in a scenario: servers in most of them, clients in one."""
        took_part = {m.subject for m in self.measurements if m.scenario == scenario and m.metrics}
        return [name for name in self.subjects if name in took_part]

    def values(self, scenario: str, variant: str, subject: str, metric: str) -> list[float]:
        """The figure of every repetition in which it could be measured."""
        where = (scenario, variant, subject)
        return [
            m.metrics[metric]
            for m in self.measurements
            if (m.scenario, m.variant, m.subject) == where and metric in m.metrics
        ]

    def middle(self, scenario: str, variant: str, subject: str, metric: str) -> float | None:
        """The median over the repetitions."""
        values = self.values(scenario, variant, subject, metric)
        return median(values) if values else None

    def shown(self, scenario: str, variant: str, subject: str, metric: str) -> str:
        """The median as text, marked if it is only a lower bound."""
        bound = "≥ " if self.is_bound(scenario, variant, subject, metric) else ""
        return bound + figure(self.middle(scenario, variant, subject, metric))

    def is_bound(self, scenario: str, variant: str, subject: str, metric: str) -> bool:
        """A time is only a lower bound if some messages never arrived."""
        delivered = self.middle(scenario, variant, subject, "delivered_percent")
        return metric in {"p50_ms", "p99_ms"} and delivered is not None and delivered < 100

    def gain(
        self, scenario: str, variant: str, metric: str, better: Better, reference: str
    ) -> float | None:
        """How many times better Headwater is than ``reference``; below 1 it is worse."""
        ours = self.middle(scenario, variant, HEADWATER, metric)
        theirs = self.middle(scenario, variant, reference, metric)
        if not ours or not theirs or ours < 0 or theirs < 0 or better == "neither":
            return None
        if self.is_bound(scenario, variant, HEADWATER, metric):
            return None  # nobody knows how slow it would have been
        return ours / theirs if better == "higher" else theirs / ours

    def shown_gain(
        self, scenario: str, variant: str, metric: str, better: Better, reference: str
    ) -> str:
        gain = self.gain(scenario, variant, metric, better, reference)
        bound = gain is not None and self.is_bound(scenario, variant, reference, metric)
        return ("≥ " if bound else "") + times(gain)

    def disturbance(self) -> str:
        """How busy the machine was with other things during the measurements."""
        shares = [m.metrics[_OTHERS] for m in self.measurements if _OTHERS in m.metrics]
        if not shares:
            return "not measured"
        return f"{median(shares):.2f} cores (median), {max(shares):.2f} at most"

    def failures(self) -> list[Measurement]:
        return [m for m in self.measurements if m.failure is not None]

    def save(self, path: Path) -> None:
        """Save atomically: a run that is cut short keeps what it saved last."""
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(self._to_json(), encoding="utf-8")
        unfinished.replace(path)

    def _to_json(self) -> str:
        """One line per measurement, so that two runs can be compared line by line."""
        about = asdict(self)
        lines = [json.dumps(m, ensure_ascii=False) for m in about.pop("measurements")]
        head = json.dumps(about, indent=1, ensure_ascii=False).removesuffix("\n}")
        return head + ',\n "measurements": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"

    @classmethod
    def load(cls, path: Path) -> "Results":
        saved = json.loads(path.read_text(encoding="utf-8"))
        measurements = [Measurement(**m) for m in saved.pop("measurements")]
        return cls(**saved, measurements=measurements)


def figure(value: float | None) -> str:
    """A figure with about three significant digits, as people write it."""
    if value is None:
        return "–"
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def times(gain: float | None) -> str:
    return "–" if gain is None else f"{figure(gain)}×"
