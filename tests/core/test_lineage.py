"""Forks: random trees of them, against a model that copies every byte."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core import json_mode
from headwater.core.errors import InvalidFork, InvalidOffset, UnknownOffset
from headwater.core.lineage import (
    ForkRequest,
    Lineage,
    Span,
    measure_sub_offset,
    parse_fork,
)
from headwater.core.offsets import Anchor, Offset, format_offset, parse_offset
from tests.support.properties import NORMAL, THOROUGH, json_texts

Byte = tuple[int, int]
"""A byte by its identity: who wrote it, and where."""


@dataclass
class Copy:
    """A stream of the model: all of its bytes, its source's copied in."""

    lineage: Lineage
    content: list[Byte]

    @property
    def tail(self) -> int:
        return len(self.content)


@dataclass
class Tree:
    streams: list[Copy] = field(default_factory=list)
    written: dict[int, dict[int, Byte]] = field(default_factory=dict)
    """What is stored: each stream's own bytes by position, and nothing twice."""

    def create(self) -> None:
        self._add(Lineage(len(self.streams) + 1), [])

    def append(self, stream: Copy, size: int) -> None:
        for position in range(stream.tail, stream.tail + size):
            byte = (stream.lineage.own, position)
            self.written[stream.lineage.own][position] = byte
            stream.content.append(byte)

    def fork(self, source: Copy, at: int) -> None:
        lineage = Lineage(len(self.streams) + 1, source.lineage.cut_at(at))
        self._add(lineage, source.content[:at])

    def _add(self, lineage: Lineage, content: list[Byte]) -> None:
        self.written[lineage.own] = {}
        self.streams.append(Copy(lineage, content))

    def read(self, spans: list[Span]) -> list[Byte]:
        return [self.written[run][at] for run, start, end in spans for at in range(start, end)]


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    tree = Tree()
    tree.create()
    for _ in range(draw(st.integers(1, 14))):
        stream = draw(st.sampled_from(tree.streams))
        match draw(st.sampled_from(["append", "append", "fork", "fork", "create"])):
            case "append":
                tree.append(stream, draw(st.integers(1, 5)))
            case "fork":
                tree.fork(stream, draw(st.integers(0, stream.tail)))
            case _:
                tree.create()
    return tree


def tokens(stream: Copy) -> dict[int, str]:
    return {at: str(stream.lineage.offset_at(at)) for at in range(stream.tail + 1)}


def shared_bytes(a: Copy, b: Copy) -> int:
    """How far two streams are the same bytes."""
    for position, (one, other) in enumerate(zip(a.content, b.content, strict=False)):
        if one != other:
            return position
    return min(a.tail, b.tail)


@NORMAL
@given(trees(), st.data())
def test_every_range_of_every_stream_reads_as_the_copied_bytes(
    tree: Tree, data: st.DataObject
) -> None:
    for stream in tree.streams:
        start = data.draw(st.integers(0, stream.tail))
        end = data.draw(st.integers(start, stream.tail))
        spans = stream.lineage.spans(start, end)
        assert tree.read(spans) == stream.content[start:end]
        assert tree.read(stream.lineage.spans(0, stream.tail)) == stream.content
        assert all(span.start < span.end for span in spans)


@NORMAL
@given(trees())
def test_tokens_strictly_increase_along_every_stream(tree: Tree) -> None:
    for stream in tree.streams:
        along = [token for _, token in sorted(tokens(stream).items())]
        assert along == sorted(set(along))


@NORMAL
@given(trees())
def test_two_streams_share_their_tokens_exactly_as_far_as_their_bytes(tree: Tree) -> None:
    for a in tree.streams:
        for b in tree.streams:
            shared = shared_bytes(a, b)
            ours, theirs = tokens(a), tokens(b)
            for position in range(min(a.tail, b.tail) + 1):
                assert (ours[position] == theirs[position]) == (position <= shared)
            assert not set(ours.values()) & {theirs[at] for at in theirs if at > shared}


@NORMAL
@given(trees())
def test_an_offset_is_found_where_it_belongs_and_nowhere_else(tree: Tree) -> None:
    for a in tree.streams:
        for b in tree.streams:
            shared = shared_bytes(a, b)
            for position, token in tokens(b).items():
                offset = parse_offset(token)
                if position <= shared:
                    assert a.lineage.locate(offset, a.tail) == position
                else:
                    with pytest.raises(UnknownOffset):
                        a.lineage.locate(offset, a.tail)


@NORMAL
@given(trees())
def test_a_stream_inherits_what_it_needs_and_no_more(tree: Tree) -> None:
    for stream in tree.streams:
        lineage = stream.lineage
        runs = [run for run, _ in lineage.inherited]
        ends = [end for _, end in lineage.inherited]
        assert runs == sorted(set(runs))
        assert ends == sorted(set(ends))
        assert lineage.own not in runs
        assert lineage.base == (ends[-1] if ends else 0)
        assert all(writer != lineage.own for writer, _ in stream.content[: lineage.base])
        assert all(writer == lineage.own for writer, _ in stream.content[lineage.base :])


@THOROUGH
@given(trees())
def test_one_past_the_tail_is_the_tail_of_that_run_only(tree: Tree) -> None:
    runs = range(len(tree.streams) + 3)
    for stream in tree.streams:
        lineage, tail = stream.lineage, stream.tail
        for position in range(tail + 3):
            for run in runs:
                offset = Offset(run, position)
                try:
                    expected = lineage.locate(offset, tail)
                except UnknownOffset:
                    if (run, position) == (0, 1):
                        expected = 0
                    elif position == tail + 1 and run == lineage.run_at(tail):
                        expected = tail
                    else:
                        with pytest.raises(UnknownOffset):
                            lineage.approach(offset, tail)
                        continue
                assert lineage.approach(offset, tail) == expected
        assert lineage.approach(Anchor.TAIL, tail) == tail
        assert lineage.approach(Anchor.START, tail) == 0


def test_named_positions() -> None:
    lineage = Lineage(7)
    assert lineage.locate(Anchor.START, 10) == 0
    assert lineage.locate(Anchor.TAIL, 10) == 10
    assert lineage.locate(Offset(0, 0), 10) == 0


@THOROUGH
@given(st.integers(0, 20), st.integers(0, 12))
def test_an_offset_past_the_tail_is_unknown(position: int, run: int) -> None:
    lineage, tail = Lineage(7), 10
    good = (run, position) == (0, 0) or (run == 7 and 0 < position <= tail)
    if good:
        assert lineage.locate(Offset(run, position), tail) == position
    else:
        with pytest.raises(UnknownOffset):
            lineage.locate(Offset(run, position), tail)


# ── Sub-offsets ──────────────────────────────────────────────────────────────────────────────


@THOROUGH
@given(st.binary(max_size=12), st.integers(0, 14))
def test_a_sub_offset_counts_bytes(stored: bytes, count: int) -> None:
    if count <= len(stored):
        assert measure_sub_offset(stored, count, json=False) == (count, 1 if count else 0)
    else:
        with pytest.raises(InvalidFork):
            measure_sub_offset(stored, count, json=False)


@THOROUGH
@given(st.lists(json_texts, min_size=1, max_size=4), st.integers(0, 6))
def test_a_sub_offset_counts_messages_in_json_mode(messages: list[bytes], count: int) -> None:
    stored, _ = json_mode.encode(b"[" + b",".join(messages) + b"]")
    if count <= len(messages):
        size, taken = measure_sub_offset(stored, count, json=True)
        assert taken == count
        assert json_mode.decode(stored[:size]) == messages[:count]
        assert json_mode.decode(stored[size:]) == messages[count:]
    else:
        with pytest.raises(InvalidFork):
            measure_sub_offset(stored, count, json=True)


@pytest.mark.parametrize("json", [True, False])
def test_there_is_nothing_behind_the_tail(json: bool) -> None:
    assert measure_sub_offset(None, 0, json=json) == (0, 0)
    with pytest.raises(InvalidFork):
        measure_sub_offset(None, 1, json=json)


# ── The headers of a fork ────────────────────────────────────────────────────────────────────


def test_without_a_source_there_is_no_fork() -> None:
    assert parse_fork(None, None, None) is None
    for offset, sub_offset in (("-1", None), (None, "0"), ("now", "1")):
        with pytest.raises(InvalidFork):
            parse_fork(None, offset, sub_offset)


@THOROUGH
@given(
    st.sampled_from(["-1", "now", format_offset(0, 0), format_offset(3, 17)]),
    st.integers(0, 10**16 - 1),
)
def test_a_fork_request_keeps_what_was_asked_for(offset: str, count: int) -> None:
    fork = parse_fork("source", offset, str(count))
    assert fork == ForkRequest("source", offset, count)
    assert fork.anchor() == parse_offset(offset)


def test_the_default_is_the_tail() -> None:
    fork = parse_fork("source", None, None)
    assert fork == ForkRequest("source")
    assert fork.anchor() is Anchor.TAIL
    assert parse_fork("source", None, "0") == fork


@pytest.mark.parametrize(
    "sub_offset", ["", "-1", "+1", "1.0", "1e2", " 1", "one", "٣", "²", "1" * 17, "9" * 5_000]
)
def test_a_sub_offset_is_a_plain_count(sub_offset: str) -> None:
    with pytest.raises(InvalidFork):
        parse_fork("source", "-1", sub_offset)


def test_a_sub_offset_needs_an_offset_to_count_from() -> None:
    with pytest.raises(InvalidFork):
        parse_fork("source", None, "1")


@pytest.mark.parametrize("offset", ["", "0", "1_2", "tail"])
def test_a_fork_offset_is_an_offset(offset: str) -> None:
    with pytest.raises(InvalidOffset):
        parse_fork("source", offset, None)
