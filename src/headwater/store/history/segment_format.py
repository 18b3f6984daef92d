"""The bytes of a segment file.

    magic          8 bytes, the last of them the version of the layout
                   (2 if messages of it have ids, 1 otherwise)
    bodies         of all extents, one after the other, exactly as stored
    indexes        one for each extent: a header, then an array for each property of its appends
    directory      where each extent's index is, and which span of which run it describes
    block sums     a checksum for every block of everything above
    footer         where directory and sums begin, and a checksum of itself and of the sums

All numbers are little-endian and of fixed width, so that one entry of an array can be read without
the others. Positions and message numbers of appends are relative to the extent, which halves their
size.

Message ids from headers follow the names of producers: the end of each, and then all of them
concatenated. An append without an id has an empty one. The highest bit of the length of the names
says whether there are ids.

The *root* of a segment is a checksum over its block sums and footer, so it covers the whole file.
It is part of the file's name and of its row in the database, so a valid file that is not the
recorded one is detected too.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, NamedTuple

import msgspec
from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest

from headwater.core.producers import ProducerStamp
from headwater.store.checksums import checksum

MAGIC: Final = b"HWSEG\x00\x00\x01"
MAGIC_WITH_IDS: Final = b"HWSEG\x00\x00\x02"
BLOCK_BYTES: Final = 128 * 1024
EXTENT_BYTES_MAX: Final = 2**32 - 1

_FOOTER: Final = struct.Struct("<8sQQQ")
_SUM: Final = struct.Struct("<Q")
_HEADER: Final = struct.Struct("<QQQQQQIII")
_COUNT: Final = struct.Struct("<I")
_ENTRY: Final = struct.Struct("<QQQQ")
HEADER_BYTES: Final = _HEADER.size
FOOTER_BYTES: Final = _FOOTER.size + _SUM.size
_HAS_IDS: Final = 1 << 31
SMALL: Final = struct.Struct("<I")
LARGE: Final = struct.Struct("<q")

_names = msgspec.json.Decoder(list[str])


class LayoutError(Exception):
    """Bytes that are not what this module writes."""


def block_sum(number: int, block: bytes | bytearray | memoryview) -> int:
    """The checksum of a block, seeded with its place."""
    return checksum(block, number)


class Append(NamedTuple):
    """An append without its body."""

    start: int
    first_message: int
    at_ms: int
    checksum: int
    producer: ProducerStamp | None
    message_id: str | None = None


class Columns(NamedTuple):
    """Consecutive appends as columns, without their bodies."""

    starts: Sequence[int]
    first_messages: Sequence[int]
    times: Sequence[int]
    sums: Sequence[int]
    stamps: dict[int, ProducerStamp]
    """By the index of the append, from the first of these."""
    end: int
    end_message: int
    """The number of the first message after them."""
    ids: dict[int, str]
    """By the index of the append as well."""


class Header(NamedTuple):
    """The beginning of an extent's index."""

    run: int
    start: int
    end: int
    first_message: int
    messages: int
    data_offset: int
    appends: int
    stamped: int
    """Appends with a producer's stamp; if 0, there are no arrays of stamps."""
    names_bytes: int
    has_ids: bool = False


class Entry(NamedTuple):
    """An entry of the directory."""

    index_offset: int
    run: int
    start: int
    end: int


class Places(NamedTuple):
    """Where the arrays of an index begin, relative to its header."""

    starts: int
    messages: int
    times: int
    sums: int
    producers: int
    epochs: int
    seqs: int
    names: int
    id_ends: int
    ids: int

    @classmethod
    def of(cls, header: Header) -> Places:
        count = header.appends
        starts = HEADER_BYTES
        messages = starts + SMALL.size * count
        times = messages + SMALL.size * count
        sums = times + LARGE.size * count
        producers = sums + LARGE.size * count
        stamps = count if header.stamped else 0
        epochs = producers + SMALL.size * stamps
        seqs = epochs + LARGE.size * stamps
        names = seqs + LARGE.size * stamps
        id_ends = names + header.names_bytes
        ids = id_ends + (SMALL.size * count if header.has_ids else 0)
        return cls(starts, messages, times, sums, producers, epochs, seqs, names, id_ends, ids)


def _numbers() -> array[int]:
    return array("q")


@dataclass(slots=True)
class IndexDraft:
    """The index of an extent being built: numbers in arrays, without an object for each."""

    run: int
    start: int
    first_message: int
    data_offset: int
    end: int = 0
    messages: int = 0
    starts: array[int] = field(default_factory=_numbers)
    firsts: array[int] = field(default_factory=_numbers)
    times: array[int] = field(default_factory=_numbers)
    sums: array[int] = field(default_factory=_numbers)
    stamps: dict[int, ProducerStamp] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.end = self.start

    def extend(self, columns: Columns) -> None:
        """Add many at once."""
        for number, stamp in columns.stamps.items():
            self.stamps[len(self.starts) + number] = stamp
        for number, message_id in columns.ids.items():
            self.ids[len(self.starts) + number] = message_id
        self.starts.extend([start - self.start for start in columns.starts])
        self.firsts.extend([first - self.first_message for first in columns.first_messages])
        self.times.extend(columns.times)
        self.sums.extend(columns.sums)
        self.end = columns.end
        self.messages = columns.end_message - self.first_message

    def encode(self) -> bytes:
        count = len(self.starts)
        names = {stamp.id: 0 for stamp in self.stamps.values()}
        for number, name in enumerate(names, start=1):
            names[name] = number
        text = msgspec.json.encode(list(names)) if names else b""
        header = Header(
            self.run,
            self.start,
            self.end,
            self.first_message,
            self.messages,
            self.data_offset,
            count,
            len(self.stamps),
            len(text) | (_HAS_IDS if self.ids else 0),
        )
        parts = [
            _HEADER.pack(*header[:-1]),
            _pack("I", self.starts),
            _pack("I", self.firsts),
            _pack("q", self.times),
            _pack("q", self.sums),
        ]
        if self.stamps:
            stamps = [self.stamps.get(index) for index in range(count)]
            parts += [
                _pack("I", [names[stamp.id] if stamp else 0 for stamp in stamps]),
                _pack("q", [stamp.epoch if stamp else 0 for stamp in stamps]),
                _pack("q", [stamp.seq if stamp else 0 for stamp in stamps]),
                text,
            ]
        if self.ids:
            ids = [self.ids.get(index, "").encode() for index in range(count)]
            parts += [_pack("I", list(accumulate(map(len, ids)))), *ids]
        return b"".join(parts)


def _pack(kind: str, values: Sequence[int]) -> bytes:
    packed = array(kind, values)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_small(data: bytes) -> array[int]:
    """Relative positions, message numbers or producers."""
    return _unpack("I", data)


def unpack_large(data: bytes) -> array[int]:
    """Numbers of any size."""
    return _unpack("q", data)


def _unpack(kind: str, data: bytes) -> array[int]:
    values: array[int] = array(kind, data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def read_header(data: bytes) -> Header:
    try:
        header = Header(*_HEADER.unpack(data))
    except struct.error as error:
        raise LayoutError(f"no extent: {error}") from None
    if header.names_bytes & _HAS_IDS:
        header = header._replace(names_bytes=header.names_bytes ^ _HAS_IDS, has_ids=True)
    if not 0 < header.appends <= header.end - header.start <= EXTENT_BYTES_MAX:
        raise LayoutError("an extent that holds nothing")
    return header


def read_names(data: bytes) -> list[str]:
    try:
        return _names.decode(data)
    except msgspec.MsgspecError as error:
        raise LayoutError(f"no producers: {error}") from None


def encode_directory(entries: Sequence[Entry]) -> bytes:
    return b"".join([_COUNT.pack(len(entries)), *(_ENTRY.pack(*entry) for entry in entries)])


def read_directory(data: bytes) -> list[Entry]:
    try:
        (count,) = _COUNT.unpack_from(data)
        return [
            Entry(*_ENTRY.unpack_from(data, _COUNT.size + number * _ENTRY.size))
            for number in range(count)
        ]
    except struct.error as error:
        raise LayoutError(f"no directory: {error}") from None


@dataclass(frozen=True, slots=True)
class Trailer:
    """What follows everything that the block sums cover."""

    directory_offset: int
    sums_offset: int
    """Also the number of bytes that the block sums cover."""
    sums: tuple[int, ...]
    magic: bytes = MAGIC

    def encode(self) -> bytes:
        sums = _pack("Q", self.sums)
        footer = _FOOTER.pack(self.magic, self.directory_offset, self.sums_offset, BLOCK_BYTES)
        return sums + footer + _SUM.pack(xxh3_64_intdigest(sums + footer))

    @property
    def root(self) -> str:
        return xxh3_128_hexdigest(self.encode())


def trailer_bytes(covered_bytes: int) -> int:
    """The length of the trailer after this many bytes."""
    return _SUM.size * -(-covered_bytes // BLOCK_BYTES) + FOOTER_BYTES


def read_sums_offset(footer: bytes) -> int:
    """How many bytes the block sums cover, which is where they begin."""
    try:
        magic, _, sums_offset, block_bytes = _FOOTER.unpack_from(footer)
    except struct.error:
        raise LayoutError("the file is too short") from None
    if magic not in (MAGIC, MAGIC_WITH_IDS) or block_bytes != BLOCK_BYTES:
        raise LayoutError("the file is not a segment, or one of a newer version")
    return int(sums_offset)


def read_trailer(data: bytes) -> Trailer:
    """The inverse of `Trailer.encode`; raises unless every bit is as written."""
    sums_offset = read_sums_offset(data[-FOOTER_BYTES:])
    if len(data) != trailer_bytes(sums_offset):
        raise LayoutError("the block sums do not fit the file")
    if _SUM.unpack(data[-_SUM.size :])[0] != xxh3_64_intdigest(data[: -_SUM.size]):
        raise LayoutError("the footer does not match its checksum")
    magic, directory_offset, _, _ = _FOOTER.unpack_from(data, len(data) - FOOTER_BYTES)
    sums = struct.unpack_from(f"<{(len(data) - FOOTER_BYTES) // _SUM.size}Q", data)
    return Trailer(directory_offset, sums_offset, sums, magic)


def segment_name(segment_id: int, root: str) -> str:
    return f"{segment_id:010d}-{root}.seg"


def draft_name(segment_id: int) -> str:
    return f"{segment_id:010d}.new"


def blocks_of(offset: int, length: int) -> range:
    """The blocks that a range of bytes touches."""
    return range(offset // BLOCK_BYTES, -(-(offset + length) // BLOCK_BYTES))
