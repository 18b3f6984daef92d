"""Catalogs: everything besides segments that a restore from object storage needs.

Segments hold what streams wrote, but not which streams exist. A catalog is everything else: all
tables of the database except the rows of appends, as of one moment, compressed, with a checksum in
front. It also records how far each stream reached at that moment, so that a restore can report what
is missing.

A catalog is written after segments were uploaded, and the last few are kept. None of those names a
segment that is not there. A name begins with the time, so names sort by age.
"""

from __future__ import annotations

from typing import Any, Final

import apsw
import msgspec
import zstandard
from xxhash import xxh3_128_digest

from headwater.core.errors import DataCorrupt
from headwater.store.sqlite.schema import SCHEMA_VERSION

FORMAT: Final = 1
_SUM_BYTES: Final = 16
# Rows of appends are in segments, or not in object storage at all.
_LEFT_OUT: Final = ("ops", "sqlite_sequence")


class Table(msgspec.Struct):
    columns: list[str]
    rows: list[list[Any]]


class Reach(msgspec.Struct, array_like=True):
    """What a stream had in rows: appends that are in no segment."""

    stream_id: int
    appends: int
    end: int
    messages: int


class Catalog(msgspec.Struct):
    format: int
    schema: int
    made_at_ms: int
    tables: dict[str, Table]
    sequences: dict[str, int]
    """The highest assigned ids, because ids must not be reused."""
    in_rows: list[Reach]


def make_catalog(connection: apsw.Connection, now_ms: int) -> Catalog:
    # A consistent snapshot of all tables.
    connection.execute("BEGIN")
    try:
        tables = {name: _table(connection, name) for name in _table_names(connection)}
        sequences = connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall()
        in_rows = connection.execute(
            "SELECT stream_id, count(*), max(start + length(body)), max(first_message + messages)"
            " FROM ops GROUP BY stream_id"
        ).fetchall()
    finally:
        connection.execute("ROLLBACK")
    return Catalog(
        FORMAT,
        SCHEMA_VERSION,
        now_ms,
        tables,
        {str(name): int(seq or 0) for name, seq in sequences},
        [Reach(*(int(value or 0) for value in row)) for row in in_rows],
    )


def _table_names(connection: apsw.Connection) -> list[str]:
    found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    return [str(row[0]) for row in found if row[0] not in _LEFT_OUT]


def _table(connection: apsw.Connection, name: str) -> Table:
    columns = [str(row[1]) for row in connection.execute(f"PRAGMA table_info({name})")]
    rows = [list(row) for row in connection.execute(f"SELECT {', '.join(columns)} FROM {name}")]
    return Table(columns, rows)


def encode_catalog(catalog: Catalog) -> bytes:
    packed = zstandard.ZstdCompressor(level=3).compress(msgspec.msgpack.encode(catalog))
    return xxh3_128_digest(packed) + packed


def decode_catalog(name: str, content: bytes) -> Catalog:
    """The inverse of `encode_catalog`; raises DataCorrupt."""
    digest, packed = content[:_SUM_BYTES], content[_SUM_BYTES:]
    if xxh3_128_digest(packed) != digest:
        raise DataCorrupt(f"catalog {name} does not match its checksum")
    try:
        plain = zstandard.ZstdDecompressor().decompress(packed)
        return msgspec.msgpack.decode(plain, type=Catalog)
    except (zstandard.ZstdError, msgspec.MsgspecError) as error:
        raise DataCorrupt(f"catalog {name}: {error}") from None


def catalog_name(made_at_ms: int) -> str:
    return f"{made_at_ms:016d}.catalog"


def catalog_ms(name: str) -> int:
    """The time in a catalog's name; 0 if it is not one."""
    digits = name.removesuffix(".catalog")
    return int(digits) if digits.isdecimal() else 0
