"""Takes every measurement of a run, one server at a time."""

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.markup import escape

from benchmarks.errors import BenchmarkError
from benchmarks.metrics import SHOWN
from benchmarks.results import Measurement, Results, figure
from benchmarks.scenarios import SCENARIOS
from benchmarks.scenarios.base import Context, Step
from benchmarks.subjects import Subject

_PLAIN: dict[str, Any] = {"highlight": False, "soft_wrap": True}


def run_scenario(
    name: str, context: Context, subjects: Sequence[Subject], results: Results, console: Console
) -> None:
    """Measure all subjects, interleaved, so that a disturbance of the machine affects all."""
    started = time.monotonic()
    work_dir = context.work_dir / name
    work_dir.mkdir()
    for repetition in range(context.plan.repetitions_of(name)):
        taking_part = [s for s in subjects if repetition == 0 or not s.once]
        if not taking_part:
            break
        # The order rotates with each repetition, so that none always runs right after another.
        first = repetition % len(taking_part)
        turn = replace(context, work_dir=work_dir, repetition=repetition)
        for subject in [*taking_part[first:], *taking_part[:first]]:
            os.sync()  # one subject's writes must not become the next one's work
            _run_subject(name, turn, subject, results, console)
    shutil.rmtree(work_dir, ignore_errors=True)
    results.seconds[name] = time.monotonic() - started


def _run_subject(
    name: str,
    context: Context,
    subject: Subject,
    results: Results,
    console: Console,
) -> None:
    variant = "preparation"
    try:
        with closing(SCENARIOS[name](context, subject)) as steps:
            for step in steps:
                variant = step.variant
                measurement = _take(name, step, subject, context.repetition)
                results.measurements.append(measurement)
                _say(measurement, results, console)
    except Exception as error:  # outside the steps: the server did not start, or failed to stop
        failed = Measurement(
            name, variant, subject.name, context.repetition, failure=_reason(error)
        )
        results.measurements.append(failed)
        _say(failed, results, console)


def _take(name: str, step: Step, subject: Subject, repetition: int) -> Measurement:
    measured = step.subject or subject.name
    try:
        metrics = step.take()
    except Exception as error:
        return Measurement(name, step.variant, measured, repetition, failure=_reason(error))
    return Measurement(name, step.variant, measured, repetition, metrics)


def _reason(error: Exception) -> str:
    """Report whatever went wrong, and continue with the next measurement."""
    return str(error) if isinstance(error, BenchmarkError) else f"{type(error).__name__}: {error}"


def _say(measurement: Measurement, results: Results, console: Console) -> None:
    label = results.subjects[measurement.subject]
    where = f"[dim]{measurement.repetition + 1}[/] {label:<24} {measurement.variant:<34}"
    if measurement.failure is not None:
        console.print(f"{where} [red]{escape(measurement.failure)}[/]", **_PLAIN)
        return
    shown = (m for m in SHOWN[measurement.scenario] if m.key in measurement.metrics)
    figures = [f"{figure(measurement.metrics[m.key])} {m.label}" for m in shown]
    console.print(f"{where} {', '.join(figures[:3])}", **_PLAIN)
