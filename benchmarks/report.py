"""The results as tables on the terminal."""

from rich.console import Console
from rich.table import Table

from benchmarks.goals import verdicts
from benchmarks.metrics import SHOWN, TITLES, Metric
from benchmarks.results import HEADWATER, Results


def print_results(results: Results, console: Console) -> None:
    print_machine(results, console)
    for scenario in results.scenarios():
        console.print(_scenario_table(results, scenario))
    if any(gain_columns(results, scenario) for scenario in results.scenarios()):
        console.print("vs: how many times better Headwater is; below 1× it is worse")
    console.print(_goal_table(results))
    for line in failure_lines(results):
        console.print(f"not measured: {line}", markup=False, highlight=False, soft_wrap=True)


def print_machine(results: Results, console: Console) -> None:
    for label, text in results.machine.items():
        console.print(f"[dim]{label:>20}[/]  {text}", highlight=False, soft_wrap=True)


def row_figures(results: Results, scenario: str, variant: str, metric: Metric) -> list[str]:
    """One row without its labels: the figure of each subject, then Headwater's gains."""
    figures = [
        results.shown(scenario, variant, subject, metric.key)
        for subject in results.subjects_of(scenario)
    ]
    gains = [
        results.shown_gain(scenario, variant, metric.key, metric.better, reference)
        for reference in gain_columns(results, scenario)
    ]
    return figures + gains


def rows(results: Results, scenario: str, variant: str) -> list[Metric]:
    """The metrics that somebody has a figure for."""
    subjects = results.subjects_of(scenario)
    return [
        metric
        for metric in SHOWN[scenario]
        if any(results.values(scenario, variant, subject, metric.key) for subject in subjects)
    ]


def gain_columns(results: Results, scenario: str) -> list[str]:
    """Whom Headwater is compared with; nobody when it was not part of the run."""
    subjects = results.subjects_of(scenario)
    return [name for name in subjects if name != HEADWATER] if HEADWATER in subjects else []


def headings(results: Results, scenario: str) -> list[str]:
    gains = [f"vs {results.subjects[name]}" for name in gain_columns(results, scenario)]
    return [results.subjects[name] for name in results.subjects_of(scenario)] + gains


def failure_lines(results: Results) -> list[str]:
    """What could not be measured and why; the same trouble in each repetition is said once."""
    lines = (
        f"{m.scenario}, {m.variant}, {results.subjects[m.subject]}: {m.failure}"
        for m in results.failures()
    )
    return list(dict.fromkeys(lines))


def _scenario_table(results: Results, scenario: str) -> Table:
    table = Table(title=TITLES[scenario], title_justify="left", title_style="bold")
    table.add_column("", no_wrap=True)
    for heading in headings(results, scenario):
        table.add_column(heading, justify="right")
    for variant in results.variants(scenario):
        table.add_row(f"[bold]{variant}[/]")
        shown = rows(results, scenario, variant)
        for metric in shown:
            figures = row_figures(results, scenario, variant, metric)
            table.add_row(f"  {metric.label}", *figures, end_section=metric is shown[-1])
    return table


def _goal_table(results: Results) -> Table:
    table = Table(title="Goals", title_justify="left", title_style="bold")
    table.add_column("goal")
    table.add_column("measured", justify="right")
    table.add_column("")
    words = {True: "[green]met[/]", False: "[red]not met[/]", None: "–"}
    for verdict in verdicts(results):
        table.add_row(verdict.goal, verdict.measured, words[verdict.met])
    return table
