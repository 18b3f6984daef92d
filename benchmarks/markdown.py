"""The results as Markdown, put into a marked block of a document."""

import shutil
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.goals import verdicts
from benchmarks.metrics import TITLES
from benchmarks.plot import PLOT_NAME
from benchmarks.report import failure_lines, headings, row_figures, rows
from benchmarks.results import Results

BEGIN = "<!-- results: begin -->"
END = "<!-- results: end -->"
IMAGE = Path("images") / "benchmarks.png"


def render_into(document: Path, results_dir: Path) -> None:
    """Replace the marked block of ``document`` and copy the plot beside it."""
    before, begin, rest = document.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BenchmarkError(f"{document} has no block between '{BEGIN}' and '{END}'")
    image = _copy_plot(results_dir, document.parent)
    text = "\n\n".join([BEGIN, *_blocks(Results.load(results_dir), image), END])
    document.write_text(before + text + after)


def _copy_plot(results_dir: Path, document_dir: Path) -> Path | None:
    plot = results_dir / PLOT_NAME
    if not plot.exists():
        return None
    target = document_dir / IMAGE
    target.parent.mkdir(exist_ok=True)
    shutil.copyfile(plot, target)
    return IMAGE


def _blocks(results: Results, image: Path | None) -> list[str]:
    machine = [f"- {label}: {text}" for label, text in results.machine.items()]
    times = "once" if results.repetitions == 1 else f"{results.repetitions} times"
    blocks = ["\n".join([f"- plan: {results.plan}, measured {times}", *machine])]
    if image is not None:
        blocks.append(f"![All scenarios as bar charts]({image.as_posix()})")
    blocks += ["### Goals", _goals(results)]
    for scenario in results.scenarios():
        blocks += [f"### {TITLES[scenario]}", _scenario(results, scenario)]
    if results.failures():
        blocks += ["### Not measured", "\n".join(f"- {line}" for line in failure_lines(results))]
    return blocks


def _goals(results: Results) -> str:
    words = {True: "met", False: "**not met**", None: "–"}
    cells = [[v.goal, v.measured, words[v.met]] for v in verdicts(results)]
    return _table(["goal", "measured", ""], cells, labels=1)


def _scenario(results: Results, scenario: str) -> str:
    cells = [
        [
            variant if index == 0 else "",
            metric.label,
            *row_figures(results, scenario, variant, metric),
        ]
        for variant in results.variants(scenario)
        for index, metric in enumerate(rows(results, scenario, variant))
    ]
    return _table(["", "", *headings(results, scenario)], cells, labels=2)


def _table(head: list[str], cells: list[list[str]], labels: int) -> str:
    rule = ["---"] * labels + ["---:"] * (len(head) - labels)
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *cells])
