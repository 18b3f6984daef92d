"""The life of a stream, step by step: create, confirm, fork, delete, expire, touch."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headwater.core import errors
from headwater.core.decisions import Append, Create
from headwater.core.expiry import FOREVER, Lifetime
from headwater.core.lineage import ForkRequest
from headwater.core.producers import ProducerStamp
from headwater.core.stream import (
    Appended,
    Closed,
    Created,
    Deleted,
    ForkCounted,
    Mutation,
    SoftDeleted,
    StreamConfig,
    StreamState,
    Touched,
    evolve,
)
from tests.support.decided import DecidedStreams

NOW_MS = 1_000_000


@pytest.fixture
def streams() -> DecidedStreams:
    return DecidedStreams()


def kinds(mutations: Sequence[Mutation]) -> list[type]:
    return [type(mutation) for mutation in mutations]


def fork(path: str, source: str, lifetime: Lifetime = FOREVER, offset: str | None = None) -> Create:
    return Create(path, lifetime=lifetime, fork=ForkRequest(source, offset))


# ── Create ───────────────────────────────────────────────────────────────────────────────────


def test_a_stream_is_created_with_its_first_append_and_closed_at_once(
    streams: DecidedStreams,
) -> None:
    reply = streams.create(Create("s", "text/plain", b"all there is", closed=True), NOW_MS)
    assert (reply.new, reply.closed, reply.content_type) == (True, True, "text/plain")
    assert reply.next_offset == "0000000000000001_0000000000000012"
    assert kinds(streams.last_mutations) == [Created, Appended, Closed]


def test_an_empty_array_creates_an_empty_stream(streams: DecidedStreams) -> None:
    reply = streams.create(Create("s", "application/json", b"[]"), NOW_MS)
    assert reply.next_offset == "0000000000000000_0000000000000000"
    assert kinds(streams.last_mutations) == [Created]


def test_a_body_that_does_not_fit_creates_nothing(streams: DecidedStreams) -> None:
    with pytest.raises(errors.InvalidJson):
        streams.create(Create("s", "application/json", b"{"), NOW_MS)
    assert streams.by_path == {}


@pytest.mark.parametrize("content_type", ["text", "text/plain\r\nX: y"])
def test_a_content_type_that_is_none_creates_nothing(
    streams: DecidedStreams, content_type: str
) -> None:
    with pytest.raises(errors.InvalidHeader):
        streams.create(Create("s", content_type), NOW_MS)


BASE = Create("s", "text/plain", lifetime=Lifetime(ttl_s=60))


@pytest.mark.parametrize(
    "again, same",
    [
        (BASE, True),
        (Create("s", "TEXT/plain; charset=utf-8", lifetime=Lifetime(ttl_s=60)), True),
        (Create("s", "text/plain", b"a body counts for nothing", Lifetime(ttl_s=60)), True),
        (Create("s", "text/html", lifetime=Lifetime(ttl_s=60)), False),
        (Create("s", lifetime=Lifetime(ttl_s=60)), False),
        (Create("s", "text/plain", lifetime=Lifetime(ttl_s=61)), False),
        (Create("s", "text/plain"), False),
        (Create("s", "text/plain", lifetime=Lifetime(expires_at_ms=NOW_MS + 60_000)), False),
        (Create("s", "text/plain", lifetime=Lifetime(ttl_s=60), closed=True), False),
        (Create("s", "text/plain", lifetime=Lifetime(ttl_s=60), fork=ForkRequest("t")), False),
    ],
)
def test_asking_again_confirms_the_same_and_refuses_the_different(
    streams: DecidedStreams, again: Create, same: bool
) -> None:
    streams.create(BASE, NOW_MS)
    streams.create(Create("t", "text/plain"), NOW_MS)
    if same:
        reply = streams.create(again, NOW_MS)
        assert not reply.new
        assert streams.last_mutations == ()
    else:
        with pytest.raises(errors.ConfigConflict):
            streams.create(again, NOW_MS)


def test_two_spellings_of_one_expiry_are_the_same(streams: DecidedStreams) -> None:
    streams.create(Create("s", lifetime=Lifetime(None, 2_000_000, "one way")), NOW_MS)
    again = Create("s", lifetime=Lifetime(None, 2_000_000, "another"))
    assert not streams.create(again, NOW_MS).new


# ── Forks ────────────────────────────────────────────────────────────────────────────────────


def test_a_fork_of_a_closed_stream_is_open_and_starts_afresh(streams: DecidedStreams) -> None:
    streams.create(Create("s", "text/plain"), NOW_MS)
    first = Append(b"x", "text/plain", True, ProducerStamp("p", 7, 0), "seq")
    streams.append("s", first, NOW_MS)
    reply = streams.create(fork("f", "s"), NOW_MS)
    assert (reply.closed, reply.content_type) == (False, "text/plain")
    state = streams.by_path["f"]
    assert (state.producers, state.last_stream_seq, state.tail) == ({}, None, 1)
    again = Append(b"y", "text/plain", False, ProducerStamp("p", 0, 0), "a")
    streams.append("f", again, NOW_MS)
    assert streams.content(state) == b"xy"
    assert streams.content(streams.by_path["s"]) == b"x"


@pytest.mark.parametrize(
    "source_lifetime, asked, expected",
    [
        (FOREVER, FOREVER, FOREVER),
        (Lifetime(ttl_s=60), FOREVER, Lifetime(ttl_s=60)),
        (Lifetime(expires_at_ms=5_000_000), FOREVER, Lifetime(expires_at_ms=5_000_000)),
        (Lifetime(ttl_s=60), Lifetime(ttl_s=9), Lifetime(ttl_s=9)),
        (Lifetime(ttl_s=60), Lifetime(expires_at_ms=9_000_000), Lifetime(expires_at_ms=9_000_000)),
        (FOREVER, Lifetime(ttl_s=9), Lifetime(ttl_s=9)),
    ],
)
def test_a_fork_has_its_own_lifetime_or_its_sources(
    streams: DecidedStreams, source_lifetime: Lifetime, asked: Lifetime, expected: Lifetime
) -> None:
    streams.create(Create("s", lifetime=source_lifetime), NOW_MS)
    streams.create(fork("f", "s", asked), NOW_MS + 10)
    state = streams.by_path["f"]
    assert state.config.lifetime == expected
    assert state.touched_at_ms == NOW_MS + 10, "its window is its own"
    assert not streams.create(fork("f", "s", asked), NOW_MS + 20).new
    if not expected.is_forever and asked.is_forever:
        assert not streams.create(fork("f", "s", expected), NOW_MS + 20).new
    if not asked.is_forever:
        with pytest.raises(errors.ConfigConflict):
            streams.create(fork("f", "s"), NOW_MS + 20)


def test_the_same_fork_is_the_one_asked_for_in_the_same_words(streams: DecidedStreams) -> None:
    streams.create(Create("s", body=b"x"), NOW_MS)
    tail = streams.by_path["s"].tail_token
    streams.create(fork("f", "s", offset=tail), NOW_MS)
    assert not streams.create(fork("f", "s", offset=tail), NOW_MS).new
    for other in (fork("f", "s"), fork("f", "s", offset="-1"), Create("f")):
        with pytest.raises(errors.ConfigConflict):
            streams.create(other, NOW_MS)


def test_a_refused_fork_holds_no_reference(streams: DecidedStreams) -> None:
    streams.create(Create("s", "text/plain", b"abc"), NOW_MS)
    refused = [
        Create("f", "text/html", fork=ForkRequest("s")),
        Create("f", fork=ForkRequest("s", "-1", 4)),
        Create("f", fork=ForkRequest("s", "0000000000000001_0000000000000004")),
        Create("f", fork=ForkRequest("s", "0000000000000001_0000000000000009")),
        Create("f", fork=ForkRequest("missing")),
    ]
    for command in refused:
        with pytest.raises(errors.StreamError):
            streams.create(command, NOW_MS)
    assert streams.by_path["s"].forks == 0
    streams.delete("s", NOW_MS)
    assert streams.by_path == {}


# ── Delete ───────────────────────────────────────────────────────────────────────────────────


def test_a_stream_without_forks_is_deleted(streams: DecidedStreams) -> None:
    streams.create(Create("s"), NOW_MS)
    streams.delete("s", NOW_MS)
    assert kinds(streams.last_mutations) == [Deleted]
    with pytest.raises(errors.StreamNotFound):
        streams.delete("s", NOW_MS)


def test_a_stream_with_forks_is_only_hidden(streams: DecidedStreams) -> None:
    streams.create(Create("s", body=b"abc"), NOW_MS)
    streams.create(fork("f", "s"), NOW_MS)
    streams.delete("s", NOW_MS)
    assert kinds(streams.last_mutations) == [SoftDeleted]
    assert streams.content(streams.by_path["f"]) == b"abc"
    with pytest.raises(errors.StreamGone):
        streams.append("s", Append(b"x", "application/octet-stream"), NOW_MS)
    with pytest.raises(errors.StreamGone):
        streams.delete("s", NOW_MS)
    with pytest.raises(errors.PathReserved):
        streams.create(Create("s"), NOW_MS)
    with pytest.raises(errors.SourceDeleted):
        streams.create(fork("g", "s"), NOW_MS)


def test_the_last_fork_takes_every_hidden_ancestor_with_it(streams: DecidedStreams) -> None:
    streams.create(Create("a", body=b"1"), NOW_MS)
    for path, source in (("b", "a"), ("c", "b"), ("d", "c")):
        streams.create(fork(path, source), NOW_MS)
    for path in ("c", "a", "b"):
        streams.delete(path, NOW_MS)
        assert kinds(streams.last_mutations) == [SoftDeleted]
    streams.delete("d", NOW_MS)
    assert [m.stream_id for m in streams.last_mutations if isinstance(m, Deleted)] == [4, 3, 2, 1]
    assert streams.by_path == {}


def test_an_ancestor_with_another_fork_or_a_life_of_its_own_stays(streams: DecidedStreams) -> None:
    streams.create(Create("a", body=b"1"), NOW_MS)
    streams.create(fork("b", "a"), NOW_MS)
    streams.create(fork("c", "b"), NOW_MS)
    streams.create(fork("d", "b"), NOW_MS)
    streams.delete("b", NOW_MS)
    streams.delete("c", NOW_MS)
    assert set(streams.by_path) == {"a", "b", "d"}, "b is hidden, but d needs it"
    assert streams.content(streams.by_path["d"]) == b"1"
    streams.delete("d", NOW_MS)
    assert set(streams.by_path) == {"a"}, "a was never deleted"
    assert streams.by_path["a"].forks == 0


# ── Expiry ───────────────────────────────────────────────────────────────────────────────────


def test_a_stream_whose_time_is_over_is_not_there_even_before_it_is_removed(
    streams: DecidedStreams,
) -> None:
    streams.create(Create("s", "text/plain", b"old", Lifetime(ttl_s=5)), NOW_MS)
    end = NOW_MS + 5_000
    assert not streams.expire("s", end - 1)
    with pytest.raises(errors.StreamNotFound):
        streams.append("s", Append(b"x", "text/plain"), end)
    with pytest.raises(errors.StreamNotFound):
        streams.create(fork("f", "s"), end)
    reply = streams.create(Create("s", "text/html", b"new"), end)
    assert reply.new
    assert kinds(streams.last_mutations) == [Deleted, Created, Appended]
    assert streams.content(streams.by_path["s"]) == b"new"
    assert streams.by_path["s"].config.id == 2


def test_a_stream_that_expires_with_forks_keeps_its_path(streams: DecidedStreams) -> None:
    streams.create(Create("s", body=b"abc", lifetime=Lifetime(ttl_s=5)), NOW_MS)
    streams.create(fork("f", "s", Lifetime(ttl_s=500)), NOW_MS)
    end = NOW_MS + 5_000
    with pytest.raises(errors.StreamGone):
        streams.append("s", Append(b"x", "application/octet-stream"), end)
    with pytest.raises(errors.PathReserved):
        streams.create(Create("s"), end)
    with pytest.raises(errors.SourceDeleted):
        streams.create(fork("g", "s"), end)
    assert streams.expire("s", end)
    assert kinds(streams.last_mutations) == [SoftDeleted]
    assert not streams.expire("s", end), "once is enough"
    assert streams.last_mutations == ()
    assert streams.content(streams.by_path["f"]) == b"abc"


def test_an_expired_fork_takes_its_hidden_source_with_it_when_its_path_is_used_again(
    streams: DecidedStreams,
) -> None:
    streams.create(Create("s", body=b"abc"), NOW_MS)
    streams.create(fork("f", "s", Lifetime(ttl_s=5)), NOW_MS)
    streams.delete("s", NOW_MS)
    streams.create(Create("f"), NOW_MS + 5_000)
    assert kinds(streams.last_mutations) == [Deleted, ForkCounted, Deleted, Created]
    assert set(streams.by_path) == {"f"}


def test_every_access_starts_a_ttl_again_but_only_some_are_written_down(
    streams: DecidedStreams,
) -> None:
    streams.create(Create("s", lifetime=Lifetime(ttl_s=8)), NOW_MS)
    streams.touch("s", NOW_MS + 999)
    assert not streams.last_mutations
    assert not streams.by_path["s"].is_expired(NOW_MS + 8_998)
    streams.touch("s", NOW_MS + 1_000)
    assert streams.last_mutations == (Touched(1, NOW_MS + 1_000),)
    streams.append("s", Append(b"x", "application/octet-stream"), NOW_MS + 5_000)
    assert not streams.expire("s", NOW_MS + 12_999)
    assert streams.expire("s", NOW_MS + 13_000)


def test_an_expiry_never_moves(streams: DecidedStreams) -> None:
    streams.create(Create("s", lifetime=Lifetime(expires_at_ms=NOW_MS + 10)), NOW_MS)
    streams.touch("s", NOW_MS + 9)
    streams.append("s", Append(b"x", "application/octet-stream"), NOW_MS + 9)
    assert Touched not in kinds(streams.last_mutations)
    assert streams.expire("s", NOW_MS + 10)


def test_a_clock_that_goes_back_shortens_no_life(streams: DecidedStreams) -> None:
    streams.create(Create("s", lifetime=Lifetime(ttl_s=10)), NOW_MS)
    streams.touch("s", NOW_MS - 9_000)
    assert not streams.by_path["s"].is_expired(NOW_MS + 9_999)


def test_a_state_cannot_be_created_over_another() -> None:
    config = StreamConfig(1, "s", "text/plain", NOW_MS)
    with pytest.raises(ValueError, match="its own state"):
        evolve(StreamState.created(config), Created(config))
