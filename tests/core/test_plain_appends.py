"""The shortest way to an append leads to the same append as the full decision."""

from __future__ import annotations

from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from headwater.core.decisions import Append, decide_append, plain_append, require
from headwater.core.errors import StreamError
from headwater.core.expiry import FOREVER, Lifetime
from headwater.core.lineage import Inherited, Lineage
from headwater.core.live.profile import GENERIC, StateProtocol
from headwater.core.offsets import parse_offset
from headwater.core.retention import Retention
from headwater.core.stream import Appended, StreamConfig, StreamState, evolve
from headwater.core.unique_ids import UniqueIds

NOW_MS = 1_000_000
JSON = "application/json"


def mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([usual] * 4 + list(others))


configs = st.builds(
    StreamConfig,
    id=st.just(7),
    path=st.just("s"),
    content_type=st.sampled_from([JSON, "text/plain", "application/vnd.x+json"]),
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
    return state


bodies = st.one_of(
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
types = st.sampled_from(
    [JSON, "text/plain", "Application/JSON", "application/json; charset=x", None]
)


@given(states(), bodies, types)
def test_a_plain_append_is_what_a_full_decision_makes_of_it(
    state: StreamState, body: bytes, content_type: str | None
) -> None:
    append = plain_append(state, content_type, body, NOW_MS)
    if append is None:
        event("takes a full decision")
        return
    event("plain")
    decision = decide_append(require(state, "s", NOW_MS), Append(body, content_type), NOW_MS)
    assert decision.mutations == (append,)
    assert decision.reply.is_plain
    assert decision.reply.next_offset == append.next_offset


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
