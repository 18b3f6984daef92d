"""Writing a segment file: in blocks, renamed, synced, read back."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from headwater.store.history import segment_format
from headwater.store.history.placed_blocks import PlacedBlocks
from headwater.store.history.segment import SegmentRow
from headwater.store.history.segment_format import BLOCK_BYTES, Entry, IndexDraft
from headwater.store.permissions import FILE_MODE
from headwater.store.syncing import sync

Buffer = bytes | bytearray | memoryview
# 4 MiB, and fewer parts than a system takes at a time.
_BLOCKS_TOGETHER: Final = 32

Step = Callable[[str], None]
"""Called with the name of each completed step. Tests end the process there."""


def nothing(step: str) -> None:
    pass


class Mark(NamedTuple):
    """A place in an extent up to which it can be recorded separately."""

    end: int
    appends: int
    messages: int
    last_at_ms: int


class ExtentDraft(NamedTuple):
    run: int
    start: int
    first_message: int
    first_at_ms: int
    index_offset: int
    marks: tuple[Mark, ...]


class SegmentDraft(NamedTuple):
    """A complete and synced file that nothing refers to yet."""

    id: int
    name: str
    size_bytes: int
    root: str
    extents: tuple[ExtentDraft, ...]

    def row(self) -> SegmentRow:
        return SegmentRow(self.id, self.name, self.size_bytes, self.root)

    def holds(self, run: int, position: int) -> bool:
        return any(
            one.run == run and one.start <= position < one.marks[-1].end for one in self.extents
        )


class Beginning(NamedTuple):
    """Where an extent begins, and the size of its bodies."""

    run: int
    start: int
    first_message: int
    size_bytes: int


class SegmentBuilder:
    """Takes bodies extent by extent; `finish` makes a file of them, `abandon` none."""

    def __init__(self, directory: Path, segment_id: int, step: Step = nothing) -> None:
        self._directory = directory
        self.id = segment_id
        self._step = step
        self._path = directory / segment_format.draft_name(segment_id)
        self._file = os.open(
            self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE
        )
        self._block = bytearray()
        self._sums: list[int] = []
        self._drafts: list[tuple[IndexDraft, list[Mark]]] = []
        self._together: dict[int, tuple[IndexDraft, list[Mark]]] = {}
        self._blocks: PlacedBlocks | None = None
        self._written = 0
        self._unwritten: list[Buffer] = []
        """Blocks that are written together: each call may have to wait for the interpreter."""
        step("created")
        self._write(segment_format.MAGIC)

    @property
    def size_bytes(self) -> int:
        """The size so far."""
        return self._written + len(self._block)

    @property
    def has_extents(self) -> bool:
        return bool(self._drafts)

    def begin(self, run: int, start: int, first_message: int) -> None:
        """The bodies that follow belong to this run, from this position on."""
        self._drafts.append((IndexDraft(run, start, first_message, self.size_bytes), []))

    def begin_together(self, beginnings: Sequence[Beginning]) -> None:
        """All bodies of the file, which is empty so far, belong to these runs, in turns.

        Their sizes are known, so each has its place.
        """
        assert not self._written
        assert not self._drafts
        offset = self.size_bytes
        for run, start, first_message, size in beginnings:
            index = IndexDraft(run, start, first_message, offset)
            self._drafts.append((index, []))
            self._together[run] = self._drafts[-1]
            offset += size
        self._blocks = PlacedBlocks(self._file, offset)
        self._blocks.write(0, bytes(self._block))

    def add_to(self, run: int, columns: segment_format.Columns, bodies: bytes) -> None:
        """Consecutive appends of one of several runs; the extent may be recorded up to there."""
        assert self._blocks is not None
        index, marks = self._together[run]
        self._blocks.write(index.data_offset + index.end - index.start, bodies)
        index.extend(columns)
        marks.append(_mark(index))

    def end_together(self) -> None:
        """All bodies are there."""
        assert self._blocks is not None
        self._sums, self._block = self._blocks.end()
        self._written = len(self._sums) * BLOCK_BYTES
        os.lseek(self._file, self._written, os.SEEK_SET)

    def add_all(self, columns: segment_format.Columns, bodies: bytes) -> None:
        """Consecutive appends, with their bodies joined."""
        index, _ = self._drafts[-1]
        index.extend(columns)
        self._write(bodies)

    def sync(self) -> None:
        """Sync what is written so far, so that the final sync is shorter."""
        self._write_out()
        os.fdatasync(self._file)

    def mark(self) -> None:
        """The extent may be recorded up to here."""
        index, marks = self._drafts[-1]
        if not marks or marks[-1].end < index.end:
            marks.append(_mark(index))

    def _write(self, data: bytes) -> None:
        """Large bodies are many blocks long: only the ends of one are copied."""
        block, rest = self._block, memoryview(data)
        while len(block) + len(rest) >= BLOCK_BYTES:
            missing = BLOCK_BYTES - len(block)
            if block:
                block += rest[:missing]
                self._flush(bytes(block))
                block.clear()
            else:
                self._flush(rest[:missing])
            rest = rest[missing:]
        block += rest

    def _flush(self, block: Buffer) -> None:
        self._sums.append(segment_format.block_sum(len(self._sums), block))
        self._unwritten.append(block)
        self._written += len(block)
        if len(self._unwritten) == _BLOCKS_TOGETHER:
            self._write_out()

    def _write_out(self) -> None:
        write_all(self._file, self._unwritten)
        self._unwritten = []

    def finish(self) -> SegmentDraft:
        self._step("bodies written")
        extents = [self._write_index(*draft) for draft in self._drafts]
        directory_offset = self.size_bytes
        entries = [
            Entry(extent.index_offset, extent.run, extent.start, extent.marks[-1].end)
            for extent in extents
        ]
        self._write(segment_format.encode_directory(entries))
        self._flush(self._block)
        has_ids = any(index.ids for index, _ in self._drafts)
        magic = segment_format.MAGIC_WITH_IDS if has_ids else segment_format.MAGIC
        trailer = segment_format.Trailer(directory_offset, self._written, tuple(self._sums), magic)
        self._unwritten.append(trailer.encode())
        self._write_out()
        self._step("written")
        name = segment_format.segment_name(self.id, trailer.root)
        self._path = self._path.rename(self._directory / name)
        self._step("renamed")
        # Only now, because most file systems then have nothing left to do for the directory.
        os.fsync(self._file)
        os.close(self._file)
        self._file = -1
        self._step("synced")
        sync(self._directory)
        self._step("directory synced")
        size = self._written + segment_format.trailer_bytes(self._written)
        return SegmentDraft(self.id, name, size, trailer.root, tuple(extents))

    def _write_index(self, index: IndexDraft, marks: list[Mark]) -> ExtentDraft:
        offset = self.size_bytes
        self._write(index.encode())
        return ExtentDraft(
            index.run, index.start, index.first_message, index.times[0], offset, tuple(marks)
        )

    def abandon(self) -> None:
        """Leave nothing behind."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._path.unlink(missing_ok=True)


def _mark(index: IndexDraft) -> Mark:
    return Mark(index.end, len(index.starts), index.messages, index.times[-1])


def write_all(file: int, parts: Sequence[Buffer]) -> None:
    """A write may be partial; the next one fails with the reason."""
    written = os.writev(file, parts) if parts else 0
    for part in parts:
        view = memoryview(part)[written:]
        written = max(0, written - len(part))
        while view:
            view = view[os.write(file, view) :]
