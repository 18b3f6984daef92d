"""The streaming replication protocol and the messages of `pgoutput`, version 1. No IO.

There are two layers. In the outer one, a WAL sender sends data (`w`) and signs of life (`k`), and
its reader sends reports of progress (`r`). The data contains the messages of the output plugin: a
transaction begins, has row changes, and is committed. Version 1 sends a transaction only when it is
committed, whole and in commit order, which is the order that a stream needs; large ones wait on
PostgreSQL's disk until then, not in our memory.

Rows come as texts by column, in the order of the last `Relation` message for their table, which
PostgreSQL sends before the first change and again whenever the table has changed. A value is a
text, None for NULL, or `UNCHANGED` for a large value that an update left unchanged and PostgreSQL
therefore did not log again.

Lengths are checked against the available bytes, so invalid input raises `BadMessage` and nothing
else.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from headwater.postgres.errors import BadMessage

# Seconds from 1970 to 2000, where PostgreSQL's clock begins, in microseconds.
EPOCH_US: Final = 946_684_800_000_000


class Unchanged(Enum):
    """The type of `UNCHANGED`."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED

Value = str | None | Unchanged
Row = tuple[Value, ...]


# --- The outer layer -----------------------------------------------------------------------------


class WalData(NamedTuple):
    """A message of the output plugin."""

    payload: bytes


class Keepalive(NamedTuple):
    """A sign of life: everything committed before this LSN has been sent."""

    wal_end: int
    wants_reply: bool


def read_frame(data: bytes) -> WalData | Keepalive:
    """Parse what a WAL sender sends."""
    kind = data[:1]
    if kind == b"w" and len(data) >= 25:
        return WalData(data[25:])
    if kind == b"k" and len(data) == 18:
        wal_end, _sent_at, wants_reply = struct.unpack_from(">QqB", data, 1)
        return Keepalive(wal_end, bool(wants_reply))
    raise BadMessage(f"a WAL sender does not send {data[:1]!r} with {len(data)} bytes")


def status_update(flushed: int, *, now_us: int) -> bytes:
    """A report that everything before an LSN is stored here."""
    return struct.pack(">cQQQqB", b"r", flushed, flushed, flushed, now_us - EPOCH_US, 0)


# --- Messages ------------------------------------------------------------------------------------


class Begin(NamedTuple):
    commit_lsn: int
    committed_us: int
    """Microseconds since 1970."""
    xid: int


class Commit(NamedTuple):
    commit_lsn: int
    end_lsn: int


class Column(NamedTuple):
    name: str
    type_oid: int
    in_key: bool
    """Whether it is part of the replica identity."""


class Relation(NamedTuple):
    oid: int
    schema: str
    name: str
    identity: str
    """`d` primary key, `i` an index, `f` the full row, `n` nothing."""
    columns: tuple[Column, ...]


class Insert(NamedTuple):
    relation: int
    new: Row


class Update(NamedTuple):
    relation: int
    new: Row
    old: Row | None = None
    old_is_full: bool = False
    """Whether `old` is the whole row, and not only its identity."""


class Delete(NamedTuple):
    relation: int
    old: Row
    old_is_full: bool


class Truncate(NamedTuple):
    relations: tuple[int, ...]


class Ignored(NamedTuple):
    """A message that does not concern rows: the origin of a transaction, or a type's name."""


Message = Begin | Commit | Relation | Insert | Update | Delete | Truncate | Ignored


def read_message(data: bytes) -> Message:
    """Parse a message of `pgoutput`."""
    kind = data[:1]
    reader = _READERS.get(kind)
    if reader is None:
        raise BadMessage(f"pgoutput version 1 has no message {kind!r}")
    cursor = _Cursor(data)
    try:
        message = reader(cursor)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise BadMessage(f"a pgoutput message {kind!r} is damaged: {error}") from None
    if cursor.at != len(data):
        raise BadMessage(f"a pgoutput message {kind!r} has {len(data) - cursor.at} bytes too many")
    return message


class _Cursor:
    """A place in a message."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 1

    def numbers(self, layout: struct.Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self.data, self.at)
        self.at += layout.size
        return values

    def text(self) -> str:
        """A zero-terminated text."""
        end = self.data.find(b"\0", self.at)
        if end < 0:
            raise IndexError("a text without an end")
        text = self.data[self.at : end].decode()
        self.at = end + 1
        return text

    def byte(self) -> bytes:
        byte = self.data[self.at : self.at + 1]
        if not byte:
            raise IndexError("it ends too early")
        self.at += 1
        return byte

    def row(self) -> Row:
        (count,) = self.numbers(_SHORT)
        return tuple(self._value() for _ in range(count))

    def _value(self) -> Value:
        kind = self.byte()
        if kind == b"t":
            (length,) = self.numbers(_INT)
            end = self.at + length
            if end > len(self.data):
                raise IndexError("a value reaches beyond the end")
            text = self.data[self.at : end].decode()
            self.at = end
            return text
        if kind == b"n":
            return None
        if kind == b"u":
            return UNCHANGED
        raise IndexError(f"no such kind of value: {kind!r}")


_SHORT: Final = struct.Struct(">H")
_INT: Final = struct.Struct(">I")
_BEGIN: Final = struct.Struct(">QqI")
_COMMIT: Final = struct.Struct(">BQQq")
_COLUMN: Final = struct.Struct(">Ii")
_TRUNCATE: Final = struct.Struct(">IB")


def _begin(cursor: _Cursor) -> Begin:
    lsn, at_us, xid = cursor.numbers(_BEGIN)
    return Begin(lsn, at_us + EPOCH_US, xid)


def _commit(cursor: _Cursor) -> Commit:
    _flags, commit_lsn, end_lsn, _at_us = cursor.numbers(_COMMIT)
    return Commit(commit_lsn, end_lsn)


def _relation(cursor: _Cursor) -> Relation:
    (oid,) = cursor.numbers(_INT)
    schema, name = cursor.text(), cursor.text()
    identity = cursor.byte().decode()
    (count,) = cursor.numbers(_SHORT)
    # System catalogue tables are sent without the name of their schema.
    return Relation(
        oid, schema or "pg_catalog", name, identity, tuple(_column(cursor) for _ in range(count))
    )


def _column(cursor: _Cursor) -> Column:
    in_key = cursor.byte() == b"\1"
    name = cursor.text()
    type_oid, _modifier = cursor.numbers(_COLUMN)
    return Column(name, type_oid, in_key)


def _insert(cursor: _Cursor) -> Insert:
    (relation,) = cursor.numbers(_INT)
    _expect(cursor.byte(), b"N")
    return Insert(relation, cursor.row())


def _update(cursor: _Cursor) -> Update:
    (relation,) = cursor.numbers(_INT)
    kind = cursor.byte()
    if kind == b"N":
        return Update(relation, cursor.row())
    _expect(kind, b"KO")
    old = cursor.row()
    _expect(cursor.byte(), b"N")
    return Update(relation, cursor.row(), old, kind == b"O")


def _delete(cursor: _Cursor) -> Delete:
    (relation,) = cursor.numbers(_INT)
    kind = cursor.byte()
    _expect(kind, b"KO")
    return Delete(relation, cursor.row(), kind == b"O")


def _truncate(cursor: _Cursor) -> Truncate:
    count, _options = cursor.numbers(_TRUNCATE)
    if count * 4 != len(cursor.data) - cursor.at:
        raise IndexError("the number of tables is wrong")
    return Truncate(tuple(cursor.numbers(_INT)[0] for _ in range(count)))


def _origin(cursor: _Cursor) -> Ignored:
    cursor.at += 8
    cursor.text()
    return Ignored()


def _type(cursor: _Cursor) -> Ignored:
    cursor.at += 4
    cursor.text(), cursor.text()
    return Ignored()


def _expect(kind: bytes, allowed: bytes) -> None:
    if kind not in allowed:
        raise IndexError(f"{kind!r} where one of {allowed!r} should be")


_READERS: Final[dict[bytes, Callable[[_Cursor], Message]]] = {
    b"B": _begin,
    b"C": _commit,
    b"R": _relation,
    b"I": _insert,
    b"U": _update,
    b"D": _delete,
    b"T": _truncate,
    b"O": _origin,
    b"Y": _type,
}
