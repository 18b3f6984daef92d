"""Seeking: finding a place in a stream by number, time or size."""

from __future__ import annotations

import msgspec

from headwater.core.errors import UnknownOffset
from headwater.core.lineage import Span
from headwater.core.offsets import Anchor, Offset
from headwater.core.retention import locate
from headwater.core.stream import Appended
from headwater.service.entries import Entry, View
from headwater.service.reading import ReadingLog
from headwater.store.engine.appends import SeekBy


class Reach(msgspec.Struct, frozen=True):
    """How far a read gets, and what is left after it."""

    end: Offset
    messages: int
    size_bytes: int
    tail: Offset
    messages_behind: int
    closed: bool


class SeekingLog(ReadingLog):
    async def find_last(
        self, path: str, count: int, until: Anchor | Offset = Anchor.TAIL
    ) -> tuple[Offset, int]:
        """Where the last messages before an offset begin: an offset, and how many to skip there."""
        entry = await self._registry.get(path)
        view = self.view(entry)
        end = await self.boundary(view, locate(view.config, until, view.tail))
        last = view.messages if end == view.tail else await self.message_number(entry, end)
        start, skip = await self.find_message(view, max(0, last - count))
        return view.config.lineage.offset_at(start), skip

    async def find_number(self, path: str, number: int) -> tuple[Offset, int]:
        """Where the message with a number is: an offset, and how many messages to skip after it."""
        view = self.view(await self._registry.get(path))
        start, skip = await self.find_message(view, number)
        return view.config.lineage.offset_at(start), skip

    async def find_message(self, view: View, number: int) -> tuple[int, int]:
        """Where a message is: the position of its append, and its index in that."""
        if number >= view.messages:
            return view.tail, 0
        found = await self._seek(view, "first_message", number)
        if found is None:
            # It is no longer kept; return the first one that is.
            return view.config.kept_from, 0
        append, _ = found
        return append.start, number - append.first_message

    async def reach(
        self, path: str, offset: Anchor | Offset, messages: int | None, size_bytes: int | None
    ) -> Reach:
        """How far a read from an offset gets within a number of messages and bytes.

        It ends between two appends and includes at least one, or nobody could ever get past an
        append larger than the limit.
        """
        entry = await self._registry.get(path)
        view = self.view(entry)
        lineage, (tail, total, closed) = view.config.lineage, view.now
        start = await self.boundary(view, locate(view.config, offset, tail))
        if start == tail:
            at_tail = lineage.offset_at(tail)
            return Reach(at_tail, 0, 0, at_tail, 0, closed)
        first = await self.message_number(entry, start)
        end = tail
        if messages is not None:
            end = min(tail, (await self.find_message(view, first + messages))[0])
        if size_bytes is not None and start + size_bytes < end:
            end = (await self._append_at(entry, start + size_bytes)).start
        if end <= start:
            span = lineage.spans(start, tail)[0]
            end = min((await self._append_at(entry, start)).end, span.end)
        number = total if end == tail else await self.message_number(entry, end)
        return Reach(
            lineage.offset_at(end),
            number - first,
            end - start,
            lineage.offset_at(tail),
            total - number,
            closed,
        )

    async def find_time(self, path: str, at_ms: int) -> Offset:
        """The offset after which nothing is older than a time."""
        entry = await self._registry.get(path)
        view = self.view(entry)
        return view.config.lineage.offset_at(await self.position_at_time(view, at_ms))

    async def position_at_time(self, view: View, at_ms: int) -> int:
        found = await self._seek(view, "at_ms", at_ms - 1)
        if found is None:
            return view.config.kept_from
        append, span = found
        # A fork may inherit only the first part of an append.
        return min(append.end, span.end)

    async def message_number(self, entry: Entry, position: int) -> int:
        """The number of the message that begins at a position, which must begin an append."""
        append = await self._append_at(entry, position)
        if append.start != position:
            raise UnknownOffset(self.view(entry).config.lineage.token_at(position))
        return append.first_message

    async def first_kept_message(self, entry: Entry) -> int:
        """The number of the first kept message."""
        view = self.view(entry)
        if view.config.kept_from == view.tail:
            return view.messages
        return await self.message_number(entry, view.config.kept_from)

    async def written_at(self, entry: Entry, position: int) -> int:
        """When the append at a position was written."""
        return (await self._append_at(entry, position)).at_ms

    async def _append_at(self, entry: Entry, position: int) -> Appended:
        view = self.view(entry)
        span = view.config.lineage.spans(position, view.tail)[0]
        append = await self.in_thread(self.engine.appends.append_at, span.run, position)
        if append is None:
            raise UnknownOffset(view.config.lineage.token_at(position))
        return append

    async def _seek(self, view: View, by: SeekBy, value: int) -> tuple[Appended, Span] | None:
        for span in reversed(view.config.lineage.spans(view.config.kept_from, view.tail)):
            append = await self.in_thread(self.engine.appends.seek, span, by, value)
            if append is not None:
                return append, span
        return None
