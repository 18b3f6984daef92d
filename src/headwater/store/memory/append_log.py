"""The appends of one run in memory, in order, where the garbage collector does not see them.

The collector need not track an append, but it traverses a list of them, one by one, whenever it
looks at everything: with millions of appends, that stops the server for a second. At a tuple of
nothing but such objects it looks once and never again. So the appends are in tuples of a bounded
size.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, islice
from typing import Final

from headwater.core.stream import Appended

CHUNK_APPENDS: Final = 1_024
_Chunk = tuple[Appended, ...]


class AppendLog:
    __slots__ = ("_chunks", "_ends", "_open")

    def __init__(self) -> None:
        self._chunks: list[_Chunk] = []
        """None is empty."""
        self._ends: list[int] = []
        """How many appends there are up to the end of each chunk."""
        self._open: list[Appended] = []
        """Those after the last chunk."""

    def __len__(self) -> int:
        return self._closed + len(self._open)

    @property
    def _closed(self) -> int:
        """How many are in chunks."""
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Appended:
        if index < 0:
            index += len(self)
        if index < 0:
            raise IndexError(index)
        if index >= self._closed:
            return self._open[index - self._closed]
        number = bisect_right(self._ends, index)
        chunk = self._chunks[number]
        return chunk[index - self._ends[number] + len(chunk)]

    def between(self, first: int, last: int | None = None) -> Iterator[Appended]:
        """The appends from one index to another, or to the end."""
        last = len(self) if last is None else min(last, len(self))
        for number in range(bisect_right(self._ends, first), len(self._chunks)):
            chunk, end = self._chunks[number], self._ends[number]
            start = end - len(chunk)
            yield from islice(chunk, max(0, first - start), max(0, last - start))
            if last <= end:
                return
        closed = self._closed
        yield from islice(self._open, max(0, first - closed), max(0, last - closed))

    def append(self, one: Appended) -> None:
        self._open.append(one)
        if len(self._open) == CHUNK_APPENDS:
            self._chunks.append(tuple(self._open))
            self._ends.append(self._closed + CHUNK_APPENDS)
            self._open = []

    def drop(self, first: int, last: int) -> None:
        """Remove the appends from one index to another."""
        closed = self._closed
        begin = bisect_right(self._ends, first)
        end = min(bisect_right(self._ends, last), len(self._chunks) - 1)
        kept: list[_Chunk] = []
        for number in range(begin, end + 1):
            chunk = self._chunks[number]
            start = self._ends[number] - len(chunk)
            left = chunk[: max(0, first - start)] + chunk[max(0, last - start) :]
            if left:
                kept.append(left)
        self._chunks[begin : end + 1] = kept
        self._ends = list(accumulate(map(len, self._chunks)))
        del self._open[max(0, first - closed) : max(0, last - closed)]
