"""Idempotent producers, against a model that remembers every request it ever accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import (
    EpochMustStartAtZero,
    InvalidHeader,
    SequenceGap,
    StaleEpoch,
    TooManyProducers,
)
from headwater.core.limits import PRODUCER_ID_CHARS_MAX, PRODUCER_NUMBER_MAX
from headwater.core.producers import (
    USED_STEP_MS,
    ProducerLimits,
    ProducerStamp,
    ProducerState,
    check_epoch,
    is_duplicate,
    parse_stamp,
    state_after,
    worth_waiting,
)
from tests.support.models import ProducerHistory
from tests.support.properties import THOROUGH

Answer = tuple[str, int | None]


def answer(known: ProducerState | None, stamp: ProducerStamp) -> Answer:
    try:
        check_epoch(known, stamp)
        return ("duplicate" if is_duplicate(known, stamp) else "accepted"), None
    except StaleEpoch as error:
        return "stale", error.current
    except EpochMustStartAtZero:
        return "must start at zero", None
    except SequenceGap as error:
        return "gap", error.expected


@THOROUGH
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=40))
def test_every_answer_is_the_one_that_the_whole_history_gives(
    requests: list[tuple[int, int]],
) -> None:
    history = ProducerHistory()
    known: ProducerState | None = None
    for epoch, seq in requests:
        stamp = ProducerStamp("p", epoch, seq)
        got = answer(known, stamp)
        assert got == history.answer(epoch, seq)
        if got[0] == "accepted":
            known = ProducerState(epoch, seq)
            history.accepted.append((epoch, seq))


@THOROUGH
@given(st.lists(st.integers(0, 30), max_size=60), st.integers(0, 5))
def test_what_is_accepted_in_an_epoch_is_an_unbroken_sequence(seqs: list[int], epoch: int) -> None:
    known: ProducerState | None = None
    accepted: list[int] = []
    for seq in seqs:
        if answer(known, ProducerStamp("p", epoch, seq))[0] == "accepted":
            known = ProducerState(epoch, seq)
            accepted.append(seq)
    assert accepted == list(range(len(accepted)))


@THOROUGH
@given(st.integers(0, 20), st.integers(0, 40), st.integers(0, 10))
def test_only_a_gap_within_the_window_is_worth_a_wait(
    expected: int, received: int, window: int
) -> None:
    gap = SequenceGap(expected, received)
    assert worth_waiting(gap, window) == (received in range(expected + 1, expected + window + 1))


# ── Headers ──────────────────────────────────────────────────────────────────────────────────


@THOROUGH
@given(st.text(min_size=1, max_size=256), st.integers(0, 2**53 - 1), st.integers(0, 2**53 - 1))
def test_three_good_headers_make_a_stamp(id_: str, epoch: int, seq: int) -> None:
    assert parse_stamp(id_, str(epoch), str(seq)) == ProducerStamp(id_, epoch, seq)


def test_no_headers_make_none() -> None:
    assert parse_stamp(None, None, None) is None


@pytest.mark.parametrize(
    "id_, epoch, seq",
    [
        ("p", None, None),
        (None, "0", None),
        (None, None, "0"),
        ("p", "0", None),
        ("p", None, "0"),
        (None, "0", "0"),
    ],
)
def test_some_without_the_others_are_refused(
    id_: str | None, epoch: str | None, seq: str | None
) -> None:
    with pytest.raises(InvalidHeader):
        parse_stamp(id_, epoch, seq)


@pytest.mark.parametrize("id_", ["", "x" * 257])
def test_an_id_has_a_sensible_length(id_: str) -> None:
    with pytest.raises(InvalidHeader, match="Producer-Id"):
        parse_stamp(id_, "0", "0")


@pytest.mark.parametrize(
    "number",
    ["", "-1", "+1", "1.0", "1e3", " 1", "1 ", "0x1", "٣", "²", str(2**53), "9" * 17, "9" * 5_000],
)
def test_numbers_are_plain_digits_within_bounds(number: str) -> None:
    with pytest.raises(InvalidHeader, match="Producer-Epoch"):
        parse_stamp("p", number, "0")
    with pytest.raises(InvalidHeader, match="Producer-Seq"):
        parse_stamp("p", "0", number)


# ── Forgetting ───────────────────────────────────────────────────────────────────────────────


@THOROUGH
@given(st.integers(0, 2**45), st.integers(3_600_000, 2**40), st.integers(0, 2**41))
def test_a_producer_is_forgotten_when_its_time_is_over_or_within_the_hour(
    used_ms: int, idle_ms: int, later_ms: int
) -> None:
    limits = ProducerLimits(idle_ms, 10)
    known = state_after(ProducerStamp("p", 1, 2), used_ms)
    remembered = limits.remembered(known, used_ms + later_ms) is known
    assert remembered or later_ms > idle_ms
    assert not remembered or later_ms <= idle_ms + USED_STEP_MS
    # What an engine is asked for is the same rule.
    assert remembered == (known.used_at_ms >= limits.idle_before(used_ms + later_ms))


def test_one_producer_more_than_there_may_be_is_refused() -> None:
    limits = ProducerLimits(1, 2)
    limits.check_room(1)
    with pytest.raises(TooManyProducers, match="2 producers"):
        limits.check_room(2)


@pytest.mark.parametrize("idle_ms", [0, 1, 7_200_000])
def test_a_producer_is_forgotten_an_hour_after_its_time_at_the_latest(idle_ms: int) -> None:
    limits = ProducerLimits(idle_ms, 10)
    for used_ms, last_ms in [(0, idle_ms + USED_STEP_MS - 1), (USED_STEP_MS - 1, idle_ms)]:
        known = state_after(ProducerStamp("p", 3, 4), 10 * USED_STEP_MS + used_ms)
        assert known == ProducerState(3, 4, 10 * USED_STEP_MS)
        end_ms = 10 * USED_STEP_MS + used_ms + last_ms
        assert limits.remembered(known, end_ms) == known
        assert limits.remembered(known, end_ms + 1) is None


def test_names_and_numbers_have_a_longest() -> None:
    longest = "p" * PRODUCER_ID_CHARS_MAX
    highest = str(PRODUCER_NUMBER_MAX)
    assert parse_stamp(longest, highest, "0") == (longest, PRODUCER_NUMBER_MAX, 0)
    for bad in [
        (longest + "p", "0", "0"),
        ("p", str(PRODUCER_NUMBER_MAX + 1), "0"),
        ("", "0", "0"),
    ]:
        with pytest.raises(InvalidHeader):
            parse_stamp(*bad)


@pytest.mark.parametrize("present", range(1, 7))
def test_the_headers_come_together(present: int) -> None:
    with pytest.raises(InvalidHeader, match="together"):
        parse_stamp(*("1" if present & 1 << at else None for at in range(3)))
