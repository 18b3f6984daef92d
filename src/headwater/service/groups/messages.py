"""Single messages of a stream, for members that take them one by one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterable, Iterator, Sequence
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

_READ_AHEAD_BYTES: Final = 128 * KIB
"""Read from the engine at a time: a look-up costs more than reading this much."""
_MESSAGE_BYTES_GUESSED: Final = 512
_MESSAGE_BYTES_KEPT: Final = 64
_APPEND_BYTES_KEPT: Final = 256
"""The approximate size of a message and of an append in the cache, besides their bytes."""
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


Split = tuple[Sequence[bytes], int]
"""An append as messages, and its stored size."""


class Origin(msgspec.Struct, eq=False):
    """The append that messages came with."""

    append: Appended
    label: tuple[bytes, bytes | None] | None = None
    """What members are told about it, once that has been put together."""


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
    """Reads messages, and caches how appends split and the metadata of appends that are not in
    memory: members come back for more.
    """

    def __init__(self, log: SeekingLog) -> None:
        self._log = log
        self._splits: _Memory[Split] = _Memory(_SPLITS_BYTES_MAX)
        self._cold: _Memory[Origin] = _Memory(_APPENDS_BYTES_MAX)

    # ── What a group can deliver ─────────────────────────────────────────────────────────────

    def at_hand(
        self, entry: Entry, state: GroupState, most: int, most_bytes: int, origins: Origins
    ) -> tuple[Read, dict[int, bytes]] | None:
        """New messages, if all of them are in memory: the fast path, without waiting."""
        cursor, view = state.cursor, entry.require_view()
        if state.waiting or len(state.outstanding) >= _OUTSTANDING_MAX:
            return None
        if cursor.start < view.config.kept_from:
            return None
        found = self._following_at_hand(entry, view, cursor, most, most_bytes)
        if found is None or self._note_known(view, found.refs, origins):
            return None
        return _read(state, found, {}, {})

    async def to_hand_out(
        self,
        entry: Entry,
        state: GroupState,
        now_ms: int,
        most: int,
        most_bytes: int,
        origins: Origins,
    ) -> tuple[Read, dict[int, bytes]]:
        """Messages that a group can deliver: waiting ones, then new ones.

        Their appends are added to `origins`.
        """
        due = state.due(now_ms, most)
        bodies: dict[int, bytes] = {}
        if due:
            refs = [message.ref for message in due]
            bodies = await self.at(entry, entry.require_view(), refs, most_bytes)
            await self._note(entry.require_view(), refs, origins)
            most_bytes -= sum(map(len, bodies.values()))
        again = {number: len(body) for number, body in bodies.items()}
        most -= len(due)
        full = len(state.outstanding) >= _OUTSTANDING_MAX
        if full or most <= 0 or most_bytes <= 0 or len(bodies) < len(due):
            return Read(again), bodies
        cursor, view = state.cursor, entry.require_view()
        found = await self.following(entry, view, cursor, most, most_bytes)
        await self._note(view, found.refs, origins)
        if state.cursor != cursor:
            # The group was moved meanwhile.
            return Read(again), bodies
        return _read(state, found, again, bodies)

    # ── Messages ─────────────────────────────────────────────────────────────────────────────

    def _following_at_hand(
        self, entry: Entry, view: View, cursor: MessageRef, most: int, most_bytes: int
    ) -> Following | None:
        steps = _follow(view, cursor, most, most_bytes)
        try:
            position, guess = next(steps)
            while True:
                known = self._known(entry, view, position, guess)
                if known is None:
                    return None
                position, guess = steps.send(known)
        except StopIteration as end:
            following: Following = end.value
            return following

    async def following(
        self, entry: Entry, view: View, cursor: MessageRef, most: int, most_bytes: int
    ) -> Following:
        """Messages from a cursor on, up to a count and a size; the first may be larger."""
        if cursor.start < view.config.kept_from:
            # It began at a position that was dropped at the same moment.
            number = await self._log.first_kept_message(entry)
            cursor = MessageRef(number, view.config.kept_from, 0)
        steps = _follow(view, cursor, most, most_bytes)
        try:
            position, guess = next(steps)
            while True:
                found = await self._appends(entry, view, position, guess, _READ_AHEAD_BYTES)
                position, guess = steps.send(found)
        except StopIteration as end:
            following: Following = end.value
            return following

    async def at(
        self, entry: Entry, view: View, refs: Sequence[MessageRef], most_bytes: int
    ) -> dict[int, bytes]:
        """The messages at given places, by number: the first, and more while there is room."""
        found: dict[int, bytes] = {}
        start = -1
        messages: Sequence[bytes] = ()
        for ref in refs:
            if ref.start != start:
                start = ref.start
                messages, _ = next(iter(await self._appends(entry, view, start, 1)))
            message = messages[ref.place]
            if found and len(message) > most_bytes:
                break
            found[ref.number] = message
            most_bytes -= len(message)
        return found

    def _known(
        self, entry: Entry, view: View, position: int, max_bytes: int
    ) -> Iterable[Split] | None:
        """Appends from a position on, if they are in memory."""
        # This counts as use, but must fail if the stream has expired.
        self._log.view(entry)
        self._log.touch(entry, self._log.clock())
        known = self._splits.get(view.config.id, position)
        if known is not None:
            return [known]
        bodies = view.hot.read(position, max_bytes)
        return None if bodies is None else self._split_each(view.config, position, bodies)

    def _split_each(
        self, config: StreamConfig, position: int, bodies: Sequence[bytes]
    ) -> Iterator[Split]:
        """One at a time: usually the first ones are enough."""
        for body in bodies:
            found = self._splits.get(config.id, position)
            if found is None:
                found = (split(config, body), len(body))
                if _is_worthwhile(found):
                    self._keep(config, position, found)
            yield found
            position += len(body)

    async def _appends(
        self, entry: Entry, view: View, position: int, max_bytes: int, ahead_bytes: int = 0
    ) -> Iterable[Split]:
        known = self._known(entry, view, position, max_bytes)
        if known is not None:
            return known
        offset = view.config.lineage.offset_at(position)
        chunk = await self._log.read_cold(entry, offset, max(max_bytes, ahead_bytes))
        found: list[Split] = []
        for body in chunk.bodies:
            append = (split(view.config, body), len(body))
            # The first is delivered now. The others lie ahead: to look each up takes far longer.
            if found or _is_worthwhile(append):
                self._keep(view.config, position, append)
            found.append(append)
            position += len(body)
        return found

    def _keep(self, config: StreamConfig, position: int, append: Split) -> None:
        messages, size = append
        size += _APPEND_BYTES_KEPT + _MESSAGE_BYTES_KEPT * len(messages)
        self._splits.keep(config.id, position, append, size)

    # ── Appends ──────────────────────────────────────────────────────────────────────────────

    async def appends_of(self, view: View, refs: Sequence[MessageRef]) -> dict[int, Appended]:
        """The metadata of the appends that messages came with, by start position."""
        origins: Origins = {}
        await self._note(view, refs, origins)
        return {start: origin.append for start, origin in origins.items()}

    async def _note(self, view: View, refs: Sequence[MessageRef], origins: Origins) -> None:
        """Find the appends of messages, and add them to `origins`."""
        missing = self._note_known(view, refs, origins)
        if missing:
            at = self._log.engine.appends.append_at
            found = await self._log.in_thread(lambda: [at(*span[:2]) for span in missing])
            for span, append in zip(missing, found, strict=True):
                if append is not None:
                    known = Origin(msgspec.structs.replace(append, body=b""))
                    size = _APPEND_BYTES * (1 + len(append.ids))
                    self._cold.keep(span.run, span.start, known, size)
                    origins[span.start] = known

    def _note_known(
        self, view: View, refs: Sequence[MessageRef], origins: Origins
    ) -> Sequence[Span]:
        """The same for appends in memory; returns where the others are."""
        missing: list[Span] = []
        last = -1
        for ref in refs:
            start = ref.start
            if start == last or start in origins:
                continue
            last = start
            append = view.hot.append_at(start)
            if append is not None:
                origins[start] = Origin(append)
                continue
            for span in view.config.lineage.spans(start, view.tail)[:1]:
                known = self._cold.get(span.run, span.start)
                if known is not None:
                    origins[start] = known
                else:
                    missing.append(span)
        return missing


Origins = dict[int, Origin]
"""Appends by their start position."""


def _is_worthwhile(append: Split) -> bool:
    """Whether to keep it for those who want the rest of it."""
    messages, size = append
    return size >= _SPLIT_BYTES_WORTHWHILE and len(messages) > 1


def _follow(
    view: View, cursor: MessageRef, most: int, most_bytes: int
) -> Generator[tuple[int, int], Iterable[Split], Following]:
    """Messages from a cursor on. Yields from where appends are needed, and about how many bytes of
    them: whoever runs it decides whether to wait for those.
    """
    refs: list[MessageRef] = []
    bodies: list[bytes] = []
    while len(refs) < most and most_bytes > 0 and cursor.start < view.tail:
        guess = (most - len(refs)) * _MESSAGE_BYTES_GUESSED
        for messages, size in (yield cursor.start, guess):
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


def _read(
    state: GroupState, found: Following, again: dict[int, int], bodies: dict[int, bytes]
) -> tuple[Read, dict[int, bytes]]:
    """What was found, and `bodies` with those of new messages added."""
    sizes, keys = list(map(len, found.bodies)), _keys(state, found.bodies)
    bodies.update(zip([ref.number for ref in found.refs], found.bodies, strict=True))
    return Read(again, found.refs, sizes, keys, found.cursor), bodies


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
