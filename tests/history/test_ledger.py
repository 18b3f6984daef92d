"""When rows become history, and which of them share a file."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headwater.core.limits import MIB
from headwater.core.stream import Appended
from headwater.store.history.ledger import Due, Ledger, into_files
from headwater.store.history.policies import SealPolicy

POLICY = SealPolicy(after_bytes=100, after_ms=1_000, database_bytes_max=10_000, segment_bytes=500)


def ledger(*runs: tuple[int, int, int]) -> Ledger:
    kept = Ledger()
    kept.survey(runs)
    return kept


def test_a_stream_with_much_in_rows_is_due_and_takes_along_what_will_be_before_long() -> None:
    assert ledger((1, 99, 50), (2, 50, 50)).due(POLICY, 60) == []
    kept = ledger((1, 49, 50), (2, 100, 50), (3, 50, 50))
    assert kept.due(POLICY, 60) == [(2, 100), (3, 50)]


def test_long_streams_that_fill_a_file_are_due_together() -> None:
    policy = SealPolicy(after_ms=10**9, segment_bytes=16 * MIB)
    few = (1, 4 * MIB, 50), (2, 5 * MIB, 50), (4, 2 * MIB, 50), (5, 2 * MIB - 1, 50)
    assert ledger(*few, (3, 4 * MIB - 1, 50)).due(policy, 60) == [], "the third is too short"
    kept = ledger(*few, (3, 4 * MIB, 50))
    assert [one.run for one in kept.due(policy, 60)] == [1, 2, 3, 4]


def test_short_streams_do_not_fill_a_file_however_little_makes_one_due() -> None:
    policy = SealPolicy(after_bytes=3 * MIB, after_ms=10**9, segment_bytes=5 * MIB)
    assert ledger(*((run, 2 * MIB - 1, 50) for run in range(9))).due(policy, 60) == []
    assert len(ledger(*((run, 2 * MIB, 50) for run in range(2))).due(policy, 60)) == 2


def test_streams_are_examined_for_a_file_only_after_more_has_come() -> None:
    policy = SealPolicy(after_ms=10**9, segment_bytes=16 * MIB)
    kept = ledger((0, 4 * MIB, 50), *((run, 3 * MIB, 50) for run in range(1, 6)))
    counted = kept._runs = Counted(kept._runs)
    assert kept.due(policy, 60) == []
    assert kept.due(policy, 61) == []
    assert counted.looks == 1
    kept.survey([(run, MIB, 50) for run in range(6)])
    assert len(kept.due(policy, 62)) == 6


def test_an_old_row_is_due_and_takes_along_what_will_be_before_long() -> None:
    kept = ledger((1, 5, 1_000), (2, 5, 1_499), (3, 5, 1_501))
    assert kept.due(POLICY, 1_999) == []
    assert kept.due(POLICY, 2_000) == [(1, 5), (2, 5)]


def test_the_largest_go_when_all_together_are_too_much() -> None:
    policy = replace(POLICY, after_bytes=10**9, database_bytes_max=150)
    kept = ledger((1, 60, 50), (2, 90, 50), (3, 70, 50))
    assert kept.due(policy, 60) == [(2, 90), (3, 70)], "until half of it is left"
    assert kept.due(replace(policy, database_bytes_max=219), 60) == [(2, 90), (3, 70)]
    assert kept.due(replace(policy, database_bytes_max=220), 60) == []
    assert kept.due(replace(policy, database_bytes_max=59), 60) == [(1, 60), (2, 90), (3, 70)]


def test_commits_are_noted_from_the_start_on() -> None:
    kept = Ledger()
    kept.note([Appended(1, 0, b"x" * 200, 0, 1, 50)])
    assert kept.due(POLICY, 60) == [], "those before it are in the survey"
    kept.keep()
    kept.note([Appended(1, 200, b"x" * 60, 1, 1, 55), Appended(1, 260, b"x" * 60, 2, 1, 58)])
    assert kept.due(POLICY, 60) == [(1, 120)]
    kept.survey([(1, 200, 50)])
    assert kept.due(POLICY, 60) == [(1, 320)]


def test_what_is_committed_while_somebody_looks_is_not_forgotten() -> None:
    kept = ledger((1, 200, 50), (2, 200, 50), (3, 200, 50))
    kept.keep()
    kept.look([1, 2])
    # The database was asked just before this.
    kept.note([Appended(run, 200, b"x" * 60, 1, 1, 55) for run in (1, 2, 3)])
    kept.note([Appended(1, 260, b"x" * 60, 2, 1, 58)])
    kept.settle(1, None)
    kept.settle(2, (70, 40))
    assert kept.due(POLICY, 60) == [(1, 120), (2, 130), (3, 260)]
    kept.look([1])
    kept.settle(1, None)
    assert kept.due(POLICY, 60) == [(2, 130), (3, 260)]


def test_what_was_sealed_is_not_due_any_more() -> None:
    kept = ledger((1, 200, 50), (2, 200, 50))
    kept.settle(1, None)
    kept.settle(2, (30, 59))
    assert kept.due(POLICY, 60) == []
    assert kept.due(POLICY, 1_059) == [(2, 30)]


def test_damaged_runs_are_left_alone() -> None:
    kept = ledger((1, 200, 50), (2, 200, 50))
    kept.keep()
    kept.bar(1)
    kept.settle(1, (200, 50))
    kept.note([Appended(1, 0, b"x" * 200, 0, 1, 50)])
    assert kept.due(POLICY, 10**6) == [(2, 200)]


def test_what_was_sealed_of_a_longer_run_is_taken_off() -> None:
    kept = ledger((1, 300, 50), (2, 60, 55))
    kept.seal(1, 150, 58)
    assert kept.due(POLICY, 60) == [(1, 150), (2, 60)]
    kept.seal(1, 120, 59)
    kept.seal(7, 120, 59)
    assert kept.due(POLICY, 60) == []
    assert kept.due(replace(POLICY, after_ms=1), 60) == [(1, 30), (2, 60)]
    kept.seal(1, 31, 60)
    assert kept.due(replace(POLICY, after_ms=1), 61) == [(1, 0), (2, 60)], "looked at once more"


SEGMENT = 8 * MIB


@given(st.lists(st.integers(1, 20 * MIB), max_size=30))
def test_every_file_has_a_share_of_each_run(found: list[int]) -> None:
    due = [Due(run, size) for run, size in enumerate(found)]
    files = into_files(due, SEGMENT)
    taken: Counter[int] = Counter()
    for file in files:
        assert len({one.run for one in file}) == len(file) > 0
        assert len(file) == 1 or sum(one.size_bytes for one in file) <= SEGMENT
        taken.update({one.run: one.size_bytes for one in file})
    assert taken == Counter({one.run: one.size_bytes for one in due})
    shares: defaultdict[int, list[int]] = defaultdict(list)
    for file in files:
        for run, size in file:
            shares[run].append(size)
    for run, sizes in shares.items():
        assert all(size >= min(MIB, found[run]) for size in sizes[:-1])
        assert max(sizes) <= max(MIB, SEGMENT)


def test_a_run_that_is_only_to_be_looked_at_is_in_a_file() -> None:
    assert into_files([Due(1, 0)], SEGMENT) == [[Due(1, 0)]]


def test_streams_of_one_size_go_side_by_side() -> None:
    due = [Due(run, 32 * MIB) for run in range(16)]
    files = into_files(due, 64 * MIB)
    assert files == [[Due(run, 4 * MIB) for run in range(16)]] * 8


@given(st.lists(st.integers(1, 900), max_size=40))
def test_small_runs_are_not_divided_and_no_two_files_could_have_been_one(found: list[int]) -> None:
    due = [Due(run, size) for run, size in enumerate(found)]
    files = into_files(due, 500)
    assert sorted(one for file in files for one in file) == due
    totals = [sum(one.size_bytes for one in file) for file in files]
    assert all(len(file) == 1 or total <= 500 for file, total in zip(files, totals, strict=True))
    firsts = [file[0].size_bytes for file in files]
    assert all(total + first > 500 for total, first in zip(totals, firsts[1:], strict=False))


def test_many_little_streams_make_few_files() -> None:
    due = [Due(run, 100) for run in range(100_000)]
    assert len(into_files(due, SealPolicy().segment_bytes)) == 1


class Counted(dict[int, tuple[int, int]]):
    """Counts how often all of it is looked at."""

    looks = 0

    def items(self) -> Any:
        self.looks += 1
        return super().items()


def test_runs_are_looked_at_only_when_something_may_be_due() -> None:
    kept = ledger(*((run, 50, 1_000) for run in range(100)))
    counted = kept._runs = Counted(kept._runs)
    for now_ms in range(1_000, 1_999):
        assert kept.due(POLICY, now_ms) == []
    assert counted.looks == 0
    assert len(kept.due(POLICY, 2_000)) == 100
    for run in range(100):
        kept.settle(run, None if run else (50, 1_900))
    assert (kept.due(POLICY, 2_000), kept.due(POLICY, 2_001), counted.looks) == ([], [], 2)


STEPS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(1, 60), st.integers(0, 3_000), st.sampled_from("ask"))
)


@given(STEPS, st.integers(20, 300))
def test_what_is_due_does_not_depend_on_what_was_asked_before(
    steps: list[tuple[int, int, int, str]], database_bytes_max: int
) -> None:
    policy = replace(POLICY, database_bytes_max=database_bytes_max)
    kept, model = Ledger(), dict[int, tuple[int, int]]()
    for run, size, at_ms, what in steps:
        if what == "a":
            kept.survey([(run, size, at_ms)])
            before = model.get(run, (0, at_ms))
            model[run] = (before[0] + size, min(before[1], at_ms))
        elif what == "s":
            kept.settle(run, None)
            model.pop(run, None)
        else:
            fresh = ledger(*((run, *rest) for run, rest in model.items()))
            fresh._largest = 10**9  # has it look at every run
            assert sorted(kept.due(policy, at_ms)) == sorted(fresh.due(policy, at_ms))
