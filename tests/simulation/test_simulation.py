"""A few seeds of the simulation; `make sim SEED=…` runs others."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.simulation.simulation import Scale, simulate
from tests.support import seeds

SCALE = Scale(clients=16, steps=25, phases=3)


@pytest.mark.parametrize("seed", seeds.several(50))
def test_nothing_goes_wrong(seed: int) -> None:
    outcome = simulate(seed, SCALE)
    assert outcome.transactions > 50
    assert sum(outcome.counts.values()) > 300


def test_a_run_has_seen_everything_that_can_happen() -> None:
    """Else the simulation would prove less than it seems to."""
    seen = {what for seed in range(8) for what in simulate(seed, SCALE).counts}
    for what in (
        "append done",
        "append StorageUnavailable",
        "append StreamNotFound",
        "append StreamClosed",
        "create done",
        "create ConfigConflict",
        "create PathReserved",
        "produce done",
        "produce StorageUnavailable",
        "fork done",
        "fork SourceDeleted",
        "fork UnknownOffset",
        "delete done",
        "read done",
        "read UnknownOffset",
        "read StreamGone",
        "close done",
        "append NoAnswer",
        "supply done",
        "fetch done",
        "fetch StorageUnavailable",
        "fetch StreamNotFound",
        "move done",
        "move StorageUnavailable",
        "move StaleReceipts",
        "move NoAnswer",
        "acknowledge done",
        "acknowledge StorageUnavailable",
        "return done",
        "reject done",
        "join done",
        "disband done",
        "seek done",
        "click done",
        "click SequenceGap",
        "click lost",
        "clear done",
        "clear StorageUnavailable",
        "look done",
    ):
        assert what in seen, what


def test_one_seed_gives_one_trace() -> None:
    assert simulate(99, SCALE).trace == simulate(99, SCALE).trace
    assert simulate(99, SCALE).trace != simulate(100, SCALE).trace


def test_it_is_the_same_in_another_process() -> None:
    """Nothing depends on addresses, hashes or the clock of the machine."""
    arguments = ["5", "--clients", "6", "--steps", "10", "--phases", "1", "--trace"]
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(2)]
    assert runs[0].stdout == runs[1].stdout
    trace = simulate(5, Scale(clients=6, steps=10, phases=1)).trace
    assert runs[0].stdout.splitlines()[: len(trace)] == trace
