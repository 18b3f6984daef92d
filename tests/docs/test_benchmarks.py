"""What is made of a run of the benchmarks: verdicts, ratios, pages. Nothing is measured here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from benchmarks import machine, markdown, pages, runner
from benchmarks.__main__ import main
from benchmarks.goals import GOALS, Goal, verdicts
from benchmarks.metrics import SHOWN
from benchmarks.plan import FULL, QUICK
from benchmarks.results import HEADWATER, RUST, Measurement, Results
from benchmarks.scenarios import ASKED_FOR, SCENARIOS
from benchmarks.scenarios.base import Context, Step
from benchmarks.subjects import Subject
from benchmarks.summary import ROWS, lines

if TYPE_CHECKING:
    from collections.abc import Generator

LOAD = "16 streams, 64 connections"
MACHINE = {
    "measured": "2026-01-01",
    "CPU": "a CPU, 2 cores",
    "kernel": "a kernel",
    "Headwater": "1.0 on Python 3",
}


def results_of(*measurements: Measurement) -> Results:
    names = {HEADWATER: "Headwater", RUST: "Rust server", "yjs-file": "Yjs server"}
    return Results("full", dict(MACHINE), names, measurements=list(measurements))


def appends(subject: str, per_second: float, repetition: int = 0) -> Measurement:
    return Measurement("append", LOAD, subject, repetition, {"appends_per_second": per_second})


def edits(subject: str, p99_ms: float, delivered: float) -> Measurement:
    metrics = {"p99_ms": p99_ms, "delivered_percent": delivered}
    return Measurement("documents", "200 documents × 5", subject, 0, metrics)


def verdict_of(goal: str, results: Results) -> tuple[str, str, str]:
    [found] = [v for v in verdicts(results) if v.goal == goal]
    return found.wanted, found.measured, found.word


# ── Goals and ratios ─────────────────────────────────────────────────────────────────────────────

BESIDE_RUST = "appends/s over 16 streams, beside the Rust server"


def test_a_goal_compares_medians() -> None:
    ours = [appends(HEADWATER, rate, n) for n, rate in enumerate((100.0, 20_000.0, 15_000.0))]
    met = results_of(*ours, appends(RUST, 20_000))
    assert verdict_of(BESIDE_RUST, met) == ("≥ 0.7×", "0.75×", "met")
    missed = results_of(*ours, appends(RUST, 30_000))
    assert verdict_of(BESIDE_RUST, missed) == ("≥ 0.7×", "0.50×", "missed")


def test_a_goal_without_figures_is_neither_met_nor_missed() -> None:
    assert {v.word for v in verdicts(results_of())} == {"not measured"}
    assert verdict_of(BESIDE_RUST, results_of(appends(HEADWATER, 1)))[2] == "not measured"


def test_a_goal_is_judged_by_its_worst_variant() -> None:
    goal = "keystroke to every other editor, streams: p99"
    figures = {"20 documents": 10.0, "200 documents": 51.0}
    measured = [Measurement("editor", v, HEADWATER, 0, {"p99_ms": ms}) for v, ms in figures.items()]
    assert verdict_of(goal, results_of(*measured)) == ("≤ 50 ms", "51 ms", "missed")


def test_a_peer_that_gave_up_sooner_is_not_faster() -> None:
    """A time that is only a lower bound says nothing beside another one."""
    goal = "keystroke to every other editor, documents: p99 beside the published Yjs server"
    ours_late = results_of(edits(HEADWATER, 5_000, 40), edits("yjs-file", 2_000, 0))
    assert verdict_of(goal, ours_late)[1:] == ("not all arrived", "missed")
    theirs_late = results_of(edits(HEADWATER, 20, 100), edits("yjs-file", 2_000, 0))
    assert verdict_of(goal, theirs_late)[1:] == ("0.01×", "met")


def test_large_bounds_are_written_out() -> None:
    assert Goal("rows", "spark", "", "rows_per_second", at_least=1.5e6).wanted == "≥ 1,500,000×"


def test_goals_and_ratios_name_figures_that_are_taken() -> None:
    for wanted in (*GOALS, *ROWS):
        assert wanted.metric in {metric.key for metric in SHOWN[wanted.scenario]}
    assert len({goal.what for goal in GOALS}) == len(GOALS)


def test_a_ratio_over_one_is_in_favour_of_headwater() -> None:
    figures = {HEADWATER: 4.0, RUST: 8.0}
    measured = [
        Measurement("fanout", "5,000 readers", name, 0, {"server_cpu_us_per_event": cpu})
        for name, cpu in figures.items()
    ]
    [line] = lines(results_of(*measured))
    assert (line.headwater, line.beside, line.ratio) == ("4 µs", "Electric's Rust server", "2×")


# ── Pages ────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pages with nothing between their markers."""
    for name, parts in (("PAGE", ("ratios", "goals", "tables")), ("README", ("ratios",))):
        marked = (
            f"<!-- {part}: written by make generate, do not edit --><!-- {part}: end -->\n"
            for part in parts
        )
        (tmp_path / f"{name}.md").write_text("".join(marked))
        monkeypatch.setattr(pages, name, tmp_path / f"{name}.md")
    monkeypatch.setattr(pages, "RECORD", tmp_path / "record.json")
    return tmp_path


def test_publishing_writes_every_page_and_again_the_same(published: Path) -> None:
    (published / "images").mkdir()
    saved = published / "out" / "results.json"
    failed = Measurement("groups", "durable", RUST, 0, failure="it is not installed")
    results_of(appends(HEADWATER, 15_000), appends(RUST, 20_000), failed).save(saved)
    assert main(["--publish", "--out", str(saved.parent)]) == 0
    page, readme = (published / "PAGE.md").read_text(), (published / "README.md").read_text()
    assert "| 15,000 | Electric's Rust server | 0.75× |" in page
    assert "| 15,000 | Electric's Rust server | 0.75× |" in readme
    assert f"| {BESIDE_RUST} | ≥ 0.7× | 0.75× | met |" in page
    assert f"| {LOAD} | appends/s | 15,000 | 20,000 (0.75×) |" in page
    assert "- groups, durable, Rust server: it is not installed" in page
    assert (published / "images" / "benchmarks.png").stat().st_size > 1_000
    assert pages.generate() == {pages.PAGE: page, pages.README: readme}


def test_a_quick_run_is_not_published(published: Path) -> None:
    quick = results_of(appends(HEADWATER, 15_000))
    quick.plan = QUICK.name
    quick.save(published / "results.json")
    assert main(["--publish", "--out", str(published)]) == 1
    assert not pages.RECORD.exists()


def test_a_page_leaves_out_what_says_nothing() -> None:
    metrics = {"appends_per_second": 1.0, "errors": 0.0, "generator_cpu_share": 0.2}
    table = markdown.tables(results_of(Measurement("append", LOAD, HEADWATER, 0, metrics)), "x.png")
    assert "appends/s" in table
    assert "errors" not in table
    assert "generator" not in table


# ── Runs ─────────────────────────────────────────────────────────────────────────────────────────


def test_results_are_saved_as_they_are(tmp_path: Path) -> None:
    results = results_of(appends(HEADWATER, 1.5), appends(RUST, 2))
    results.seconds["append"] = 3.25
    results.save(tmp_path / "new" / "results.json")
    assert Results.load(tmp_path / "new" / "results.json") == results
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["results.json"]
    lines_of_text = (tmp_path / "new" / "results.json").read_text().splitlines()
    assert sum('"appends_per_second"' in line for line in lines_of_text) == 2


def test_the_whole_run_fits_into_forty_minutes() -> None:
    assert {*FULL.seconds} == {*QUICK.seconds} == {*SCENARIOS}
    assert sum(FULL.minutes(name) for name in SCENARIOS if name not in ASKED_FOR) <= 40


def _subject(name: str, *, once: bool = False) -> Subject:
    return Subject(name, name, True, None, lambda port, data_dir: [], once=once)


def test_a_scenario_that_fails_is_recorded_and_the_next_step_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(context: Context, subject: Subject) -> Generator[Step]:
        yield Step("divides", lambda: {"appends_per_second": 1 / 0})
        yield Step("works", lambda: {"appends_per_second": 1.0})
        raise KeyError("gone")

    monkeypatch.setitem(SCENARIOS, "append", broken)
    results = results_of()
    context = Context(QUICK, tmp_path, False, "python")
    subjects = [_subject(HEADWATER), _subject(RUST)]
    runner.run_scenario("append", context, subjects, results, Console(quiet=True))
    taken = [(m.subject, m.variant, m.failure) for m in results.measurements]
    assert taken == [
        (name, variant, failure)
        for name in (HEADWATER, RUST)
        for variant, failure in (
            ("divides", "ZeroDivisionError: division by zero"),
            ("works", None),
            ("works", "KeyError: 'gone'"),
        )
    ]
    assert list(tmp_path.iterdir()) == []
    assert "append" in results.seconds


def test_some_take_part_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def empty(context: Context, subject: Subject) -> Generator[Step]:
        yield Step("x", lambda: {"appends_per_second": 1.0})

    monkeypatch.setitem(SCENARIOS, "append", empty)
    results = results_of()
    subjects = [_subject(HEADWATER), _subject(RUST, once=True)]
    context = Context(FULL, tmp_path, False, "python")
    runner.run_scenario("append", context, subjects, results, Console(quiet=True))
    turns = [(m.subject, m.repetition) for m in results.measurements]
    assert turns == [(HEADWATER, 0), (RUST, 0), (HEADWATER, 1), (HEADWATER, 2)]


def test_measuring_again_keeps_the_other_scenarios(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(context: Context, subject: Subject) -> Generator[Step]:
        yield Step(LOAD, lambda: {"appends_per_second": 2.0})

    monkeypatch.setitem(SCENARIOS, "append", measured)
    monkeypatch.setattr(machine, "describe", lambda *_: dict(MACHINE))
    saved = tmp_path / "results.json"
    kept = Measurement("fanout", "1,000 readers", HEADWATER, 0, {"events_per_second": 5.0})
    before = results_of(appends(HEADWATER, 1), kept)
    before.plan = "quick"
    before.save(saved)
    arguments = ["--quick", "--skip-reference", "--out", str(tmp_path), "--data", str(tmp_path)]
    assert main([*arguments, "--only", "append", "--add"]) == 0
    after = json.loads(saved.read_text())
    taken = {(m["scenario"], *m["metrics"].values()) for m in after["measurements"]}
    assert taken == {("fanout", 5.0), ("append", 2.0)}
    assert main([*arguments[1:], "--only", "append", "--add"]) == 1, "another plan"


def test_clients_of_others_are_measured_where_there_is_no_headwater() -> None:
    code = "import sys; sys.modules['headwater'] = None; import benchmarks.clients.watch"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(runner.__file__).parents[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
