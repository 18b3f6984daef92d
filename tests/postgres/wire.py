"""Messages as PostgreSQL writes them, for tests of what reads them."""

from __future__ import annotations

import struct

from headwater.postgres.pgoutput import (
    EPOCH_US,
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    Message,
    Relation,
    Row,
    Truncate,
    Update,
)


def encode(message: Message) -> bytes:
    match message:
        case Begin(lsn, at_us, xid):
            return struct.pack(">cQqI", b"B", lsn, at_us - EPOCH_US, xid)
        case Commit(lsn, end):
            return struct.pack(">cBQQq", b"C", 0, lsn, end, 0)
        case Relation(oid, schema, name, identity, columns):
            head = struct.pack(">cI", b"R", oid) + text(schema) + text(name) + identity.encode()
            parts = [
                struct.pack(">B", column.in_key) + text(column.name)
                + struct.pack(">Ii", column.type_oid, -1)
                for column in columns
            ]  # fmt: skip
            return head + struct.pack(">H", len(columns)) + b"".join(parts)
        case Insert(oid, new):
            return struct.pack(">cIc", b"I", oid, b"N") + row(new)
        case Update(oid, new, None, _):
            return struct.pack(">cIc", b"U", oid, b"N") + row(new)
        case Update(oid, new, old, full) if old is not None:
            kind = b"O" if full else b"K"
            return struct.pack(">cIc", b"U", oid, kind) + row(old) + b"N" + row(new)
        case Delete(oid, old, full):
            return struct.pack(">cIc", b"D", oid, b"O" if full else b"K") + row(old)
        case Truncate(oids):
            return struct.pack(f">cIB{len(oids)}I", b"T", len(oids), 0, *oids)
    raise AssertionError(message)


def text(value: str) -> bytes:
    return value.encode() + b"\0"


def row(values: Row) -> bytes:
    parts = [struct.pack(">H", len(values))]
    for value in values:
        if value is None:
            parts.append(b"n")
        elif value is UNCHANGED:
            parts.append(b"u")
        else:
            data = str(value).encode()
            parts.append(struct.pack(">cI", b"t", len(data)) + data)
    return b"".join(parts)
