"""Appends: what streams hold, wherever it is kept."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from headwater.core.errors import DataCorrupt
from headwater.core.frames import Frame
from headwater.core.lineage import Span
from headwater.core.stream import Appended


@dataclass(frozen=True, slots=True)
class FileRange:
    """Stored bytes that lie in a file, never change, and were found to be what was written.

    Whoever can have the kernel send them need not read them.
    """

    holder: object
    """Keeps the file open."""
    file: int
    offset: int
    length: int

    def __len__(self) -> int:
        return self.length

    def without_last(self) -> FileRange:
        return FileRange(self.holder, self.file, self.offset, self.length - 1)

    def read(self) -> bytes:
        data = os.pread(self.file, self.length, self.offset)
        if len(data) != self.length:
            raise DataCorrupt(f"a file ends {self.length - len(data)} bytes early")
        return data


class Outline(NamedTuple):
    """An append without its body."""

    start: int
    end: int
    first_message: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class SealedExtent:
    """An extent, or as much of it as was asked for: which file it is in, and where its index is."""

    start: int
    end: int
    file: str
    size_bytes: int
    checksum: str
    index_offset: int
    url: str | None = None
    """Where object storage has it."""
    path: Path | None = None
    """Where it is on this machine."""


Piece = bytes | FileRange
SeekBy = Literal["first_message", "at_ms"]


class Appends(Protocol):
    """What streams hold: the appends of every run."""

    def read(self, span: Span, max_bytes: int) -> list[bytes]:
        """Stored appends from the start of the span on, the last one cut at its end.

        Stops before `max_bytes` is passed, but gives at least one append. Raises DataCorrupt when
        what is stored is not what was committed, UnknownOffset when no append starts there.
        """

    def read_pieces(self, span: Span, max_bytes: int) -> list[Piece]:
        """The very bytes of `read`, but cut anywhere: what is history, as ranges of files."""

    def known_pieces(self, span: Span, max_bytes: int) -> list[Piece] | None:
        """The same at once, if all of it is history that was read before; on any thread."""

    def frames(self, span: Span, max_bytes: int, max_messages: int) -> list[Frame]:
        """The appends of `read`, with all that is known of them.

        No more messages than so many either, but at least one append."""

    def sealed_extents(self, span: Span) -> list[SealedExtent]:
        """What of a span lies in files of history, in order."""

    def append_at(self, run: int, position: int) -> Appended | None:
        """The append of a run that holds the byte after the position."""

    def outline_at(self, run: int, position: int) -> Outline | None:
        """The same without looking at its bytes, which may be many or far away."""

    def seek(self, span: Span, by: SeekBy, value: int) -> Appended | None:
        """The last append of a span that starts at or before a message number or a time."""

    def known_ids(self, spans: Sequence[Span], ids: Sequence[str]) -> set[str]:
        """Which of the message ids are held within the spans."""
