"""The shortest way to an append leads to the same append as the full decision."""

from __future__ import annotations

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from headwater.core.decisions import Append, AppendReply, decide_append, plain_append, require
from headwater.core.errors import StreamError
from headwater.core.expiry import FOREVER, Lifetime
from headwater.core.lineage import Inherited, Lineage
from headwater.core.live.profile import GENERIC, StateProtocol
from headwater.core.offsets import parse_offset
from headwater.core.producers import (
    UNLIMITED,
    USED_STEP_MS,
    ProducerLimits,
    ProducerStamp,
    ProducerState,
)
from headwater.core.retention import Retention
from headwater.core.stream import Appended, StreamConfig, StreamState, evolve
from headwater.core.unique_ids import UniqueIds

HOUR_MS = USED_STEP_MS
NOW_MS = 3 * HOUR_MS + 1_000_000
JSON = "application/json"


def mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    """So much more often that all of it is usual at once in a good part of the examples."""
    return st.sampled_from([usual] * 16 * len(others) + list(others))


configs = st.builds(
    StreamConfig,
    id=st.just(7),
    path=st.just("s"),
    content_type=mostly(JSON, "text/plain", "application/vnd.x+json"),
    created_at_ms=st.just(NOW_MS - 10_000),
    # One that was read back from an engine is equal, not the same.
    lifetime=mostly(FOREVER, Lifetime(None, None, None), Lifetime(ttl_s=60), Lifetime(ttl_s=1)),
    lineage=mostly(Lineage(7), Lineage(7, (Inherited(3, 40),))),
    unique_ids=mostly(None, UniqueIds("fail"), UniqueIds("succeed")),
    profile=mostly(GENERIC, StateProtocol()),
    retention=mostly(None, Retention(60, None), Retention(None, 10)),
    kept_from=mostly(0, 40),
    relaxed=mostly(False, True),
)


@st.composite
def states(draw: st.DrawFn) -> StreamState:
    state = StreamState.created(draw(configs))
    state.tail += draw(st.sampled_from([0, 40, 10**6]))
    state.messages += draw(st.sampled_from([0, 4]))
    for flag in ("closed", "deleted", "soft_deleted"):
        setattr(state, flag, draw(mostly(False, True)))
    state.touched_at_ms = draw(st.sampled_from([NOW_MS, NOW_MS - 5_000, NOW_MS + 5_000]))
    known = draw(mostly(ProducerState(3, 7, HOUR_MS), ProducerState(3, 7, 0), None))
    if known is not None:
        state.producers["p"] = known
        state.producer_count = 1
    return state


bodies = st.one_of(
    st.just(b'{"a": 1}'),
    st.just(b"1"),
    st.binary(max_size=20),
    st.sampled_from(
        [
            b"",
            b'{"a": 1}',
            b' {"a": 1}',
            b'{"a": 1}\n ',
            b"[1, 2]",
            b"[]",
            b'"\xc3\xa4"',
            b'"\xff"',
            b'"\\ud800"',
            b'{"a": 1',
            b"1 2",
            b"\xef\xbb\xbf1",
            b"[" * 3_000,
            b"0",
        ]
    ),
)
types = mostly(JSON, "text/plain", "Application/JSON", "application/json; charset=x", None)


# The known producer was last used two hours ago, or three.
limits = mostly(UNLIMITED, ProducerLimits(1_000_000 + HOUR_MS, 1), ProducerLimits(1, 1))
stamps = st.one_of(
    st.none(),
    st.builds(ProducerStamp, mostly("p", "q"), mostly(3, 2, 4), mostly(8, 0, 7, 9)),
)


@settings(max_examples=500)
@given(states(), bodies, types, stamps, limits)
def test_a_plain_append_is_what_a_full_decision_makes_of_it(
    state: StreamState,
    body: bytes,
    content_type: str | None,
    stamp: ProducerStamp | None,
    limits: ProducerLimits,
) -> None:
    append = plain_append(state, content_type, body, NOW_MS, stamp, limits)
    if append is None:
        event("takes a full decision")
        return
    event("plain" if stamp is None else "the next one of a producer")
    command = Append(body, content_type, producer=stamp)
    decision = decide_append(require(state, "s", NOW_MS), command, NOW_MS, producer_limits=limits)
    assert decision.mutations == (append,)
    assert decision.reply == AppendReply(append.next_offset, False, stamp)
    assert decision.reply.is_plain is (stamp is None)


@given(states(), bodies, types)
def test_the_next_offset_is_the_one_after_the_append(
    state: StreamState, body: bytes, content_type: str | None
) -> None:
    append = plain_append(state, content_type, body, NOW_MS)
    if append is None:
        return
    evolve(state, append)
    assert append.next_offset == state.tail_token
    assert state.config.lineage.locate(parse_offset(append.next_offset), state.tail) == state.tail


def test_usual_appends_are_plain() -> None:
    for content_type, body in (
        (JSON, b'{"a": 1}'),
        ("text/plain", b"anything"),
        (JSON, b'"\xc3\xa4"'),
    ):
        config = StreamConfig(7, "s", content_type, NOW_MS, lineage=Lineage(7))
        append = plain_append(StreamState.created(config), content_type, body, NOW_MS)
        assert isinstance(append, Appended)


def test_so_is_the_next_append_of_a_producer() -> None:
    config = StreamConfig(7, "s", JSON, NOW_MS, lineage=Lineage(7))
    state = StreamState.created(config)
    for seq in range(3):
        stamp = ProducerStamp("p", 0, seq)
        plain = plain_append(state, JSON, b"1", NOW_MS, stamp)
        (append,) = decide_append(state, Append(b"1", JSON, producer=stamp), NOW_MS).mutations
        # The first one makes the producer known.
        assert plain == (append if seq else None)
        evolve(state, append)
        assert plain_append(state, JSON, b"1", NOW_MS, stamp) is None


def test_whatever_is_refused_is_left_to_the_full_decision() -> None:
    config = StreamConfig(7, "s", JSON, NOW_MS, lineage=Lineage(7))
    for body in (b"", b"{", b'"\xff"', b'"\\ud800"', b"[" * 3_000):
        state = StreamState.created(config)
        assert plain_append(state, JSON, body, NOW_MS) is None
        try:
            decide_append(state, Append(body, JSON), NOW_MS)
        except StreamError:
            continue
        raise AssertionError(body)
