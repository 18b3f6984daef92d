"""Single messages of a stream, for members that take them one by one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from headwater.core import json_mode
from headwater.core.groups.decisions import Read
from headwater.core.groups.keys import key_of
from headwater.core.groups.state import GroupState, MessageRef
from headwater.core.limits import KIB, MIB
from headwater.core.lineage import Span
from headwater.core.pointers import pointer_steps
from headwater.core.stream import Appended, StreamConfig
from headwater.service.entries import Entry, View
from headwater.service.seeking import SeekingLog

_READ_BYTES_MIN: Final = 16 * KIB
_MESSAGE_BYTES_GUESSED: Final = 512
_SPLIT_BYTES_WORTHWHILE: Final = 4 * KIB
_SPLITS_BYTES_MAX: Final = 32 * MIB
_APPENDS_BYTES_MAX: Final = 8 * MIB
_APPEND_BYTES: Final = 500
"""The approximate size of an append's metadata; each of its ids takes as much again."""
_OUTSTANDING_MAX: Final = 100_000


T = TypeVar("T")


def split(config: StreamConfig, body: bytes) -> list[bytes]:
    """The messages of one append: JSON values, or the append as a whole."""
    return json_mode.decode(body) if config.is_json else [body]


class Following(NamedTuple):
    """Messages that come after a cursor, and the cursor after them."""

    refs: list[MessageRef]
    bodies: list[bytes]
    cursor: MessageRef


class _Memory(Generic[T]):
    """A cache of findings about appends, by stream and position; the oldest is dropped first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._found: OrderedDict[tuple[int, int], tuple[T, int]] = OrderedDict()

    def get(self, stream_id: int, start: int) -> T | None:
        known = self._found.get((stream_id, start))
        return None if known is None else known[0]

    def keep(self, stream_id: int, start: int, value: T, size: int) -> None:
        _, before = self._found.pop((stream_id, start), (None, 0))
        self._found[stream_id, start] = (value, size)
        self._bytes += size - before
        while self._bytes > self._bytes_max:
            _, (_, size) = self._found.popitem(last=False)
            self._bytes -= size


class MessageReader:
    """Reads messages, and caches how large appends split and the metadata of appends that are not
    in memory: members come back for more.
    """

    def __init__(self, log: SeekingLog) -> None:
        self._log = log
        self._splits: _Memory[tuple[list[bytes], int]] = _Memory(_SPLITS_BYTES_MAX)
        self._cold: _Memory[Appended] = _Memory(_APPENDS_BYTES_MAX)

    async def to_hand_out(
        self,
        entry: Entry,
        state: GroupState,
        now_ms: int,
        most: int,
        most_bytes: int,
        appends: dict[int, Appended],
    ) -> tuple[Read, dict[int, bytes]]:
        """Messages that a group can deliver: waiting ones, then new ones.

        The metadata of their appends is added to `appends`.
        """
        due = state.due(now_ms, most)
        bodies: dict[int, bytes] = {}
        if due:
            refs = [message.ref for message in due]
            bodies = await self.at(entry, entry.require_view(), refs, most_bytes)
            appends |= await self.appends_of(entry.require_view(), refs)
            most_bytes -= sum(map(len, bodies.values()))
        again = {number: len(body) for number, body in bodies.items()}
        most -= len(due)
        full = len(state.outstanding) >= _OUTSTANDING_MAX
        if full or most <= 0 or most_bytes <= 0 or len(bodies) < len(due):
            return Read(again), bodies
        cursor, view = state.cursor, entry.require_view()
        found = await self.following(entry, view, cursor, most, most_bytes)
        appends |= await self.appends_of(view, found.refs)
        if state.cursor != cursor:
            # The group was moved meanwhile.
            return Read(again), bodies
        sizes, keys = list(map(len, found.bodies)), _keys(state, found.bodies)
        bodies.update(zip([ref.number for ref in found.refs], found.bodies, strict=True))
        return Read(again, found.refs, sizes, keys, found.cursor), bodies

    async def following(
        self, entry: Entry, view: View, cursor: MessageRef, most: int, most_bytes: int
    ) -> Following:
        """Messages from a cursor on, up to a count and a size; the first may be larger."""
        refs: list[MessageRef] = []
        bodies: list[bytes] = []
        if cursor.start < view.config.kept_from:
            # It began at a position that was dropped at the same moment.
            number = await self._log.first_kept_message(entry)
            cursor = MessageRef(number, view.config.kept_from, 0)
        while len(refs) < most and most_bytes > 0 and cursor.start < view.tail:
            guess = max(_READ_BYTES_MIN, (most - len(refs)) * _MESSAGE_BYTES_GUESSED)
            for messages, size in await self._appends(entry, view, cursor.start, guess):
                number, start, place = cursor
                wanted = messages[place : place + most - len(refs)]
                wanted = wanted[: _fitting(wanted, most_bytes, bool(refs))]
                refs += [MessageRef(number + i, start, place + i) for i in range(len(wanted))]
                bodies += wanted
                most_bytes -= sum(map(len, wanted))
                number, place = number + len(wanted), place + len(wanted)
                if place < len(messages):
                    return Following(refs, bodies, MessageRef(number, start, place))
                cursor = MessageRef(number, start + size, 0)
                if len(refs) == most:
                    break
        return Following(refs, bodies, cursor)

    async def at(
        self, entry: Entry, view: View, refs: Sequence[MessageRef], most_bytes: int
    ) -> dict[int, bytes]:
        """The messages at given places, by number: the first, and more while there is room."""
        found: dict[int, bytes] = {}
        start, messages = -1, [b""]
        for ref in refs:
            if ref.start != start:
                start = ref.start
                messages = (await self._appends(entry, view, start, 1))[0][0]
            message = messages[ref.place]
            if found and len(message) > most_bytes:
                break
            found[ref.number] = message
            most_bytes -= len(message)
        return found

    async def appends_of(self, view: View, refs: Sequence[MessageRef]) -> dict[int, Appended]:
        """The metadata of the appends that messages came with, by start position."""
        found: dict[int, Appended] = {}
        cold: list[Span] = []
        for start in dict.fromkeys([ref.start for ref in refs]):
            append = view.hot.append_at(start)
            if append is not None:
                found[start] = append
            else:
                cold += view.config.lineage.spans(start, view.tail)[:1]
        for span in cold:
            append = await self._cold_append(span.run, span.start)
            if append is not None:
                found[span.start] = append
        return found

    async def _cold_append(self, run: int, start: int) -> Appended | None:
        """The metadata of an append, without its body."""
        known = self._cold.get(run, start)
        if known is None:
            stored = await self._log.in_thread(self._log.engine.appends.append_at, run, start)
            if stored is None:
                return None
            known = msgspec.structs.replace(stored, body=b"")
            self._cold.keep(run, start, known, _APPEND_BYTES * (1 + len(known.ids)))
        return known

    async def _appends(
        self, entry: Entry, view: View, position: int, max_bytes: int
    ) -> list[tuple[list[bytes], int]]:
        """Appends from a position on, as messages and stored size."""
        # This counts as use, but must fail if the stream has expired.
        self._log.view(entry)
        self._log.touch(entry, self._log.clock())
        known = self._splits.get(view.config.id, position)
        if known is not None:
            return [known]
        appends: list[tuple[list[bytes], int]] = []
        for body in await self._bodies(entry, view, position, max_bytes):
            appends.append((self._split(view.config, position, body), len(body)))
            position += len(body)
        return appends

    def _split(self, config: StreamConfig, start: int, body: bytes) -> list[bytes]:
        known = self._splits.get(config.id, start)
        if known is not None:
            return known[0]
        messages = split(config, body)
        if len(body) >= _SPLIT_BYTES_WORTHWHILE and len(messages) > 1:
            self._splits.keep(config.id, start, (messages, len(body)), len(body))
        return messages

    async def _bodies(self, entry: Entry, view: View, position: int, max_bytes: int) -> list[bytes]:
        chunk = self._log.chunk_at(view, position, max_bytes)
        if chunk is None:
            offset = view.config.lineage.offset_at(position)
            chunk = await self._log.read_cold(entry, offset, max_bytes)
        return chunk.bodies


def _fitting(messages: Sequence[bytes], most_bytes: int, has_some: bool) -> int:
    """How many messages there is room for; at least one if there is none yet."""
    if sum(map(len, messages)) <= most_bytes:
        return len(messages)
    fit = sum(total <= most_bytes for total in accumulate(map(len, messages)))
    return fit if has_some else max(1, fit)


def _keys(state: GroupState, messages: Sequence[bytes]) -> list[str | None]:
    """The ordering keys of messages, in a group that keeps order."""
    pointer = state.config.order_by
    if pointer is None:
        return []
    steps = pointer_steps(pointer)
    return [key_of(message, steps) for message in messages]
