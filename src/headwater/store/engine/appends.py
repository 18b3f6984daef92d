"""Appends: what streams hold, wherever it is stored."""

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
    """Verified stored bytes in a file that never change.

    The kernel can send them without their being read here.
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
    """An extent, or the requested part of it: which file it is in, and where its index is."""

    start: int
    end: int
    file: str
    size_bytes: int
    checksum: str
    index_offset: int
    url: str | None = None
    """Its location in object storage."""
    path: Path | None = None
    """Its location on this machine."""


Piece = bytes | FileRange
SeekBy = Literal["first_message", "at_ms"]


class Appends(Protocol):
    """What streams hold: the appends of every run."""

    def read(self, span: Span, max_bytes: int) -> list[bytes]:
        """Stored appends from the start of the span on, the last one cut at its end.

        Stops before `max_bytes` is exceeded, but returns at least one append. Raises DataCorrupt if
        what is stored is not what was committed, UnknownOffset if no append starts there.
        """

    def read_pieces(self, span: Span, max_bytes: int) -> list[Piece]:
        """The same bytes as `read`, but split anywhere: history as ranges of files."""

    def known_pieces(self, span: Span, max_bytes: int) -> list[Piece] | None:
        """The same without blocking, if all of it is history read before; on any thread."""

    def frames(self, span: Span, max_bytes: int, max_messages: int) -> list[Frame]:
        """The appends of `read`, with all their metadata.

        Also limited to `max_messages`, but at least one append.
        """

    def sealed_extents(self, span: Span) -> list[SealedExtent]:
        """The parts of a span that are in history files, in order."""

    def append_at(self, run: int, position: int) -> Appended | None:
        """The append of a run that holds the byte after the position."""

    def outline_at(self, run: int, position: int) -> Outline | None:
        """The same without its bytes, which may be large or remote."""

    def seek(self, span: Span, by: SeekBy, value: int) -> Appended | None:
        """The last append of a span that starts at or before a message number or a time."""

    def known_ids(self, spans: Sequence[Span], ids: Sequence[str]) -> set[str]:
        """Which of the message ids exist within the spans."""
