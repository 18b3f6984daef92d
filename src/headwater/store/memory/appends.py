"""Appends in the memory engine."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter

from headwater.core.errors import UnknownOffset
from headwater.core.frames import Frame
from headwater.core.lineage import Span
from headwater.core.offsets import format_offset
from headwater.core.stream import Appended
from headwater.store.engine.appends import Outline, Piece, SealedExtent, SeekBy
from headwater.store.memory.append_log import AppendLog
from headwater.store.memory.tables import Tables

_START = attrgetter("start")


def _messages_end(append: Appended) -> int:
    return append.first_message + append.messages


class Appends:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def read(self, span: Span, max_bytes: int) -> list[bytes]:
        with self._tables.lock:
            appends = self._of_run(span.run)
            first = bisect_left(appends, span.start, key=_START)
            if first == len(appends) or appends[first].start != span.start:
                raise UnknownOffset(format_offset(span.run, span.start))
            bodies: list[bytes] = []
            size = 0
            for append in appends.between(first):
                size += len(append.body)
                if append.start >= span.end or (bodies and size > max_bytes):
                    break
                bodies.append(append.body[: span.end - append.start])
            return bodies

    def read_pieces(self, span: Span, max_bytes: int) -> list[Piece]:
        return [*self.read(span, max_bytes)]

    def known_pieces(self, span: Span, max_bytes: int) -> list[Piece] | None:
        return None

    def frames(self, span: Span, max_bytes: int, max_messages: int) -> list[Frame]:
        with self._tables.lock:
            bodies = self.read(span, max_bytes)
            appends = self._of_run(span.run)
            first = bisect_left(appends, span.start, key=_START)
            most = appends[first].first_message + max_messages
            stop = bisect_right(appends, most, first, first + len(bodies), key=_messages_end)
            taken = list(appends.between(first, max(stop, first + 1)))
            return [Frame.of(taken, span.end)]

    def sealed_extents(self, span: Span) -> list[SealedExtent]:
        return []

    def append_at(self, run: int, position: int) -> Appended | None:
        with self._tables.lock:
            appends = self._of_run(run)
            index = bisect_right(appends, position, key=_START) - 1
            if index < 0 or appends[index].end <= position:
                return None
            return appends[index]

    def outline_at(self, run: int, position: int) -> Outline | None:
        found = self.append_at(run, position)
        return Outline(found.start, found.end, found.first_message, found.at_ms) if found else None

    def seek(self, span: Span, by: SeekBy, value: int) -> Appended | None:
        with self._tables.lock:
            appends = self._of_run(span.run)
            first = bisect_left(appends, span.start, key=_START)
            last = bisect_left(appends, span.end, first, key=_START)
            index = bisect_right(appends, value, first, last, key=attrgetter(by)) - 1
            return appends[index] if index >= first else None

    def known_ids(self, spans: Sequence[Span], ids: Sequence[str]) -> set[str]:
        with self._tables.lock:
            logs = [
                (self._tables.logs[span.run].ids, span.end)
                for span in spans
                if span.run in self._tables.logs
            ]
            return {i for i in ids if any(known.get(i, end) < end for known, end in logs)}

    def _of_run(self, run: int) -> AppendLog:
        log = self._tables.logs.get(run)
        return log.appends if log else AppendLog()
