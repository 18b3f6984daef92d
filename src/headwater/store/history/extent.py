"""Reading an extent: what a segment holds of one run, located by the extent's index."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from headwater.core.errors import UnknownOffset
from headwater.core.frames import Frame, Stamps
from headwater.core.offsets import format_offset
from headwater.core.producers import ProducerStamp
from headwater.core.stream import Appended
from headwater.store.engine.appends import FileRange
from headwater.store.history import segment_format
from headwater.store.history.segment_format import (
    LARGE,
    SMALL,
    LayoutError,
    Places,
)

if TYPE_CHECKING:
    from headwater.store.history.segment import BlockReader

_STARTS_AT_ONCE_MAX: Final = 1_024


class Extent:
    """A contiguous span of a run in a segment, and its index. Appends are numbered from 0."""

    def __init__(
        self, segment: BlockReader, index_offset: int, header: segment_format.Header
    ) -> None:
        self.segment = segment
        self.header = header
        self._offset = index_offset
        self._places = Places.of(header)

    def _small(self, place: int, number: int) -> int:
        data = self.segment.read(self._offset + place + SMALL.size * number, SMALL.size)
        value: int = SMALL.unpack(data)[0]
        return value

    def _large(self, place: int, number: int) -> int:
        data = self.segment.read(self._offset + place + LARGE.size * number, LARGE.size)
        value: int = LARGE.unpack(data)[0]
        return value

    # ── Appends by number ────────────────────────────────────────────────────────────────────

    def number_at(self, position: int) -> int:
        """The append that holds the byte after a position of the run."""
        relative = position - self.header.start
        first, stop = 0, self.header.appends
        # Few entries are read at once: each read is a system call, and lets other threads run.
        while stop - first > _STARTS_AT_ONCE_MAX:
            middle = (first + stop) // 2
            if self._small(self._places.starts, middle) <= relative:
                first = middle
            else:
                stop = middle
        starts = self._small_array(self._places.starts, first, stop)
        return first + bisect_right(starts, relative) - 1

    def start_of(self, number: int) -> int:
        if number == self.header.appends:
            return self.header.end
        return self.header.start + self._small(self._places.starts, number)

    def append(self, number: int) -> segment_format.Append:
        places = self._places
        return segment_format.Append(
            self.start_of(number),
            self.first_message(number),
            self._large(places.times, number),
            self._large(places.sums, number),
            self._stamp(number),
            self.ids(number, number + 1).get(0),
        )

    def first_message(self, number: int) -> int:
        header = self.header
        if number == header.appends:
            return header.first_message + header.messages
        return header.first_message + self._small(self._places.messages, number)

    def _stamp(self, number: int) -> ProducerStamp | None:
        places = self._places
        who = self._small(places.producers, number) if self.header.stamped else 0
        if who == 0:
            return None
        return ProducerStamp(
            self._names()[who - 1],
            self._large(places.epochs, number),
            self._large(places.seqs, number),
        )

    def columns(self, first: int, stop: int) -> segment_format.Columns:
        """All metadata of some appends, without their bodies."""
        header, places = self.header, self._places
        starts = self._small_array(places.starts, first, stop)
        messages = self._small_array(places.messages, first, stop)
        return segment_format.Columns(
            [header.start + relative for relative in starts],
            [header.first_message + number for number in messages],
            self._large_array(places.times, first, stop),
            self._large_array(places.sums, first, stop),
            self.stamps(first, stop),
            self.start_of(stop),
            self.first_message(stop),
            self.ids(first, stop),
        )

    def ids(self, first: int, stop: int) -> dict[int, str]:
        """The ids of some appends, by index from the first of them."""
        if not self.header.has_ids:
            return {}
        before = self._small(self._places.id_ends, first - 1) if first else 0
        ends = self._small_array(self._places.id_ends, first, stop)
        place = self._offset + self._places.ids
        data = self.segment.read(place + before, ends[-1] - before)
        starts = (before, *ends[:-1])
        return {
            number: data[start - before : end - before].decode()
            for number, (start, end) in enumerate(zip(starts, ends, strict=True))
            if end > start
        }

    def stamps(self, first: int, stop: int) -> dict[int, ProducerStamp]:
        """The stamps of some appends, by index from the first of them."""
        if not self.header.stamped:
            return {}
        stamps = self._stamp_columns(first, stop)
        found = ((number, stamps.stamp(number)) for number in range(stop - first))
        return {number: stamp for number, stamp in found if stamp is not None}

    def _names(self) -> list[str]:
        place = self._offset + self._places.names
        try:
            return segment_format.read_names(self.segment.read(place, self.header.names_bytes))
        except LayoutError as error:
            raise self.segment.damaged(str(error)) from None

    def appended(self, number: int) -> Appended:
        """An append as it was committed, without what only its commit needed."""
        append, after = self.append(number), number + 1
        body = self.body(append.start, self.start_of(after))
        return Appended(
            self.header.run,
            append.start,
            body,
            append.first_message,
            self.first_message(after) - append.first_message,
            append.at_ms,
            append.producer,
            message_id=append.message_id,
        )

    def frame(self, start: int, end: int, limit: int, max_messages: int = 2**62) -> Frame:
        """Appends from one position to another: at least one, none that ends after the limit, and
        at most `max_messages` messages.
        """
        first = self.number_at(start)
        if self.start_of(first) != start:
            raise UnknownOffset(format_offset(self.header.run, start))
        stop = self.header.appends if end >= self.header.end else self.number_at(end - 1) + 1
        if self.start_of(stop) > limit:
            stop = max(first + 1, self.number_at(limit))
        stop = self._stop_within(first, stop, max_messages)
        places, header = self._places, self.header
        starts = self._small_array(places.starts, first, stop)
        starts.append(self.start_of(stop) - header.start)
        firsts = self._small_array(places.messages, first, stop)
        firsts.append(self.first_message(stop) - header.first_message)
        return Frame(
            header.run,
            self.body(start, min(self.start_of(stop), end)),
            header.start,
            starts,
            firsts,
            self._large_array(places.times, first, stop),
            self._stamp_columns(first, stop) if header.stamped else None,
            list(map(self.ids(first, stop).get, range(stop - first))) if header.has_ids else None,
        )

    def _stop_within(self, first: int, stop: int, max_messages: int) -> int:
        """Where `max_messages` messages end at the latest, but after at least one append."""
        most = self.first_message(first) + max_messages
        if self.first_message(stop) <= most:
            return stop
        low = first + 1
        while low < stop:
            middle = (low + stop + 1) // 2
            if self.first_message(middle) <= most:
                low = middle
            else:
                stop = middle - 1
        return low

    def _stamp_columns(self, first: int, stop: int) -> Stamps:
        places = self._places
        return Stamps(
            self._names(),
            self._small_array(places.producers, first, stop),
            self._large_array(places.epochs, first, stop),
            self._large_array(places.seqs, first, stop),
        )

    def _small_array(self, place: int, first: int, stop: int) -> array[int]:
        size = SMALL.size
        place += self._offset + size * first
        return segment_format.unpack_small(self.segment.read(place, size * (stop - first)))

    def _large_array(self, place: int, first: int, stop: int) -> array[int]:
        size = LARGE.size
        place += self._offset + size * first
        return segment_format.unpack_large(self.segment.read(place, size * (stop - first)))

    # ── Bodies ───────────────────────────────────────────────────────────────────────────────

    def cut(self, position: int, limit: int, end: int) -> int:
        """Where the last append that ends within a limit ends; `end` bounds the extent.

        The position itself if even the append that begins there ends beyond the limit. The limit
        lies after the position.
        """
        if end <= limit:
            return end
        return max(position, self.start_of(self.number_at(limit)))

    def _place(self, position: int) -> int:
        return self.header.data_offset + position - self.header.start

    def body(self, start: int, end: int) -> bytes:
        return self.segment.read(self._place(start), end - start)

    def range(self, start: int, end: int) -> FileRange:
        """Bodies to be sent by the kernel, from a file of this machine."""
        return self.segment.range(self._place(start), end - start)

    def bodies(self, start: int, end: int) -> list[bytes]:
        """Bodies from one position to another, the last one cut if necessary."""
        found: list[bytes] = []
        number = self.number_at(start)
        data = memoryview(self.body(start, end))
        base = position = start
        while position < end:
            stops = self._stops(number)
            for stop in stops:
                found.append(bytes(data[position - base : min(stop, end) - base]))
                position = stop
                if position >= end:
                    break
            number += len(stops)
        return found

    def _stops(self, number: int) -> list[int]:
        """The ends of some appends from this one on."""
        count = min(_STARTS_AT_ONCE_MAX, self.header.appends - 1 - number)
        place = self._offset + self._places.starts + SMALL.size * (number + 1)
        data = self.segment.read(place, SMALL.size * count)
        stops = [self.header.start + relative for relative in segment_format.unpack_small(data)]
        if count < _STARTS_AT_ONCE_MAX:
            stops.append(self.header.end)
        return stops
