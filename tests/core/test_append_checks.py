"""The order of the checks of an append: when two things are wrong, the earlier one decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import pytest

from headwater.core import errors
from headwater.core.decisions import Append, AppendReply, decide_append, require
from headwater.core.expiry import Lifetime
from headwater.core.lineage import Lineage
from headwater.core.producers import ProducerStamp, ProducerState
from headwater.core.stream import Appended, Closed, Mutation, StreamConfig, StreamState

NOW_MS = 1_000_000


@dataclass
class Attempt:
    """A good append to a good stream, until a fault is put in."""

    state: StreamState | None = None
    body: bytes = b'{"a": 1}'
    content_type: str | None = "application/json"
    epoch: int = 5
    seq: int = 4
    stream_seq: str | None = "n"
    close: bool = False
    touched: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        config = StreamConfig(
            3, "s", "application/json", NOW_MS, Lifetime(ttl_s=60), lineage=Lineage(3)
        )
        self.state = StreamState.created(config)
        self.state.tail, self.state.messages = 40, 4
        self.state.producers["p"] = ProducerState(5, 3)
        self.state.last_stream_seq = "m"

    @property
    def known(self) -> StreamState:
        assert self.state is not None
        return self.state

    @property
    def command(self) -> Append:
        stamp = ProducerStamp("p", self.epoch, self.seq)
        return Append(self.body, self.content_type, self.close, stamp, self.stream_seq)

    def decide(self) -> tuple[AppendReply, Sequence[Mutation]]:
        decision = decide_append(require(self.state, "s", NOW_MS), self.command, NOW_MS)
        return decision.reply, decision.mutations


@dataclass(frozen=True)
class Fault:
    name: str
    error: type[errors.StreamError]
    field: str
    """What it changes: two faults of one field cannot happen at once."""
    put_in: Callable[[Attempt], None]


def setting(name: str, value: object) -> Callable[[Attempt], None]:
    return lambda attempt: setattr(attempt, name, value)


def state_setting(name: str, value: object) -> Callable[[Attempt], None]:
    return lambda attempt: setattr(attempt.known, name, value)


# In the order in which they are looked for.
FAULTS = [
    Fault("deleted", errors.StreamNotFound, "existence", state_setting("deleted", True)),
    Fault("soft-deleted", errors.StreamGone, "existence", state_setting("soft_deleted", True)),
    Fault("expired", errors.StreamNotFound, "existence", state_setting("touched_at_ms", 0)),
    Fault("stale epoch", errors.StaleEpoch, "epoch", setting("epoch", 4)),
    Fault("closed", errors.StreamClosed, "closed", state_setting("closed", True)),
    Fault("empty", errors.EmptyBody, "body", setting("body", b"")),
    Fault("no type", errors.MissingContentType, "type", setting("content_type", None)),
    Fault("other type", errors.ContentTypeMismatch, "type", setting("content_type", "text/plain")),
    Fault("invalid JSON", errors.InvalidJson, "body", setting("body", b"{")),
    Fault("no messages", errors.EmptyBody, "body", setting("body", b"[]")),
    Fault("epoch not from zero", errors.EpochMustStartAtZero, "epoch", setting("epoch", 6)),
    Fault("gap", errors.SequenceGap, "seq", setting("seq", 9)),
    Fault("stream seq", errors.StreamSeqConflict, "stream seq", setting("stream_seq", "m")),
]
# A higher epoch with a sequence that is ahead has one fault and not two.
IMPOSSIBLE = {("epoch not from zero", "gap")}
PAIRS = [
    pytest.param(first, second, id=f"{first.name}, {second.name}")
    for first, second in combinations(FAULTS, 2)
    if first.field != second.field and (first.name, second.name) not in IMPOSSIBLE
]


def test_without_a_fault_it_is_accepted() -> None:
    reply, mutations = Attempt().decide()
    assert not reply.duplicate
    assert reply.producer == ProducerStamp("p", 5, 4)
    assert [type(mutation) for mutation in mutations] == [Appended]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_each_fault_is_found(fault: Fault) -> None:
    attempt = Attempt()
    fault.put_in(attempt)
    with pytest.raises(fault.error):
        attempt.decide()


@pytest.mark.parametrize("first, second", PAIRS)
def test_of_two_faults_the_earlier_decides(first: Fault, second: Fault) -> None:
    attempt = Attempt()
    second.put_in(attempt)
    first.put_in(attempt)
    with pytest.raises(first.error):
        attempt.decide()


# ── What is not a fault after all ────────────────────────────────────────────────────────────


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/json"])
def test_closing_without_a_body_ignores_the_content_type(content_type: str | None) -> None:
    attempt = Attempt(body=b"", content_type=content_type, close=True)
    reply, mutations = attempt.decide()
    assert reply.closed
    assert reply.close_only
    assert [type(mutation) for mutation in mutations] == [Closed]


@pytest.mark.parametrize("seq", [0, 1, 3])
def test_a_duplicate_does_not_get_as_far_as_the_stream_seq(seq: int) -> None:
    reply, mutations = Attempt(seq=seq, stream_seq="a").decide()
    assert reply.duplicate
    assert reply.producer == ProducerStamp("p", 5, 3), "the highest accepted, not the one sent"
    assert not mutations


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"a": 1}'])
@pytest.mark.parametrize("content_type", [None, "text/plain"])
def test_the_request_that_closed_a_stream_may_be_sent_again_with_anything_in_it(
    body: bytes, content_type: str | None
) -> None:
    attempt = Attempt(seq=3, body=body, content_type=content_type, stream_seq="a")
    attempt.known.closed, attempt.known.closed_by = True, ProducerStamp("p", 5, 3)
    reply, mutations = attempt.decide()
    assert (reply.duplicate, reply.closed) == (True, True)
    assert not mutations


@pytest.mark.parametrize("closed_by", [None, ProducerStamp("p", 5, 3), ProducerStamp("q", 0, 0)])
@pytest.mark.parametrize("seq", [0, 2, 3])
def test_what_a_producer_stored_may_be_sent_again_after_the_close(
    closed_by: ProducerStamp | None, seq: int
) -> None:
    attempt = Attempt(seq=seq, body=b"{", content_type=None)
    attempt.known.closed, attempt.known.closed_by = True, closed_by
    reply, mutations = attempt.decide()
    assert (reply.duplicate, reply.closed) == (True, True)
    assert reply.producer == ProducerStamp("p", 5, 3), "the highest accepted, not the one sent"
    assert not mutations


def test_any_other_request_of_that_producer_learns_that_the_stream_is_closed() -> None:
    for seq in (4, 9):
        attempt = Attempt(seq=seq)
        attempt.known.closed, attempt.known.closed_by = True, ProducerStamp("p", 5, 3)
        with pytest.raises(errors.StreamClosed) as caught:
            attempt.decide()
        assert caught.value.next_offset == attempt.known.tail_token


def test_closing_again_without_a_producer_is_no_conflict() -> None:
    state = Attempt().known
    state.closed = True
    decision = decide_append(state, Append(close=True), NOW_MS)
    assert (decision.reply.closed, decision.mutations) == (True, ())
    with pytest.raises(errors.StreamClosed):
        decide_append(state, Append(b"1", "application/json", close=True), NOW_MS)


@pytest.mark.parametrize(
    "last, received, accepted",
    [
        ("a", "b", True),
        ("a", "a", False),
        ("b", "a", False),
        ("9", "10", False),  # bytes, not numbers
        ("a", "aa", True),
        ("Z", "a", True),
        ("z", "é", True),  # by bytes of UTF-8
        ("", "a", True),
        ("a", "", False),
    ],
)
def test_stream_seq_is_compared_by_bytes(last: str, received: str, accepted: bool) -> None:
    attempt = Attempt(stream_seq=received)
    attempt.known.last_stream_seq = last
    if accepted:
        attempt.decide()
    else:
        with pytest.raises(errors.StreamSeqConflict) as caught:
            attempt.decide()
        assert (caught.value.last, caught.value.received) == (last, received)


def test_a_stream_seq_is_bounded() -> None:
    attempt = Attempt(stream_seq="n" * 257)
    with pytest.raises(errors.InvalidHeader):
        attempt.decide()
