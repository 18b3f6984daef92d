"""How tests share the machine: see `tests.support.turns`."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support import turns

PATIENCE_S = 60


class Item:
    """As much of a test as is asked for."""

    def __init__(self, *markers: str, path: str = "tests/core/test_offsets.py") -> None:
        self.markers = markers
        self.path = Path(path)

    def get_closest_marker(self, name: str) -> object:
        return name if name in self.markers else None


@pytest.fixture(autouse=True)
def other_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks of this test's own: the real ones are held while it runs."""
    for name in ("MACHINE", "TURNSTILE"):
        path = tmp_path / name
        path.touch()
        monkeypatch.setattr(turns, name, path)
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")


class Holder:
    """Somebody who takes a turn on a thread of his own, and keeps it until told otherwise."""

    def __init__(self, *markers: str) -> None:
        self.began, self.release = threading.Event(), threading.Event()
        self._item: Any = Item(*markers)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with turns.turn(self._item):
            self.began.set()
            self.release.wait(PATIENCE_S)

    def end(self) -> None:
        assert self.began.wait(PATIENCE_S)
        self.release.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


def test_spark_comes_first_and_alone_last_and_nothing_else_moves() -> None:
    plain, spark, alone = Item(), Item(path="tests/spark/test_up.py"), Item("alone")
    late, long_and_late, long = Item("late"), Item("late", "slow"), Item("slow")
    later: Any = [Item(), alone, late, plain, long_and_late, spark, long]
    assert turns.in_order(later) == [spark, long, later[0], plain, long_and_late, late, alone]


def test_whoever_takes_two_late_tests_has_one_long_one() -> None:
    long: Any = [Item("late", "slow") for _ in range(2)]
    short: Any = [Item("late") for _ in range(4)]
    ordered = turns.in_order([*short, *long])
    assert ordered == [long[0], short[0], long[1], short[1], short[2], short[3]]
    assert turns.in_order([long[0], short[0], long[1]]) == [long[0], short[0], long[1]]


def test_tests_run_beside_each_other() -> None:
    one, two = Holder(), Holder("late")
    assert one.began.wait(PATIENCE_S)
    assert two.began.wait(PATIENCE_S)
    one.end()
    two.end()


def test_one_that_is_alone_waits_for_those_that_run() -> None:
    running = Holder()
    assert running.began.wait(PATIENCE_S)
    alone = Holder("alone")
    assert not alone.began.wait(0.1)
    running.end()
    alone.end()


def test_nobody_runs_beside_one_that_is_alone() -> None:
    alone = Holder("alone")
    assert alone.began.wait(PATIENCE_S)
    others = [Holder(), Holder("alone")]
    assert not any(other.began.wait(0.1) for other in others)
    alone.end()
    # Which of them comes first is open, so neither may keep the other waiting.
    for other in others:
        other.release.set()
    for other in others:
        other.end()


def test_one_that_is_alone_is_not_overtaken() -> None:
    running = Holder()
    assert running.began.wait(PATIENCE_S)
    alone = Holder("alone")
    # It holds the turnstile as soon as it waits for the machine.
    assert not alone.began.wait(0.1)
    late = Holder()
    assert not late.began.wait(0.1)
    running.end()
    alone.end()
    late.end()
