"""The state machine: wakes, leases, acknowledgements, fences, and the schedule of retries."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.core.errors import StreamError
from headwater.core.subscriptions import decisions
from headwater.core.subscriptions.decisions import Proof, retry_delay_ms
from headwater.core.subscriptions.errors import (
    AckConflict,
    AlreadyClaimed,
    Fenced,
    InvalidAck,
    NoPendingWork,
)
from headwater.core.subscriptions.state import Phase
from tests.subscriptions.model import Model, pull_config, webhook_config

# ── Retries ──────────────────────────────────────────────────────────────────────────────────


def test_retries_double_from_one_second_to_sixty() -> None:
    delays = [retry_delay_ms(failures, 0.5) for failures in range(1, 10)]
    assert delays == [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000]


@given(st.integers(1, 10**9), st.floats(0, 1))
def test_jitter_is_a_fifth_either_way(failures: int, dice: float) -> None:
    middle = retry_delay_ms(failures, 0.5)
    assert 0.8 * middle <= retry_delay_ms(failures, dice) <= 1.2 * middle


def test_failures_are_counted_until_the_wake_is_taken() -> None:
    model = Model()
    model.create("in/a", 10)
    model.begin()
    model.failed()
    model.failed()
    assert (model.state.wake.attempts, model.state.wake.until_ms) == (2, model.now_ms + 2000)
    assert model.state.wake.generation == 1
    model.delivered()
    assert (model.state.wake.attempts, model.state.wake.phase) == (0, Phase.LEASED)


# ── Wakes ────────────────────────────────────────────────────────────────────────────────────


def test_nothing_pending_means_no_wake() -> None:
    model = Model()
    model.create("in/a")
    model.create("elsewhere", 10)
    assert model.begin() == []


def test_one_wake_at_a_time() -> None:
    model = Model()
    model.create("in/a", 10)
    model.begin()
    model.append("in/a")
    assert model.begin() == []
    assert model.state.wake.generation == 1


def test_done_without_acks_wakes_again() -> None:
    model = Model()
    model.create("in/a", 10)
    model.begin()
    assert model.settle(done=True)
    assert (model.state.wake.generation, model.state.wake.phase) == (2, Phase.DUE)


def test_done_with_everything_acknowledged_is_the_end() -> None:
    model = Model()
    model.create("in/a", 10)
    model.begin()
    model.delivered()
    assert not model.settle(("in/a", model.tail("in/a")), done=True)
    assert (model.state.wake.phase, model.state.pending) == (Phase.IDLE, {})


def test_what_came_meanwhile_wakes_again() -> None:
    model = Model()
    model.create("in/a", 10)
    model.begin()
    seen = model.tail("in/a")
    model.append("in/a")
    assert model.settle(("in/a", seen), done=True)


def test_done_in_the_answer_acknowledges_what_was_shown_and_no_more() -> None:
    model = Model()
    model.create("in/a", 10)
    model.create("in/b", 10)
    model.begin()
    wake, shown = model.state.wake, model.state.snapshot(100)
    model.append("in/b")
    changes = decisions.decide_completed(
        model.state, wake.wake_id, shown.marks, "next", model.now_ms
    )
    model.store(changes)
    assert list(model.state.pending) == ["in/b"]
    assert (model.state.wake.generation, model.state.links["in/b"].acked) == (2, 10)


def test_an_answer_that_comes_too_late_changes_nothing() -> None:
    model = Model()
    model.create("in/a", 10)
    model.begin()
    wake, shown = model.state.wake, model.state.snapshot(100)
    model.settle(done=True)
    assert (
        decisions.decide_completed(model.state, wake.wake_id, shown.marks, "n", model.now_ms) == []
    )
    assert decisions.decide_delivered(model.state, wake.wake_id, model.now_ms) == []
    assert decisions.decide_failed(model.state, wake.wake_id, 0.5, model.now_ms) == []


def test_a_callback_before_the_answer_takes_the_wake() -> None:
    model = Model()
    model.create("in/a", 10)
    model.begin()
    model.settle()
    assert model.state.wake.phase is Phase.LEASED
    assert model.failed() == []


def test_a_wake_shows_what_is_pending_first_and_not_more_than_it_may() -> None:
    model = Model()
    for number in range(10):
        model.create(f"in/{number}")
    model.append("in/7")
    shown = model.state.snapshot(3)
    assert next((info.path, info.has_pending) for info in shown.streams) == ("in/7", True)
    assert (len(shown.streams), len(shown.marks)) == (3, 1)


# ── Leases ───────────────────────────────────────────────────────────────────────────────────


def test_a_lease_that_runs_out_frees_the_work_and_wakes_again() -> None:
    model = Model()
    model.create("in/a", 10)
    model.begin()
    model.delivered()
    model.now_ms += 4_999
    assert model.lapse() == []
    old = model.proof()
    model.now_ms += 1
    model.lapse()
    assert (model.state.wake.generation, model.state.wake.phase) == (2, Phase.DUE)
    with pytest.raises(Fenced):
        model.settle(proof=old)


def test_an_ack_extends_the_lease() -> None:
    model = Model()
    model.create("in/a", 10)
    model.begin()
    model.delivered()
    model.now_ms += 4_000
    model.settle()
    model.now_ms += 4_000
    assert model.lapse() == []


def test_a_claim_is_for_one_worker() -> None:
    model = Model(pull_config())
    with pytest.raises(NoPendingWork):
        model.claim()
    model.create("in/a", 10)
    model.begin()
    model.store(decisions.decide_offered(model.state, model.state.wake.wake_id))
    with pytest.raises(Fenced):
        model.settle()
    model.claim("ann")
    with pytest.raises(AlreadyClaimed) as refusal:
        model.claim("bob")
    assert refusal.value.details() == {"current_holder": "ann", "generation": 1}


def test_what_is_given_back_is_offered_again() -> None:
    model = Model(pull_config())
    model.create("in/a", 10)
    model.begin()
    model.claim()
    assert model.release()
    assert (model.state.wake.generation, model.state.wake.holder) == (2, None)


# ── Acknowledgements ─────────────────────────────────────────────────────────────────────────


@pytest.fixture
def working() -> Model:
    model = Model(webhook_config(streams=("named",)))
    model.create("in/a", 10)
    model.begin()
    model.delivered()
    return model


def test_acks_move_forward_only(working: Model) -> None:
    first = working.tail("in/a")
    second = working.append("in/a")
    working.settle(("in/a", second))
    working.settle(("in/a", second))
    with pytest.raises(AckConflict):
        working.settle(("in/a", first))


def test_all_acks_count_or_none_does(working: Model) -> None:
    good = working.tail("in/a")
    beyond = good[:-1] + "9"
    for bad in (("in/a", beyond), ("elsewhere", good), ("named", good)):
        with pytest.raises(AckConflict):
            working.settle(("in/a", good), bad, done=True)
    assert list(working.state.pending) == ["in/a"]
    assert working.state.wake.generation == 1


@pytest.mark.parametrize("offset", ["-1", "now", "", "7", "x" * 33, "0" * 16 + "_" + "x" * 16])
def test_what_is_no_offset_is_refused(working: Model, offset: str) -> None:
    with pytest.raises(InvalidAck):
        working.settle(("in/a", offset))


def test_of_several_acks_for_a_stream_the_furthest_counts(working: Model) -> None:
    first = working.tail("in/a")
    second = working.append("in/a")
    assert not working.settle(("in/a", second), ("in/a", first), done=True)


def test_an_offset_of_an_earlier_stream_of_the_same_name_is_recognised(working: Model) -> None:
    old = working.tail("in/a")
    working.delete("in/a")
    working.create("in/a", 20)
    with pytest.raises(AckConflict):
        working.settle(("in/a", old))


@pytest.mark.parametrize(
    "proof", [Proof(0, 1, "w1"), Proof(1, 0, "w1"), Proof(1, 2, "w1"), Proof(1, 1, "w2")]
)
def test_any_part_of_the_proof_that_is_stale_fences(working: Model, proof: Proof) -> None:
    assert working.proof() == Proof(1, 1, "w1")
    with pytest.raises(Fenced):
        working.settle(("in/a", working.tail("in/a")), proof=proof, done=True)
    with pytest.raises(Fenced):
        working.release(proof)
    assert list(working.state.pending) == ["in/a"]


# ── Links ────────────────────────────────────────────────────────────────────────────────────


def test_a_stream_linked_both_ways_is_explicit_and_stays_when_it_is_taken_back() -> None:
    model = Model()
    model.create("in/a", 10)
    model.store(decisions.decide_link(model.state, ["in/a", "in/a"], model.streams))
    assert model.state.snapshot(9).streams[0].link_type == "explicit"
    model.store(decisions.decide_unlink(model.state, "in/a"))
    assert model.state.snapshot(9).streams[0].link_type == "glob"
    assert list(model.state.pending) == ["in/a"]


def test_streams_that_are_there_begin_at_their_tail_and_others_at_their_beginning() -> None:
    model = Model()
    model.create("there", 10)
    model.store(decisions.decide_link(model.state, ["there", "later"], model.streams))
    assert not model.state.pending
    model.create("later", 10)
    model.append("there")
    assert set(model.state.pending) == {"later", "there"}
    infos = {info.path: info for info in model.state.snapshot(9).streams}
    assert infos["later"].acked_offset == "-1"
    assert infos["there"].acked_offset != "-1"


def test_nobody_is_woken_by_their_own_wake_stream() -> None:
    model = Model(pull_config())
    model.create("in/wakes", 10)
    assert not model.state.pending


def test_a_named_stream_that_is_deleted_is_waited_for() -> None:
    model = Model(webhook_config(streams=("named",)))
    model.create("named", 10)
    model.delete("named")
    assert not model.state.pending
    assert model.state.links["named"].stream_id == 0
    model.create("named", 5)
    assert list(model.state.pending) == ["named"]


def test_a_matched_stream_that_is_deleted_is_forgotten() -> None:
    model = Model()
    model.create("in/a", 10)
    model.delete("in/a")
    assert not model.state.links
    assert not model.state.pending


# ── Everything at random ─────────────────────────────────────────────────────────────────────

PATHS = ["in/a", "in/b", "in/c", "named"]


class Everything(RuleBasedStateMachine):
    """Streams and workers do what they like; what must hold, holds at every moment."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model(webhook_config(streams=("named",)))
        self.over: list[Proof] = []
        self.acked: dict[tuple[str, int], int] = {}
        self.generation = 0

    @initialize(pull=st.booleans())
    def kind(self, pull: bool) -> None:
        config = pull_config if pull else webhook_config
        self.model = Model(config(streams=("named",)))

    @property
    def phase(self) -> Phase:
        return self.model.state.wake.phase

    @rule(path=st.sampled_from(PATHS), tail=st.integers(0, 3))
    def create(self, path: str, tail: int) -> None:
        if path not in self.model.streams:
            self.model.create(path, tail)

    @rule(path=st.sampled_from(PATHS))
    def append(self, path: str) -> None:
        if path in self.model.streams:
            self.model.append(path)

    @rule(path=st.sampled_from(PATHS))
    def delete(self, path: str) -> None:
        if path in self.model.streams:
            self.model.delete(path)

    @rule(path=st.sampled_from(PATHS), named=st.booleans())
    def name(self, path: str, named: bool) -> None:
        state = self.model.state
        if named:
            self.model.store(decisions.decide_link(state, [path], self.model.streams))
        else:
            self.model.store(decisions.decide_unlink(state, path))

    @rule()
    def begin(self) -> None:
        self.model.begin()

    @precondition(lambda self: self.phase is Phase.DUE)
    @rule(works=st.booleans())
    def announce(self, works: bool) -> None:
        if not works:
            self.model.failed()
        elif self.model.state.config.webhook is not None:
            self.model.delivered()
        else:
            wake_id = self.model.state.wake.wake_id
            self.model.store(decisions.decide_offered(self.model.state, wake_id))

    @rule(worker=st.sampled_from(["ann", "bob"]))
    def claim(self, worker: str) -> None:
        if self.model.state.config.webhook is None and self.phase in (Phase.DUE, Phase.OFFERED):
            self.model.claim(worker)

    @precondition(lambda self: self.phase is Phase.LEASED)
    @rule(done=st.booleans(), path=st.sampled_from(PATHS), back=st.integers(0, 12))
    def settle(self, done: bool, path: str, back: int) -> None:
        proof = self.model.proof()
        link = self.model.state.links.get(path)
        acks = []
        if link is not None and link.lineage is not None and link.tail - back >= link.acked:
            position = max(0, link.tail - back)
            acks = [(path, str(link.lineage.offset_at(position)))]
        self.model.settle(*acks, done=done)
        if done:
            self.over.append(proof)

    @precondition(lambda self: self.phase is Phase.LEASED)
    @rule(late=st.booleans())
    def lose(self, late: bool) -> None:
        proof = self.model.proof()
        if late:
            self.model.now_ms = self.model.state.wake.until_ms
            self.model.lapse()
        else:
            self.model.release()
        self.over.append(proof)

    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        if self.over:
            proof = data.draw(st.sampled_from(self.over))
            before = self.model.reloaded().links
            for attempt in (self.model.settle, self.model.release):
                with pytest.raises(Fenced):
                    attempt(proof=proof)
            assert self.model.reloaded().links == before

    @invariant()
    def pending_is_what_lies_behind_the_acknowledged(self) -> None:
        state = self.model.state
        expected = {path for path, link in state.links.items() if link.pending}
        assert set(state.pending) == expected

    @invariant()
    def links_are_the_streams_there_are(self) -> None:
        state = self.model.state
        there = {path for path in self.model.streams if state.globs(path)}
        assert there <= set(state.links)
        for path, link in state.links.items():
            stream = self.model.streams.get(path)
            assert link.explicit or stream is not None
            assert link.stream_id == (stream.lineage.own if stream else 0)
            assert link.tail == (stream.tail if stream else 0)

    @invariant()
    def acknowledged_offsets_never_go_back(self) -> None:
        for path, link in self.model.state.links.items():
            if link.stream_id:
                key = path, link.stream_id
                assert self.acked.get(key, -1) <= link.acked <= link.tail
                self.acked[key] = link.acked

    @invariant()
    def generations_grow_one_by_one(self) -> None:
        generation = self.model.state.wake.generation
        assert generation - self.generation in (0, 1)
        self.generation = generation

    @invariant()
    def a_restart_changes_nothing(self) -> None:
        state, again = self.model.state, self.model.reloaded()
        assert again.wake == state.wake
        assert set(again.pending) == set(state.pending)
        assert again.links == state.links


TestEverything = Everything.TestCase
TestEverything.settings = settings(max_examples=50, stateful_step_count=30)


def test_errors_have_messages_that_say_what_to_do() -> None:
    for error in (Fenced(), NoPendingWork(), AlreadyClaimed("ann", 3)):
        assert isinstance(error, StreamError)
        assert len(error.message) > 20
