"""The units of a stream: messages, lines or bytes; and where the last ones are.

Positions are found in what a reader yields and may point into a batch, so finding the last ten
lines of a stream keeps ten positions, not the stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from enum import Enum
from typing import Protocol

from headwater.client import Batch, Position
from headwater.core.content_types import is_json, media_type


class Unit(Enum):
    """What is counted in a stream."""

    MESSAGE = "message"
    LINE = "line"
    BYTE = "byte"

    @classmethod
    def of(cls, content_type: str | None) -> Unit:
        """Messages in a JSON stream, lines in a text stream, bytes in any other."""
        if is_json(content_type):
            return cls.MESSAGE
        return cls.LINE if media_type(content_type).startswith("text/") else cls.BYTE

    def counted(self, count: int) -> str:
        """The number with its unit: 1 message, 2 messages."""
        return f"{count:,} {self.value}{'' if count == 1 else 's'}"


def after(batch: Batch, count: int) -> Position:
    """The position after the first `count` messages or bytes of a batch."""
    return Position(batch.start.offset, batch.start.skip + count)


def find_tail(
    batches: Iterable[Batch], unit: Unit, count: int, *, whole: bool = True
) -> Position | None:
    """Where the last `count` items of a run of batches begin.

    If there are fewer: where the first one begins if the run is the whole stream, otherwise None.
    """
    finder: _Finder
    match unit:
        case Unit.MESSAGE:
            finder = _LastMessages(count)
        case Unit.LINE:
            finder = _LastLines(count, at_line_start=whole)
        case Unit.BYTE:
            finder = _LastBytes(count)
    for batch in batches:
        if batch:
            finder.add(batch)
    return finder.position() if whole or finder.is_full() else None


class _Finder(Protocol):
    def add(self, batch: Batch) -> None: ...

    def is_full(self) -> bool: ...

    def position(self) -> Position | None: ...


class _LastMessages:
    def __init__(self, count: int) -> None:
        self._count = count
        self._starts: deque[Position] = deque(maxlen=count)

    def add(self, batch: Batch) -> None:
        total = len(batch.raw_messages())
        for index in range(max(0, total - self._count), total):
            self._starts.append(after(batch, index))

    def is_full(self) -> bool:
        return len(self._starts) == self._count

    def position(self) -> Position | None:
        return self._starts[0] if self._starts else None


class _LastLines(_LastMessages):
    """A line begins at the start of the stream and after each line feed except a final one."""

    def __init__(self, count: int, *, at_line_start: bool) -> None:
        super().__init__(count)
        self._at_line_start = at_line_start

    def add(self, batch: Batch) -> None:
        data = batch.data
        starts: deque[int] = deque()
        end = len(data) - 1
        while len(starts) < self._count and (end := data.rfind(b"\n", 0, end)) >= 0:
            starts.appendleft(end + 1)
        if self._at_line_start:
            starts.appendleft(0)
        self._starts.extend(after(batch, start) for start in starts)
        self._at_line_start = data.endswith(b"\n")


class _LastBytes:
    def __init__(self, count: int) -> None:
        self._count = count
        self._pieces: deque[tuple[Batch, int]] = deque()
        self._total = 0

    def add(self, batch: Batch) -> None:
        length = len(batch.data)
        # Where the batch is, without its content.
        self._pieces.append((replace(batch, payloads=()), length))
        self._total += length
        while self._total - self._pieces[0][1] >= self._count:
            self._total -= self._pieces.popleft()[1]

    def is_full(self) -> bool:
        return self._total >= self._count

    def position(self) -> Position | None:
        if not self._pieces:
            return None
        return after(self._pieces[0][0], max(0, self._total - self._count))
