"""The idempotent producer: exactly once over any network, and each rule by itself.

Whatever happens in the simulation: no batch is stored twice or out of order, a batch that was
reported stored is stored, and one that was reported failed without doubt is not.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.client.errors import (
    HeadwaterError,
    ProducerStopped,
    RateLimited,
    SequenceConflict,
    StaleEpoch,
    TooLarge,
    UnexpectedAnswer,
)
from headwater.client.protocol.producer_state import Entry, Outcome, ProducerState
from headwater.client.protocol.retry import UNEXPECTED_ANSWERS_MAX, RetryPolicy
from headwater.client.protocol.streams import Receipt
from tests.client.producer_simulation import LOST, PATIENT, Simulation, closed, gap, stale

SMOOTH = ["add", "deliver", "answer"]
FAULTS = [*SMOOTH * 3, "lose answer", "give up", "busy", "time", "stray", "wrong answer"]


def steps(actions: list[str]) -> st.SearchStrategy[list[tuple[str, int]]]:
    step = st.tuples(st.sampled_from(actions), st.integers(0, 9))
    return st.lists(step, min_size=20, max_size=100)


@settings(max_examples=200)
@given(steps(FAULTS))
def test_exactly_once_over_any_network(script: list[tuple[str, int]]) -> None:
    simulation = Simulation(auto_claim=False)
    for action, choice in script:
        simulation.step(action, choice)
    simulation.settle()
    if not isinstance(simulation.state.stopped_by, UnexpectedAnswer):
        assert simulation.server.log == simulation.added
        assert all(isinstance(result, Receipt) for result in simulation.outcomes.values())


@settings(max_examples=200)
@given(steps([*FAULTS, "takeover", "close"]), st.booleans())
def test_nothing_is_stored_twice_when_others_interfere(
    script: list[tuple[str, int]], auto_claim: bool
) -> None:
    simulation = Simulation(auto_claim=auto_claim)
    for action, choice in script:
        simulation.step(action, choice)
    simulation.settle()


@settings(max_examples=200)
@given(steps(["add", "deliver", "answer", "takeover", "busy", "time"]))
def test_without_lost_answers_a_claim_always_succeeds(script: list[tuple[str, int]]) -> None:
    simulation = Simulation(auto_claim=True)
    for action, choice in script:
        simulation.step(action, choice)
    simulation.settle()
    assert simulation.server.log == simulation.added


# --- Single rules --------------------------------------------------------------------------------


def new_state(*, auto_claim: bool = False, retry: RetryPolicy = PATIENT) -> ProducerState[str]:
    return ProducerState(epoch=0, max_in_flight=5, auto_claim=auto_claim, retry=retry)


def established(count: int, **options: Any) -> tuple[ProducerState[str], list[Entry[str]]]:
    """A producer known to the server, with that many batches under way (from 1 on)."""
    state = new_state(**options)
    state.add(b"first", "first")
    [first] = state.take_due(0.0)
    state.accepted(first, Receipt("0_1"))
    for number in range(1, count + 1):
        state.add(str(number).encode(), str(number))
    entries = state.take_due(0.0)
    assert [entry.seq for entry in entries] == list(range(1, count + 1))
    return state, entries


def fail(
    state: ProducerState[str],
    entry: Entry[str],
    error: HeadwaterError,
    now: float = 0.0,
    random: float = 0.5,
) -> list[Outcome[str]]:
    return state.failed(entry, error, now=now, random=random)


def test_the_first_batch_goes_alone() -> None:
    state = new_state()
    assert state.can_take()
    state.add(b"a", "a")
    assert not state.can_take(), "the next batch may go on growing"
    [first] = state.take_due(0.0)
    state.accepted(first, Receipt("0_1"))
    for name in "bcdef":
        assert state.can_take()
        state.add(name.encode(), name)
    assert not state.can_take()
    assert [entry.seq for entry in state.take_due(0.0)] == [1, 2, 3, 4, 5]


def test_a_lost_batch_is_sent_again_with_its_number_before_any_other() -> None:
    state, entries = established(2)
    assert fail(state, entries[0], LOST, now=10.0) == []
    state.add(b"3", "3")
    assert state.take_due(10.5) == []
    assert state.next_due_at(10.5) == 10.75
    assert [entry.seq for entry in state.take_due(11.0)] == [1, 3]
    assert state.next_due_at(11.0) is None


def test_retry_after_is_honoured() -> None:
    state, [entry] = established(1)
    fail(state, entry, RateLimited("busy", status=429, retry_after_s=30.0), now=10.0)
    assert state.next_due_at(10.0) == 40.0


def test_a_gap_is_repaired_in_order() -> None:
    state, [first, second, third] = established(3)
    assert fail(state, third, gap(1, 3)) == []
    assert fail(state, second, gap(1, 2)) == []
    assert state.take_due(0.0) == []
    assert state.next_due_at(0.0) is None, "only an answer can change that"
    state.accepted(first, Receipt("0_2"))
    assert state.take_due(0.0) == [second]
    state.accepted(second, Receipt("0_3"))
    assert state.take_due(0.0) == [third]


def test_a_gap_that_was_filled_before_the_answer_came() -> None:
    state, [first, second] = established(2)
    state.accepted(first, Receipt("0_2"))
    assert fail(state, second, gap(1, 2)) == []
    assert state.take_due(0.0) == [second]
    assert not state.distrusts_connections


def test_a_server_that_forgot_what_it_acknowledged_stops_the_producer() -> None:
    state, [first, second] = established(2)
    for attempt in range(UNEXPECTED_ANSWERS_MAX):
        assert fail(state, first, gap(0, 1)) == [], "it could be the answer to another request"
        assert state.distrusts_connections
        assert state.take_due(100.0 * (attempt + 1)) == [first]
    [outcome] = fail(state, first, gap(0, 1))
    assert isinstance(outcome.result, SequenceConflict)
    assert state.stopped_by is outcome.result
    [outcome] = fail(state, second, gap(0, 2))
    assert isinstance(outcome.result, ProducerStopped)
    assert outcome.result.__cause__ is state.stopped_by


@pytest.mark.parametrize("error", [gap(1, 7), gap(5, 2), gap(2, 2), stale(0)])
def test_an_answer_to_somebody_else_is_no_answer(error: HeadwaterError) -> None:
    state, [_, second] = established(2)
    assert fail(state, second, error) == []
    assert state.stopped_by is None
    assert second.in_doubt


def test_a_refusal_stops_what_is_behind_it_but_not_what_is_before() -> None:
    state, [first, second, third] = established(3)
    state.add(b"4", "4")
    fail(state, first, LOST)
    outcomes = fail(state, second, TooLarge("big", status=413))
    assert [(o.entry.payload, type(o.result)) for o in outcomes] == [
        ("2", TooLarge),
        ("4", ProducerStopped),
    ]
    [outcome] = fail(state, third, gap(1, 3))
    assert isinstance(outcome.result, ProducerStopped)
    assert not outcome.result.in_doubt
    assert not state.can_take()
    assert state.take_due(100.0) == [first]
    assert [o.entry for o in state.accepted(first, Receipt("0_2"))] == [first]


def test_a_yes_is_a_yes_for_everything_before() -> None:
    state, [first, second, third] = established(3)
    fail(state, first, LOST)
    outcomes = state.accepted(third, Receipt("0_9"))
    assert [(o.entry, o.result) for o in outcomes] == [
        (third, Receipt("0_9")),
        (first, Receipt(None, duplicate=True)),
    ]
    [outcome] = fail(state, second, closed())
    assert outcome.result == Receipt(None, duplicate=True), "somebody closed the stream meanwhile"


def test_a_claim_takes_the_next_epoch_and_starts_from_zero() -> None:
    state, [first, second] = established(2, auto_claim=True)
    assert fail(state, second, stale(7)) == []
    assert not state.can_take()
    assert state.take_due(0.0) == [], "first everything under way has to come back"
    assert fail(state, first, stale(7)) == []
    assert state.epoch == 508
    assert state.take_due(0.0) == [first], "the first of an epoch goes alone"
    assert (first.seq, second.seq) == (0, 1)


def test_a_claim_does_not_risk_a_duplicate() -> None:
    state, [first, second] = established(2, auto_claim=True)
    fail(state, first, LOST)
    outcomes = fail(state, second, stale(7))
    assert [
        (o.entry, type(o.result), o.result.in_doubt)
        for o in outcomes
        if not isinstance(o.result, Receipt)
    ] == [
        (first, StaleEpoch, True),
        (second, ProducerStopped, False),
    ]


def test_two_claims_of_one_epoch() -> None:
    state, [first] = established(1, auto_claim=True)
    fail(state, first, stale(7), random=0.0)
    assert state.take_due(0.0) == [first]
    assert state.accepted(first, Receipt(None, duplicate=True)) == []
    assert state.epoch == 9
    assert state.take_due(0.0) == [first]
    assert [o.entry for o in state.accepted(first, Receipt("0_2"))] == [first]


def test_a_duplicate_is_ours_if_an_answer_was_lost_before() -> None:
    state, [first] = established(1, auto_claim=True)
    fail(state, first, stale(7))
    state.take_due(0.0)
    fail(state, first, LOST)
    state.take_due(9.0)
    assert [o.entry for o in state.accepted(first, Receipt(None, duplicate=True))] == [first]


def test_a_duplicate_under_the_given_epoch_is_a_replay() -> None:
    state = new_state(auto_claim=True)
    state.add(b"a", "a")
    [first] = state.take_due(0.0)
    assert [o.entry for o in state.accepted(first, Receipt(None, duplicate=True))] == [first]


def test_without_auto_claim_a_stale_epoch_is_final() -> None:
    state, [first, second] = established(2)
    assert [o.entry for o in fail(state, first, stale(7))] == [first]
    assert [o.entry for o in fail(state, second, stale(7))] == [second]
    assert isinstance(state.stopped_by, StaleEpoch)


def test_a_closing_batch_waits_for_all_others_and_is_the_last() -> None:
    state, [first] = established(1)
    state.add(b"bye", "bye", closes=True)
    assert not state.can_take()
    assert state.take_due(0.0) == []
    state.accepted(first, Receipt("0_2"))
    [closing] = state.take_due(0.0)
    assert closing.closes


def test_patience_has_an_end() -> None:
    state, [first, second] = established(2, retry=RetryPolicy(give_up_after_s=10.0))
    assert fail(state, first, LOST, now=0.0) == []
    state.take_due(5.0)
    [outcome] = fail(state, first, LOST, now=11.0)
    assert outcome.result.in_doubt if isinstance(outcome.result, HeadwaterError) else False
    [outcome] = state.accepted(second, Receipt("0_3"))
    assert outcome.result == Receipt("0_3"), "the first one was stored after all"


def test_an_abort_leaves_nothing_behind() -> None:
    state, _ = established(2)
    state.add(b"3", "3")
    outcomes = state.abort(ProducerStopped("closed"))
    assert [outcome.entry.payload for outcome in outcomes] == ["1", "2", "3"]
    assert [o.result.in_doubt for o in outcomes if isinstance(o.result, HeadwaterError)] == [
        True,
        True,
        False,
    ]
    assert not state.entries
