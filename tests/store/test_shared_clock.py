"""The time of day that nodes share."""

from __future__ import annotations

import pytest

from headwater.store.postgresql.clock import SharedClock

TODAY_MS = 1_800_000_000_000


class Machine:
    """A monotonic clock that is set by hand."""

    s = 100.0

    def __call__(self) -> int:
        return int(self.s * 1e9)


def told() -> tuple[SharedClock, Machine]:
    machine = Machine()
    clock = SharedClock(machine)
    clock.tell(TODAY_MS, 99.9, 100.0)
    return clock, machine


def test_it_goes_on_by_itself() -> None:
    clock, machine = told()
    assert clock() == TODAY_MS
    machine.s += 2.5
    assert clock() == TODAY_MS + 2_500


@pytest.mark.parametrize("slow_s", [0.0, 0.05, 30.0])
def test_a_slow_answer_moves_nothing(slow_s: float) -> None:
    clock, machine = told()
    machine.s = 101.0 + slow_s
    # Whenever it was said between question and answer.
    for said_ms in (TODAY_MS + 1_000, TODAY_MS + 1_000 + int(slow_s * 1000)):
        clock.tell(said_ms, 101.0, machine.s)
        assert clock() == TODAY_MS + 1_000 + int(slow_s * 1000)


@pytest.mark.parametrize("jump_ms", [-86_400_000, -3_000, 3_000, 86_400_000])
def test_it_follows_a_jump(jump_ms: int) -> None:
    clock, machine = told()
    machine.s = 101.0
    clock.tell(TODAY_MS + 1_000 + jump_ms, 100.9, 101.0)
    assert abs(clock() - (TODAY_MS + 1_000 + jump_ms)) <= 100
