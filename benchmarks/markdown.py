"""The results as Markdown: the parts of docs/benchmarks.md and of the README that a run writes."""

from benchmarks.goals import verdicts
from benchmarks.metrics import GENERATOR, GENERATOR_LAG, TITLES, Metric
from benchmarks.report import failure_lines, headings, row_figures, rows
from benchmarks.results import Results
from benchmarks.summary import lines

# Pages are for reading: figures that only validate a measurement are in the results themselves.
_LEFT_OUT = {GENERATOR.key, GENERATOR_LAG.key}
_NOTHING = {"0", "–"}


def summary(results: Results) -> str:
    """A table for the README: Headwater compared with others, as ratios."""
    cells = [[line.what, line.headwater, line.beside, line.ratio] for line in lines(results)]
    about = results.machine
    where = f"Headwater {about['Headwater']}, {about['CPU']}, {about['measured']}."
    return _table("|l|r|l|r", ["", "Headwater", "compared with", "ratio"], cells) + f"\n\n{where}\n"


def goals(results: Results) -> str:
    cells = [[v.goal, v.wanted, v.measured, v.word] for v in verdicts(results)]
    return _table("|l|r|r|l", ["goal", "wanted", "measured", ""], cells) + "\n"


def tables(results: Results, image: str) -> str:
    """Where it was measured, a plot, and every figure."""
    about = [f"- {label}: {text}" for label, text in results.machine.items()]
    blocks = ["\n".join(about), f"![All scenarios as bar charts]({image})"]
    for scenario in results.scenarios():
        repetitions = results.repetitions(scenario)
        blocks.append(f"### {TITLES[scenario]}")
        if repetitions > 1:
            blocks.append(f"The median of {repetitions} turns.")
        blocks.append(_scenario(results, scenario))
    if failed := failure_lines(results):
        blocks += ["### Not measured", "\n".join(f"- {line}" for line in failed)]
    return "\n\n".join(blocks) + "\n"


def _scenario(results: Results, scenario: str) -> str:
    head = headings(results, scenario)
    cells = []
    for variant in results.variants(scenario):
        name = variant
        for metric in rows(results, scenario, variant):
            figures = row_figures(results, scenario, variant, metric)
            if _says_something(metric, figures):
                cells.append([name, metric.label, *figures])
                name = ""
    return _table("|l|l" + "|r" * len(head), ["", "", *head], cells)


def _says_something(metric: Metric, figures: list[str]) -> bool:
    if metric.key in _LEFT_OUT:
        return False
    return metric.key != "errors" or not set(figures) <= _NOTHING


def _table(columns: str, head: list[str], cells: list[list[str]]) -> str:
    """`columns` gives the alignment of each column, left or right."""
    rule = ["---:" if lean == "r" else "---" for lean in columns.replace("|", "")]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *cells])
