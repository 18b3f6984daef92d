"""The results as one image: a bar chart for every question."""

import textwrap
from dataclasses import dataclass
from math import floor, log10
from pathlib import Path
from statistics import median

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks.metrics import Better
from benchmarks.results import (
    HEADWATER,
    NATS,
    NGINX,
    PEER_CLIENT,
    PRISMA,
    REDIS,
    SPARK_FROM_JSON,
    SPARK_PARQUET,
    SPARK_READY,
    SPARK_TEXT,
    YJS_FILE,
    YJS_MEMORY,
    Results,
    figure,
)

_COLOURS = {
    HEADWATER: "#0b6fa4",
    "rust": "#b5523b",
    "reference-file": "#e08b2c",
    "reference-memory": "#9aa0a6",
    PEER_CLIENT: "#7a5195",
    REDIS: "#c6302b",
    NATS: "#34a574",
    PRISMA: "#5a67d8",
    NGINX: "#2f7d4f",
    YJS_FILE: "#e08b2c",
    YJS_MEMORY: "#9aa0a6",
    SPARK_READY: "#9aa0a6",
    SPARK_PARQUET: "#e08b2c",
    SPARK_TEXT: "#c9b458",
    SPARK_FROM_JSON: "#7a5195",
}
_COLUMNS = 3
_LABEL_CHARACTERS_PER_PANEL = 78
_BARS_WIDTH = 0.84


@dataclass(frozen=True)
class _Panel:
    """One chart: the metrics it shows for every variant, and the goal to draw as a line."""

    title: str
    scenario: str
    metrics: tuple[tuple[str, str], ...]
    better: Better
    log: bool = True
    goal: float | None = None
    variants: str = ""

    def places(self, results: Results) -> "list[_Place]":
        """Where bars go: the variants with the prefix ``variants``, each with its metrics."""
        return [
            _Place(variant, metric, f"{variant.removeprefix(self.variants)} {suffix}".strip())
            for variant in results.variants(self.scenario)
            if variant.startswith(self.variants)
            for metric, suffix in self.metrics
            if any(results.values(self.scenario, variant, s, metric) for s in results.subjects)
        ]


_RATE = (("messages_per_second", ""),)
_PERCENTILES = (("p50_ms", "p50"), ("p99_ms", "p99"))

_PANELS = (
    _Panel("Appends per second", "append", (("appends_per_second", ""),), "higher"),
    _Panel("Append to SSE delivery, ms", "latency", _PERCENTILES, "lower"),
    _Panel("Keystroke to every other editor, ms", "editor", _PERCENTILES, "lower", goal=50),
    _Panel("Documents, keystroke to editor, ms", "documents", _PERCENTILES, "lower", goal=50),
    _Panel("Fan-out, events per second", "fanout", (("events_per_second", ""),), "higher"),
    _Panel("Server CPU per event, µs", "fanout", (("server_cpu_us_per_event", ""),), "lower"),
    _Panel(
        "Memory per idle SSE reader, KiB",
        "fanout",
        (("memory_kib_per_reader", ""),),
        "lower",
        log=False,
        goal=32,
    ),
    _Panel("Catch-up, MB/s", "catchup", (("mb_per_second", ""),), "higher"),
    _Panel("Start-up, s until ready", "startup", (("ready_seconds", ""),), "lower", log=False),
    _Panel(
        "Memory at rest, MiB", "startup", (("memory_idle_mib", ""),), "lower", log=False, goal=300
    ),
    _Panel("Client reads, messages/s", "client", _RATE, "higher", False, variants="read "),
    _Panel("Client follows, messages/s", "client", _RATE, "higher", False, variants="follow "),
    _Panel("Client produces, messages/s", "client", _RATE, "higher", variants="produce "),
    _Panel(
        "Client memory at most, MiB",
        "client",
        (("peak_mib", ""),),
        "lower",
        log=False,
        variants="memory, ",
    ),
    _Panel(
        "Groups, one by one, messages/s",
        "groups",
        _RATE,
        "higher",
        variants="durable, one by one, ",
    ),
    _Panel(
        "Groups, in batches, messages/s",
        "groups",
        _RATE,
        "higher",
        variants="durable, batches of 100, ",
    ),
    _Panel(
        "Groups, append to member, ms",
        "groups",
        _PERCENTILES,
        "lower",
        variants="durable, 1,000 messages/s",
    ),
    _Panel("Change to live query, ms", "queries", _PERCENTILES, "lower"),
    _Panel(
        "Changes looked at per second",
        "queries",
        (("changes_per_second", ""),),
        "higher",
        goal=20_000,
        variants="100 templates",
    ),
    _Panel(
        "Memory with waiting queries, MiB",
        "queries",
        (("memory_mib", ""),),
        "lower",
        log=False,
        goal=300,
        variants="10,000 waiters",
    ),
    _Panel("History, MB/s", "history", (("mb_per_second", ""),), "higher"),
    _Panel("History, server CPU per GB, s", "history", (("server_cpu_s_per_gb", ""),), "lower"),
    _Panel(
        "Cluster, appends per second", "cluster", (("appends_per_second", ""),), "higher", False
    ),
    _Panel("Spark, rows per second", "spark", (("rows_per_second", ""),), "higher", log=False),
    _Panel("Append to row in Spark, ms", "spark", _PERCENTILES, "lower", variants="micro-batches"),
)


@dataclass(frozen=True)
class _Place:
    """One group of bars: a variant and one of its metrics."""

    variant: str
    metric: str
    label: str


def draw(results: Results, path: Path) -> None:
    """Draw every panel whose scenario was measured."""
    panels = [panel for panel in _PANELS if panel.places(results)]
    if not panels:
        return
    columns = min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    with mpl.rc_context({"font.size": 9, "axes.titlesize": 11, "axes.titleweight": "bold"}):
        picture = Figure(figsize=(6.2 * columns, 3.7 * rows + 0.8), layout="constrained")
        for number, panel in enumerate(panels, start=1):
            _draw_panel(picture.add_subplot(rows, columns, number), panel, results)
        _add_legend(picture, results)
        picture.savefig(path, dpi=110)


def _add_legend(picture: Figure, results: Results) -> None:
    handles: dict[str, Artist] = {}
    for axes in picture.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    picture.legend(handles.values(), handles, loc="outside lower center", ncols=4, frameon=False)
    machine = results.machine
    picture.suptitle(f"{machine['CPU']}, {machine['kernel']}, {machine['measured']}", fontsize=9)


def _draw_panel(axes: Axes, panel: _Panel, results: Results) -> None:
    places = panel.places(results)
    subjects = [
        subject
        for subject in results.subjects
        if any(results.values(panel.scenario, p.variant, subject, p.metric) for p in places)
    ]
    width = _BARS_WIDTH / max(1, len(subjects))
    for order, subject in enumerate(subjects):
        shift = (order - (len(subjects) - 1) / 2) * width
        _draw_bars(axes, panel, places, subject, shift, width, results)
    if panel.goal is not None:
        axes.axhline(panel.goal, color="#b3261e", linewidth=1, linestyle="--", label="goal")
    _decorate(axes, panel, [place.label for place in places])


def _draw_bars(
    axes: Axes,
    panel: _Panel,
    places: list[_Place],
    subject: str,
    shift: float,
    width: float,
    results: Results,
) -> None:
    """The median at each place as a bar, the range of its repetitions as a whisker."""
    for number, place in enumerate(places):
        where = (panel.scenario, place.variant, subject, place.metric)
        values = results.values(*where)
        if not values:
            continue
        middle = median(values)
        bars = axes.bar(
            number + shift,
            middle,
            width,
            yerr=[[middle - min(values)], [max(values) - middle]],
            error_kw={"elinewidth": 0.8, "ecolor": "#444444"},
            color=_COLOURS.get(subject, "#5b8c5a"),
            label=results.subjects[subject],
        )
        axes.bar_label(bars, [results.shown(*where)], padding=2, fontsize=7)


def _decorate(axes: Axes, panel: _Panel, labels: list[str]) -> None:
    if panel.log:
        _use_log_scale(axes, panel)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: figure(value)))
    axes.set_title(panel.title, loc="left")
    scale = ", log scale" if panel.log else ""
    axes.set_title(f"{panel.better} is better{scale}", loc="right", fontsize=8, fontweight="normal")
    characters = max(8, _LABEL_CHARACTERS_PER_PANEL // len(labels))
    wrapped = [textwrap.fill(label, characters) for label in labels]
    axes.set_xticks(range(len(labels)), wrapped, fontsize=8)
    # A single group of bars would otherwise be as wide as the whole panel.
    margin = max(0.5, (3 - len(labels)) / 2)
    axes.set_xlim(-margin, len(labels) - 1 + margin)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)
    axes.margins(y=0.15)


def _use_log_scale(axes: Axes, panel: _Panel) -> None:
    """Start at a whole decade, as bars on a log scale have no zero; leave room for text above."""
    heights = [bar.get_height() for bar in axes.patches if isinstance(bar, Rectangle)]
    shown = [*heights, panel.goal] if panel.goal is not None else heights
    lowest = max(min(shown, default=1), 1e-3)
    highest = axes.get_ylim()[1]
    axes.set_yscale("log")
    axes.set_ylim(10 ** floor(log10(lowest)), highest * 1.6)
    axes.yaxis.set_minor_formatter(NullFormatter())
