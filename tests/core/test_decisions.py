"""All decisions together: random histories of streams, against the naive model.

The machine runs every command through `core` and through the model, and after each step compares
what was answered and everything that there is.
"""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headwater.core import errors
from headwater.core.decisions import Append, Create
from headwater.core.errors import StreamError
from headwater.core.expiry import FOREVER, Lifetime
from headwater.core.lineage import ForkRequest
from headwater.core.offsets import format_offset, parse_offset
from headwater.core.producers import ProducerStamp
from tests.support.decided import DecidedStreams
from tests.support.models import PlainBody, PlainRequest, PlainStream, PlainStreams, Refusal
from tests.support.properties import NORMAL

JSON, BYTES = "application/json", "application/octet-stream"

paths = st.sampled_from("abcdef")
known = st.integers(0, 59)
lifetimes = st.sampled_from(
    [FOREVER] * 3 + [Lifetime(ttl_s=2), Lifetime(ttl_s=9), Lifetime(expires_at_ms=15_000)]
)
# No commas within a message: that lets the model take stored bytes apart by splitting them.
messages = st.lists(st.sampled_from([b"1", b"1.0", b'"x"', b'{"k": 2}', b"[]"]), max_size=3)


@st.composite
def json_bodies(draw: st.DrawFn) -> PlainBody:
    parts = draw(messages)
    if len(parts) == 1 and parts[0][:1] != b"[" and draw(st.booleans()):
        return PlainBody(b" " + parts[0], parts)
    return PlainBody(b"[" + b" ,".join(parts) + b"]", parts)


# Mostly what a stream can take, or nothing would ever grow.
bodies = st.one_of(
    json_bodies(),
    json_bodies(),
    json_bodies(),
    st.sampled_from([PlainBody(b"", None), PlainBody(b"{", None), PlainBody(b"\xff\x00abc", None)]),
)
producers = st.one_of(
    st.none(),
    st.sampled_from(["next", "again"]),
    st.tuples(st.sampled_from("pq"), st.integers(0, 2), st.integers(0, 3)),
)


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 10_000
        self.real = DecidedStreams()
        self.model = PlainStreams()

    def both(self, real: Callable[[], Any], refusal: Refusal | None) -> Any:
        """Run the real thing, which must be refused exactly as the model says."""
        try:
            reply = real()
            refused = None
        except StreamError as error:
            reply, refused = None, error
        assert type(refused) is (refusal or NoneType), f"the model says {refusal}, not {refused!r}"
        return reply

    # ── Steps ────────────────────────────────────────────────────────────────────────────────

    @initialize(lifetime=lifetimes, forks=st.integers(0, 4))
    def begin_with_a_family(self, lifetime: Lifetime, forks: int) -> None:
        """Something to work on: a few streams, forks of each other."""
        self.create("a", True, PlainBody(b"[1, 2, 3]", [b"1", b"2", b"3"]), lifetime, False)
        self.create("b", False, PlainBody(b"bytes", None), lifetime, False)
        for path, source in (("c", "a"), ("d", "c"), ("e", "c"), ("f", "b"))[:forks]:
            self.fork_from(source, path, None, 0, PlainBody(b"", None), FOREVER, None)

    @rule(
        path=paths,
        json=st.sampled_from([True, True, False]),
        body=bodies,
        lifetime=lifetimes,
        closed=st.sampled_from([False, False, False, True]),
    )
    def create(
        self, path: str, json: bool, body: PlainBody, lifetime: Lifetime, closed: bool
    ) -> None:
        wanted = self.plain(path, json, lifetime, closed)
        result = self.model.create(wanted, body, self.now_ms)
        # The type may be left out, and may come with a charset.
        content_type = "Application/JSON; charset=utf-8" if json else None
        command = Create(path, content_type, body.sent, lifetime, closed)
        self.check_create(command, wanted, result)

    @rule(
        path=paths,
        source=known,
        index=st.none() | st.integers(0, 6),
        sub_offset=st.sampled_from([0, 0, 0, 1, 2, 4]),
        body=bodies,
        lifetime=lifetimes,
        typed=st.sampled_from([None, None, None, JSON, BYTES]),
    )
    def fork(
        self,
        path: str,
        source: int,
        index: int | None,
        sub_offset: int,
        body: PlainBody,
        lifetime: Lifetime,
        typed: str | None,
    ) -> None:
        self.fork_from(self.pick(source), path, index, sub_offset, body, lifetime, typed)

    def fork_from(
        self,
        source: str,
        path: str,
        index: int | None,
        sub_offset: int,
        body: PlainBody,
        lifetime: Lifetime,
        typed: str | None,
    ) -> None:
        if index is None:
            sub_offset = 0  # which the headers do not allow otherwise
        original = self.model.streams.get(source)
        tokens = ["-1", *(original.tokens if original else [])]
        index = index if index is None else min(index, len(tokens) - 1)
        asked = ForkRequest(source, tokens[index] if index is not None else None, sub_offset)
        command = Create(path, typed, body.sent, lifetime, fork=asked)
        point: Any = self.model.fork_point(source, index, sub_offset, self.now_ms)
        there = self.model.streams.get(path)
        free = there is None or (
            there.is_expired(self.now_ms) and not there.gone and not self.model.forks_of(there)
        )
        if free and isinstance(point, type):
            self.both(lambda: self.real.create(command, self.now_ms), point)
            return
        template, taken, count = (None, [], 0) if isinstance(point, type) else point
        json = typed == JSON if typed else bool(template.json if template else there and there.json)
        wanted = self.plain(path, json, lifetime, closed=False)
        if template is not None:
            if free and json != template.json:
                refused = errors.ContentTypeMismatch
                self.both(lambda: self.real.create(command, self.now_ms), refused)
                return
            wanted.appends, wanted.messages, wanted.source = list(taken), count, template
            wanted.tokens = template.tokens[: len(taken)]
            if sub_offset:
                wanted.tokens = wanted.tokens[: len(taken) - 1]
            if lifetime.is_forever:
                wanted.ttl_ms, wanted.expires_at_ms = template.ttl_ms, template.expires_at_ms
        wanted.asked_for, wanted.lifetime_asked_for = asked, not lifetime.is_forever
        result = self.model.create(wanted, body, self.now_ms)
        self.check_create(command, wanted, result)

    def check_create(
        self, command: Create, wanted: PlainStream, result: PlainStream | Refusal
    ) -> None:
        refusal = result if isinstance(result, type) else None
        reply = self.both(lambda: self.real.create(command, self.now_ms), refusal)
        if reply is None or isinstance(result, type):
            return
        assert reply.new == (result is wanted)
        assert reply.closed == result.closed
        self.note_token(result, reply.next_offset)

    @rule(which=known, body=json_bodies(), who=st.sampled_from([None, "next"]))
    def append_what_fits(self, which: int, body: PlainBody, who: str | None) -> None:
        self.send(self.pick(which), body, "right", False, who, None)

    @rule(
        which=known,
        body=bodies,
        typed=st.sampled_from(["right"] * 8 + [JSON, BYTES, None]),
        close=st.sampled_from([False] * 3 + [True]),
        who=producers,
        stream_seq=st.sampled_from([None] * 6 + ["1", "2", "10", "9"]),
    )
    def append_anything(
        self,
        which: int,
        body: PlainBody,
        typed: str | None,
        close: bool,
        who: str | tuple[str, int, int] | None,
        stream_seq: str | None,
    ) -> None:
        self.send(self.pick(which), body, typed, close, who, stream_seq)

    @rule(which=known, close=st.booleans())
    def send_what_closed_it_again(self, which: int, close: bool) -> None:
        self.send(self.pick(which), PlainBody(b"", None), "right", close, "again", None)

    def send(
        self,
        path: str,
        body: PlainBody,
        typed: str | None,
        close: bool,
        who: str | tuple[str, int, int] | None,
        stream_seq: str | None,
    ) -> None:
        there = self.model.streams.get(path)
        right = JSON if there and there.json else BYTES
        content_type = right if typed == "right" else typed
        producer = self.producer(there, who) if isinstance(who, str) else who
        request = PlainRequest(body, content_type, close, producer, stream_seq)
        result = self.model.append(path, request, self.now_ms)
        stamp = ProducerStamp(*producer) if producer else None
        command = Append(body.sent, content_type, close, stamp, stream_seq)
        refusal = result if isinstance(result, type) else None
        reply = self.both(lambda: self.real.append(path, command, self.now_ms), refusal)
        if reply is None:
            return
        stream = self.model.streams[path]
        assert reply.duplicate == (result == "duplicate")
        assert reply.closed == stream.closed
        if producer is not None:
            highest = max(stream.producers[producer[0]].accepted)
            assert reply.producer == (producer[0], *highest)
        self.note_token(stream, reply.next_offset)

    @rule(which=known)
    def delete(self, which: int) -> None:
        path = self.pick(which)
        self.both(lambda: self.real.delete(path, self.now_ms), self.model.delete(path, self.now_ms))

    @rule(which=known)
    def touch(self, which: int) -> None:
        path = self.pick(which)
        found = self.model.find(path, self.now_ms)
        refusal = found if isinstance(found, type) else None
        self.both(lambda: self.real.touch(path, self.now_ms), refusal)
        if isinstance(found, PlainStream):
            found.touched_ms = self.now_ms

    @rule(ms=st.sampled_from([1, 500, 1_999, 2_000, 5_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule(which=known)
    def expire(self, which: int) -> None:
        path = self.pick(which)
        stream = self.model.streams.get(path)
        due = stream is not None and not stream.gone and stream.is_expired(self.now_ms)
        assert self.real.expire(path, self.now_ms) == due
        if due and stream is not None:
            self.model.remove(stream)

    # ── What must hold after each of them ────────────────────────────────────────────────────

    @invariant()
    def the_same_streams_are_there(self) -> None:
        gone = {path for path, stream in self.model.streams.items() if stream.gone}
        assert set(self.real.by_path) == set(self.model.streams)
        assert {path for path, state in self.real.by_path.items() if state.soft_deleted} == gone
        assert {state.config.id for state in self.real.by_path.values()} == set(self.real.by_id)

    @invariant()
    def they_hold_the_same(self) -> None:
        for path, stream in self.model.streams.items():
            state = self.real.by_path[path]
            assert self.real.content(state) == stream.content
            assert state.tail == len(stream.content)
            assert state.messages == stream.messages
            assert state.config.is_json == stream.json
            assert (state.closed, state.closed_by) == (stream.closed, stream.closed_by)
            assert state.last_stream_seq == stream.stream_seq
            assert state.forks == self.model.forks_of(stream)
            assert state.is_expired(self.now_ms) == stream.is_expired(self.now_ms)
            accepted = {
                name: max(history.accepted)
                for name, history in stream.producers.items()
                if history.accepted
            }
            remembered = {name: known[:2] for name, known in state.producers.items()}
            assert (remembered, state.producer_count) == (accepted, len(accepted))

    @invariant()
    def offsets_that_were_given_out_are_still_good(self) -> None:
        for path, stream in self.model.streams.items():
            state = self.real.by_path[path]
            assert stream.tokens == sorted(set(stream.tokens))
            end = 0
            for token, append in zip(stream.tokens, stream.appends, strict=True):
                end += len(append)
                assert state.config.lineage.locate(parse_offset(token), state.tail) == end

    # ── Helpers ──────────────────────────────────────────────────────────────────────────────

    def pick(self, which: int) -> str:
        """A path that is probably there."""
        there = [*self.model.streams]
        return there[which % len(there)] if there and which else "nowhere"

    def plain(self, path: str, json: bool, lifetime: Lifetime, closed: bool) -> PlainStream:
        ttl_ms = None if lifetime.ttl_s is None else lifetime.ttl_s * 1000
        return PlainStream(path, json, ttl_ms, lifetime.expires_at_ms, self.now_ms, closed)

    def producer(self, stream: PlainStream | None, which: str) -> tuple[str, int, int]:
        """A request that the first producer would send next, or sends again."""
        if which == "again" and stream and stream.closed_by:
            return stream.closed_by
        history = stream.producers.get("p") if stream else None
        if history is None or not history.accepted:
            return ("p", 0, 0)
        epoch, seq = max(history.accepted)
        return ("p", epoch, seq + (which == "next"))

    def note_token(self, stream: PlainStream, token: str) -> None:
        if not stream.appends:
            assert token == format_offset(0, 0)
            return
        if len(stream.tokens) < len(stream.appends):
            # A fork with a first append of its own was never told where the two meet.
            if len(stream.tokens) == len(stream.appends) - 2:
                at = len(b"".join(stream.appends[:-1]))
                stream.tokens.append(self.real.by_path[stream.path].token(at))
            stream.tokens.append(token)
        assert stream.tokens[-1] == token


TestHistories = Histories.TestCase
TestHistories.settings = settings(NORMAL, max_examples=250, stateful_step_count=50)
