"""Cutting a stream into ranges, so that several readers can share the work.

A range begins and ends between two appends and is about as large as asked for. History is also cut
at the boundaries of its segment files, so that a reader with access to a file can read the range
from it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from headwater.core.errors import UnknownOffset
from headwater.core.lineage import Lineage, Span
from headwater.core.offsets import Anchor, Offset
from headwater.service.entries import Committed, Entry
from headwater.service.seeking import SeekingLog
from headwater.store.engine import Engine
from headwater.store.engine.appends import Outline, SealedExtent

RANGES_MAX = 10_000


class Range(msgspec.Struct, frozen=True):
    start: int
    end: int
    first_message: int
    messages: int
    first_at_ms: int
    last_at_ms: int
    sealed: SealedExtent | None


async def plan_ranges(
    log: SeekingLog,
    entry: Entry,
    offset: Anchor | Offset,
    until: Offset | None,
    target_bytes: int,
    *,
    by_file: bool = True,
) -> tuple[Committed, list[Range]]:
    """Divide the stream between two offsets, and say how far the stream was at that moment.

    File boundaries change as history is sealed: for ranges that are the same every time, pass
    `by_file=False`.
    """
    committed = log.view(entry).now
    view, position, end = await log.bounds(entry, offset, until)
    spans = view.config.lineage.spans(position, end)
    target_bytes = max(target_bytes, (end - position) // RANGES_MAX + 1)
    planner = _Planner(log.engine, view.config.lineage, committed, target_bytes, by_file)
    return committed, await log.in_thread(planner.plan, spans)


class _Planner:
    """Runs on a thread, because every step queries the engine."""

    def __init__(
        self,
        engine: Engine,
        lineage: Lineage,
        committed: Committed,
        target_bytes: int,
        by_file: bool,
    ) -> None:
        self._engine = engine
        self._lineage = lineage
        self._tail, self._messages, _ = committed
        self._target_bytes = target_bytes
        self._by_file = by_file

    def plan(self, spans: list[Span]) -> list[Range]:
        cuts = [cut for span in spans for cut in self._cut(span)]
        numbers = [self._number_at(span.start) for span, _ in cuts]
        if cuts:
            numbers.append(self._number_at(cuts[-1][0].end))
        ranges: list[Range] = []
        for index, (span, part) in enumerate(cuts):
            first, last = (
                self._outline_at(span.run, span.start),
                self._outline_at(span.run, span.end - 1),
            )
            count = numbers[index + 1] - numbers[index]
            ranges.append(
                Range(span.start, span.end, numbers[index], count, first.at_ms, last.at_ms, part)
            )
        return ranges

    def _cut(self, span: Span) -> Iterator[tuple[Span, SealedExtent | None]]:
        position = span.start
        parts = self._engine.appends.sealed_extents(span) if self._by_file else []
        # With more ranges than that, the files are of no use to anyone.
        for part in parts if len(parts) <= RANGES_MAX else ():
            if position < part.start:
                yield from self._cut_evenly(span._replace(start=position, end=part.start), None)
            yield from self._cut_evenly(Span(span.run, part.start, part.end), part)
            position = part.end
        yield from self._cut_evenly(span._replace(start=position), None)

    def _cut_evenly(
        self, span: Span, part: SealedExtent | None
    ) -> Iterator[tuple[Span, SealedExtent | None]]:
        position = span.start
        while position < span.end:
            stop = position + self._target_bytes
            if stop < span.end:
                append = self._outline_at(span.run, stop)
                stop = append.start if append.start > position else append.end
            stop = min(stop, span.end)
            yield Span(span.run, position, stop), part
            position = stop

    def _outline_at(self, run: int, position: int) -> Outline:
        append = self._engine.appends.outline_at(run, position)
        if append is None:
            # The stream was deleted or trimmed meanwhile.
            raise UnknownOffset(self._lineage.token_at(position))
        return append

    def _number_at(self, position: int) -> int:
        """The number of the message that begins at a position."""
        if position == self._tail:
            return self._messages
        run = self._lineage.spans(position, self._tail)[0].run
        return self._outline_at(run, position).first_message
