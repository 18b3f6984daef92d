"""How values are sent to PostgreSQL and back.

Columns of a batch are sent as arrays, one parameter each, and `unnest` makes rows of them: one
statement per table, however many rows. The arrays are built here, in PostgreSQL's binary form,
because that is done for every append and psycopg would do it value by value.

PostgreSQL's text cannot hold the character U+0000, and JSON can. It is stored as U+0001 U+0001, and
U+0001 itself as U+0001 U+0002; nothing else changes, nor does the order of texts without either.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from typing import Final, cast

from psycopg.adapt import AdaptersMap, Buffer, Dumper, Loader
from psycopg.pq import Format

_BIGINT, _TEXT, _BYTEA = 20, 25, 17
_BIGINTS, _TEXTS, _BYTEAS = 1016, 1009, 1001
_HEADER: Final = struct.Struct("!iiIii")
_LENGTH: Final = struct.Struct("!i")
_NULL: Final = _LENGTH.pack(-1)

_SPECIAL: Final = re.compile("[\x00\x01]")
_STORED: Final = re.compile("\x01(.)")


def escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: "\x01" + chr(ord(found[0]) + 1), text)


def unescaped(text: str) -> str:
    return _STORED.sub(lambda found: chr(ord(found[1]) - 1), text)


class Array:
    """An array in binary form."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class Bigints(Array):
    """An array of numbers."""


class Texts(Array):
    """An array of texts."""


class Byteas(Array):
    """An array of byte strings."""


def bigints(values: Sequence[int | None]) -> Bigints:
    count = len(values)
    if None in values:
        items = b"".join(_NULL if v is None else struct.pack("!iq", 8, v) for v in values)
        return Bigints(_HEADER.pack(1, 1, _BIGINT, count, 1) + items)
    flat = [8] * (2 * count)
    flat[1::2] = cast("Sequence[int]", values)
    return Bigints(_HEADER.pack(1, 0, _BIGINT, count, 1) + struct.pack("!" + "iq" * count, *flat))


def texts(values: Sequence[str | None]) -> Texts:
    encoded = (None if value is None else escaped(value).encode() for value in values)
    return Texts(_pack(_TEXT, len(values), encoded))


def byteas(values: Sequence[bytes]) -> Byteas:
    return Byteas(_pack(_BYTEA, len(values), values))


def _pack(kind: int, count: int, values: Iterable[bytes | None]) -> bytes:
    parts = [_HEADER.pack(1, 1, kind, count, 1)]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            parts += (_LENGTH.pack(len(value)), value)
    return b"".join(parts)


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Array) -> bytes:
        return obj.data


class _BigintsDumper(_ArrayDumper):
    oid = _BIGINTS


class _TextsDumper(_ArrayDumper):
    oid = _TEXTS


class _ByteasDumper(_ArrayDumper):
    oid = _BYTEAS


class _TextDumper(Dumper):
    format = Format.BINARY
    oid = _TEXT

    def dump(self, obj: str) -> bytes:
        return escaped(obj).encode()


class _IntDumper(Dumper):
    """All numbers are bigints: one form of each statement, whatever the size of the number."""

    format = Format.BINARY
    oid = _BIGINT

    def dump(self, obj: int) -> bytes:
        return obj.to_bytes(8, "big", signed=True)


class _TextLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        text = bytes(data).decode()
        return unescaped(text) if "\x01" in text else text


def adapt(adapters: AdaptersMap) -> None:
    """Register these formats with a connection."""
    adapters.register_dumper(Bigints, _BigintsDumper)
    adapters.register_dumper(Texts, _TextsDumper)
    adapters.register_dumper(Byteas, _ByteasDumper)
    adapters.register_dumper(str, _TextDumper)
    adapters.register_dumper(int, _IntDumper)
    adapters.register_loader("text", _TextLoader)
