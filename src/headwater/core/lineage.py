"""Forks: which stream wrote which bytes.

A fork reads as its source up to the fork point and then as itself, in one offset space and without
copying anything. Its lineage is the list of runs it inherits, oldest first: "bytes up to `end` were
written by stream `run`". A fork of a fork inherits the list, cut at the new fork point.

Readers may send an offset slightly past a boundary: clients of the public protocol add one to the
offsets they get. The read continues at the boundary before it; see `approach`.

The fork point is an offset of the source (its tail by default) plus a sub-offset: a number of
messages in JSON mode, of bytes otherwise, within the append after that offset.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from headwater.core import json_mode
from headwater.core.errors import InvalidFork, UnknownOffset
from headwater.core.offsets import Anchor, Offset, format_offset, parse_offset

_DIGITS = re.compile(r"[0-9]{1,16}", re.ASCII)


class Inherited(NamedTuple):
    """Bytes up to position `end` were written by stream `run`."""

    run: int
    end: int


class Span(NamedTuple):
    """Bytes `start` to `end` of what stream `run` wrote."""

    run: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Lineage:
    """The runs of one stream: what it inherits, then its own."""

    own: int
    inherited: tuple[Inherited, ...] = ()

    def run_at(self, position: int) -> int:
        """The stream that wrote the byte just before the position; 0 at the beginning."""
        if position == 0:
            return 0
        for run, end in self.inherited:
            if position <= end:
                return run
        return self.own

    def offset_at(self, position: int) -> Offset:
        return Offset(self.run_at(position), position)

    def token_at(self, position: int) -> str:
        """The offset of a position as clients see it."""
        return format_offset(self.run_at(position), position)

    @property
    def base(self) -> int:
        """Where the stream's own bytes begin."""
        return self.inherited[-1].end if self.inherited else 0

    def locate(self, offset: Anchor | Offset, tail: int) -> int:
        """The position of an offset, if it is one of this stream's."""
        if offset is Anchor.START:
            return 0
        if offset is Anchor.TAIL:
            return tail
        assert isinstance(offset, Offset)
        if offset.position > tail or self.run_at(offset.position) != offset.run:
            raise UnknownOffset(str(offset))
        return offset.position

    def approach(self, offset: Anchor | Offset, tail: int) -> int:
        """The position where a read begins; the boundary before it if no append begins there.

        One past the tail is the tail, in the run that the tail names. Run 0 wrote nothing, so one
        past the beginning can only be the beginning. Anything else past the end of a run is an
        offset of another stream, or of one that was restored to an earlier state.
        """
        if isinstance(offset, Offset) and offset.position > 0:
            before = offset.position - 1
            if offset == Offset(0, 1) or (before == tail and offset.run == self.run_at(tail)):
                return before
        return self.locate(offset, tail)

    def spans(self, start: int, end: int) -> list[Span]:
        """Split an interval into the spans that each stream of the lineage wrote."""
        found: list[Span] = []
        for run, run_end in (*self.inherited, Inherited(self.own, end)):
            stop = min(run_end, end)
            if start < stop:
                found.append(Span(run, start, stop))
                start = stop
        return found

    def cut_at(self, position: int) -> tuple[Inherited, ...]:
        """What a fork of this stream at the position inherits."""
        return tuple(Inherited(run, end) for run, _, end in self.spans(0, position))


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """A fork as requested. Stored with the stream, so that a repeated request is recognised."""

    source: str
    offset: str | None = None
    sub_offset: int = 0

    def anchor(self) -> Anchor | Offset:
        return Anchor.TAIL if self.offset is None else parse_offset(self.offset)


def parse_fork(
    source: str | None, offset: str | None, sub_offset: str | None
) -> ForkRequest | None:
    if source is None:
        if offset is not None or sub_offset is not None:
            raise InvalidFork("a fork offset needs Stream-Forked-From: name the source stream")
        return None
    count = 0
    if sub_offset is not None:
        if _DIGITS.fullmatch(sub_offset) is None:
            raise InvalidFork("Stream-Fork-Sub-Offset must be a plain count in digits")
        count = int(sub_offset)
    if count > 0 and offset is None:
        raise InvalidFork("Stream-Fork-Sub-Offset counts from Stream-Fork-Offset: send that too")
    if offset is not None:
        parse_offset(offset)
    return ForkRequest(source, offset, count)


def measure_sub_offset(stored: bytes | None, count: int, *, json: bool) -> tuple[int, int]:
    """How many bytes and messages of the append after the offset a sub-offset includes.

    `stored` is that append in stored form, None when the offset is the tail.
    """
    if count == 0:
        return 0, 0
    messages = json_mode.decode(stored or b"") if json else []
    available = len(messages) if json else len(stored or b"")
    if count > available:
        raise InvalidFork(
            f"Stream-Fork-Sub-Offset {count} passes the end of the next append ({available})"
        )
    if json:
        return sum(len(message) + 1 for message in messages[:count]), count
    # A prefix of an append's bytes counts as one message of the fork.
    return count, 1
