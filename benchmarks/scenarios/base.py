"""The building blocks of scenarios."""

import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load.process import Result
from benchmarks.plan import Plan
from benchmarks.servers import Server, running
from benchmarks.subjects import Subject


@dataclass(frozen=True)
class Step:
    """One measurement that a scenario is ready to take: its name, and how to take it."""

    variant: str
    take: Callable[[], Result]
    subject: str | None = None
    """Who is measured, if it is not the server that the scenario was given."""


@dataclass(frozen=True)
class Context:
    """What a scenario may use: the sizes, a place for data, and the load generator for appends."""

    plan: Plan
    work_dir: Path
    use_wrk: bool
    python: str
    """The interpreter that runs Headwater's server and client."""
    compare: bool = True
    """Whether others are measured too."""
    repetition: int = 0

    @contextmanager
    def fresh_server(self, subject: Subject) -> Iterator[Server]:
        """A ready server with an empty data directory, which is removed afterwards."""
        data_dir = self.work_dir / subject.name
        try:
            with running(subject, data_dir) as server:
                server.await_ready()
                yield server
        finally:
            shutil.rmtree(data_dir, ignore_errors=True)

    def kept_dir(self, subject: Subject, scenario: str) -> Path:
        """A data directory that stays until the end of the run, for expensive preparations."""
        return self.work_dir / f"{scenario}-{subject.name}"


Scenario = Callable[[Context, Subject], Generator[Step]]
"""Yields its steps one after the other and keeps the server running in between."""
