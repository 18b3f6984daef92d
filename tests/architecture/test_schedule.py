"""Which worker gets which tests: see `tests.support.schedule`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.schedule import OWN_SPARK, SPARK, Schedule

ROOT = Path(__file__).parents[2]


class Worker:
    """As much of a worker as is asked for. It runs a test as soon as it knows the next one."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.queue: list[int] = []
        self.ran: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        assert not self.shutting_down
        self.queue += indices

    def shutdown(self) -> None:
        self.shutting_down = True

    def runs(self) -> int | None:
        if not self.queue or (len(self.queue) == 1 and not self.shutting_down):
            return None
        self.ran.append(self.queue.pop(0))
        return self.ran[-1]


@pytest.fixture
def config(request: pytest.FixtureRequest) -> Any:
    option = SimpleNamespace(tx=["4*popen"], maxschedchunk=None)
    return SimpleNamespace(
        getvalue=lambda name: getattr(option, name),
        getoption=lambda name: getattr(option, name),
        hook=request.config.hook,
    )


def begin(config: pytest.Config, tests: list[str]) -> tuple[Schedule, list[Worker]]:
    schedule, workers = Schedule(config), [Worker(f"gw{number}") for number in range(4)]
    for worker in workers:
        schedule.add_node(cast(Any, worker))
        schedule.add_node_collection(cast(Any, worker), tests)
    schedule.schedule()
    return schedule, workers


def run(schedule: Schedule, workers: list[Worker]) -> None:
    """In turns, until nobody has anything to do."""
    busy = True
    while busy:
        busy = False
        for worker in workers:
            if (index := worker.runs()) is not None:
                busy = True
                schedule.mark_test_complete(cast(Any, worker), index)


def named(path: str, count: int) -> list[str]:
    return [f"{path}::test_{number}" for number in range(count)]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 9, 100, 3_000])
@pytest.mark.parametrize("shared, own", [(0, 0), (1, 0), (0, 1), (5, 3), (60, 9)])
def test_every_test_runs_once(config: pytest.Config, count: int, shared: int, own: int) -> None:
    tests = named(f"{SPARK}test_sink.py", shared) + named(f"{SPARK}test_connect.py", own)
    tests += named("tests/core/test_offsets.py", count)
    schedule, workers = begin(config, tests)
    run(schedule, workers)
    assert sorted(index for worker in workers for index in worker.ran) == [*range(len(tests))]
    assert schedule.tests_finished
    assert not schedule.has_pending
    assert not tests or all(worker.shutting_down for worker in workers)


def test_one_worker_has_the_session_and_another_starts_sparks(config: pytest.Config) -> None:
    tests = named(f"{SPARK}test_sink.py", 20) + named(f"{SPARK}test_connect.py", 20)
    tests += named("tests/core/test_offsets.py", 500)
    schedule, workers = begin(config, tests)
    run(schedule, workers)
    assert workers[0].ran[:20] == [*range(20)]
    assert workers[1].ran[:20] == [*range(20, 40)]


def test_nobody_has_much_left_in_the_end(config: pytest.Config) -> None:
    schedule, workers = begin(config, named("tests/core/test_offsets.py", 3_000))
    assert [len(worker.queue) for worker in workers] == [2, 2, 2, 2]
    longest = 0
    while schedule.pending:
        for worker in workers:
            index = worker.runs()
            assert index is not None, "it waits while there is something to do"
            schedule.mark_test_complete(cast(Any, worker), index)
        longest = max(longest, *(len(worker.queue) for worker in workers))
    assert longest > 20, "neighbours are torn apart"
    assert all(len(worker.queue) <= 3 for worker in workers)


def test_most_files_are_not_cut_in_two(config: pytest.Config) -> None:
    tests = [test for number in range(100) for test in named(f"tests/test_{number}.py", 30)]
    schedule, workers = begin(config, tests)
    run(schedule, workers)
    whole = sum(
        any({*range(first, first + 30)} <= {*worker.ran} for worker in workers)
        for first in range(0, 3_000, 30)
    )
    assert whole > 60


def test_what_a_worker_that_dies_had_to_do_is_done_by_others(config: pytest.Config) -> None:
    tests = named(f"{SPARK}test_sink.py", 9) + named("tests/core/test_offsets.py", 90)
    schedule, workers = begin(config, tests)
    dead = workers.pop(0)
    lost = schedule.remove_node(cast(Any, dead))
    assert lost == tests[0]
    run(schedule, workers)
    assert sorted(index for worker in workers for index in worker.ran) == [*range(1, len(tests))]


def test_those_that_start_a_spark_share_none() -> None:
    for name in OWN_SPARK:
        assert "spark: SparkSession" not in (ROOT / name).read_text()
