"""Frames: many appends of one run, as columns instead of objects.

Bulk readers want a million messages, and an object for each would cost more than everything else. A
frame holds the stored bytes of its appends contiguously, and an array for each of their properties.
The arrays of positions and message numbers have one entry more than there are appends, so each
entry and the next are where an append begins and ends.

A fork may inherit only the first part of an append. The bytes of a frame then end before its arrays
say so, and the code that splits the frame has to find out how many messages of the last append are
left.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwater.core import json_mode, objects
from headwater.core.producers import ProducerStamp
from headwater.core.stream import Appended


@dataclass(frozen=True, slots=True)
class Stamps:
    """The producers of a frame's appends."""

    names: Sequence[str]
    who: array[int]
    """For each append the index of its producer in the names, from 1; 0 for none."""
    epochs: array[int]
    seqs: array[int]

    def stamp(self, number: int) -> ProducerStamp | None:
        who = self.who[number]
        if who == 0:
            return None
        return ProducerStamp(self.names[who - 1], self.epochs[number], self.seqs[number])


@dataclass(frozen=True, slots=True)
class Frame:
    run: int
    data: bytes
    origin: int
    """The position that `starts` is relative to."""
    starts: array[int]
    firsts: array[int]
    """Message numbers, from an arbitrary start."""
    times: array[int]
    stamps: Stamps | None = None
    ids: Sequence[str | None] | None = None
    """Ids that headers gave to appends; None if there are none."""

    @classmethod
    def of(cls, appends: Sequence[Appended], end: int) -> Frame:
        """A frame of at least one append, cut at `end` if the last one ends after it."""
        first, last = appends[0], appends[-1]
        origin, number = first.start, first.first_message
        starts = array("I", [one.start - origin for one in appends])
        starts.append(last.end - origin)
        firsts = array("I", [one.first_message - number for one in appends])
        firsts.append(last.first_message + last.messages - number)
        times = array("q", [one.at_ms for one in appends])
        data = b"".join([one.body for one in appends])
        stamps = _stamps_of([one.producer for one in appends])
        ids = [one.message_id for one in appends]
        return cls(
            first.stream_id,
            data[: end - origin],
            origin,
            starts,
            firsts,
            times,
            stamps,
            ids if any(one is not None for one in ids) else None,
        )

    @property
    def appends(self) -> int:
        return len(self.times)

    @property
    def start(self) -> int:
        return self.origin + self.starts[0]

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    @property
    def messages(self) -> int:
        return self.firsts[-1] - self.firsts[0]

    @property
    def has_single_messages(self) -> bool:
        """Whether each append is one message. None has fewer."""
        return self.messages == self.appends

    def bodies(self) -> Iterator[bytes]:
        """The stored bytes of each append."""
        first = self.starts[0]
        for number in range(self.appends):
            yield self.data[self.starts[number] - first : self.starts[number + 1] - first]

    def message_sizes(self) -> array[int]:
        """The length of each JSON message, computed in strides that fit a cache."""
        sizes = array("i")
        begin, first, message = 0, self.starts[0], self.firsts[0]
        for number in range(1, self.appends + 1):
            end = min(self.starts[number] - first, len(self.data))
            if end - begin >= _STRIDE_BYTES or number == self.appends:
                stored, messages = self.data[begin:end], self.firsts[number] - message
                sizes.extend(objects.sizes(stored, messages) or json_mode.sizes(stored))
                begin, message = end, self.firsts[number]
        return sizes


_STRIDE_BYTES = 512 * 1024


def _stamps_of(producers: Sequence[ProducerStamp | None]) -> Stamps | None:
    if not any(producers):
        return None
    names = {stamp.id: 0 for stamp in producers if stamp is not None}
    for number, name in enumerate(names, start=1):
        names[name] = number
    return Stamps(
        list(names),
        array("I", [names[stamp.id] if stamp else 0 for stamp in producers]),
        array("q", [stamp.epoch if stamp else 0 for stamp in producers]),
        array("q", [stamp.seq if stamp else 0 for stamp in producers]),
    )
