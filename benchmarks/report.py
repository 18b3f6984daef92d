"""The results as tables on the terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.goals import verdicts
from benchmarks.metrics import SHOWN, TITLES, Metric
from benchmarks.plan import Plan
from benchmarks.results import HEADWATER, Results


def print_results(results: Results, console: Console) -> None:
    print_machine(results, console)
    for scenario in results.scenarios():
        console.print(_scenario_table(results, scenario))
    if any(gain_columns(results, scenario) for scenario in results.scenarios()):
        console.print("(2×): Headwater is twice as good; below 1× it is worse")
    console.print(_goal_table(results))
    for line in failure_lines(results):
        console.print(f"not measured: {line}", markup=False, highlight=False, soft_wrap=True)


def print_machine(results: Results, console: Console) -> None:
    for label, text in results.machine.items():
        console.print(f"[dim]{label:>20}[/]  {text}", highlight=False, soft_wrap=True)


def print_plan(plan: Plan, scenarios: Sequence[str], console: Console) -> None:
    """What is about to run and about how long it takes."""
    whole = 0.0
    for name in scenarios:
        repetitions = plan.repetitions_of(name)
        minutes = plan.minutes(name)
        whole += minutes
        turns = "once" if repetitions == 1 else f"{repetitions} times"
        console.print(f"{name:>20}  {turns}, about {minutes:.1f} minutes", highlight=False)
    console.print(f"{'all':>20}  about {whole:.0f} minutes on two quiet cores", highlight=False)


def row_figures(results: Results, scenario: str, variant: str, metric: Metric) -> list[str]:
    """One row without its labels: the figure of each subject, a peer's with Headwater's gain."""
    peers = gain_columns(results, scenario)
    cells = []
    for subject in results.subjects_of(scenario):
        shown = results.shown(scenario, variant, subject, metric.key)
        key, better = metric.key, metric.better
        if subject in peers and results.gain(scenario, variant, key, better, subject) is not None:
            shown += f" ({results.shown_gain(scenario, variant, key, better, subject)})"
        cells.append(shown)
    return cells


def rows(results: Results, scenario: str, variant: str) -> list[Metric]:
    """The metrics for which there is any figure."""
    subjects = results.subjects_of(scenario)
    return [
        metric
        for metric in SHOWN[scenario]
        if any(results.values(scenario, variant, subject, metric.key) for subject in subjects)
    ]


def gain_columns(results: Results, scenario: str) -> list[str]:
    """The peers that Headwater is compared with; empty if it was not part of the run."""
    subjects = results.subjects_of(scenario)
    return [name for name in subjects if name != HEADWATER] if HEADWATER in subjects else []


def headings(results: Results, scenario: str) -> list[str]:
    return [results.subjects[name] for name in results.subjects_of(scenario)]


def failure_lines(results: Results) -> list[str]:
    """What could not be measured and why; the same reason in each repetition is given once."""
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
    table.add_column("wanted", justify="right")
    table.add_column("measured", justify="right")
    table.add_column("")
    colours = {True: "green", False: "red", None: "dim"}
    for verdict in verdicts(results):
        word = f"[{colours[verdict.met]}]{verdict.word}[/]"
        table.add_row(verdict.goal, verdict.wanted, verdict.measured, word)
    return table
