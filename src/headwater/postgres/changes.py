"""From messages of `pgoutput` to State Protocol records. No IO.

    {"type": "public.todos", "key": "1", "value": {…}, "old_value": {…},
     "headers": {"operation": "update", "txid": "743", "timestamp": "2026-01-31T12:00:00.5Z",
                 "lsn": "00000000/0193F5A8", "seq": 0}}

`timestamp` is the moment of the commit. `lsn` and `seq` are the record's position.

- The **key** consists of the primary key; of the columns of an index if that is the replica
  identity; of all columns if a table has neither.
- **old_value** is present when PostgreSQL sends the whole old row: with REPLICA IDENTITY FULL. A
  partial row is never presented as a row.
- An update that **changes the key** moves an entity: it becomes a delete of the old key and an
  insert of the new one, with one position, always in one append.
- A large value that an update **left unchanged** is not in PostgreSQL's log. It is taken from the
  old row if available. Otherwise the column is missing in `value` and named in `headers.unchanged`.
- **TRUNCATE** is a control record, `reset`, with the tables in `headers.tables`.

Every change of a row, and every truncation, is a `Unit`: appended whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from headwater.core.state_protocol import RESET, Control, Operation
from headwater.postgres.errors import BadMessage
from headwater.postgres.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Ignored,
    Insert,
    Message,
    Relation,
    Row,
    Update,
)
from headwater.postgres.position import CHANGES, SNAPSHOT, Position, format_lsn
from headwater.postgres.values import Convert, key_text

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_encode: Final = msgspec.json.Encoder().encode


class Unit(NamedTuple):
    """The records of one change, encoded, and their common position."""

    position: Position
    records: tuple[bytes, ...]

    @property
    def size(self) -> int:
        return sum(map(len, self.records))


@dataclass(frozen=True, slots=True)
class Table:
    """What is needed to make records of a table's rows."""

    name: str
    """The schema and the name, as in `public.todos`."""
    columns: tuple[str, ...]
    converters: tuple[Convert, ...]
    key: tuple[int, ...]
    """The columns of the key; empty if the table has no key."""
    full: bool
    """Whether PostgreSQL sends whole old rows."""

    def values(self, row: Row) -> dict[str, Any]:
        """The known columns of a row."""
        if len(row) != len(self.columns):
            raise BadMessage(f"a row of {self.name} has {len(row)} columns")
        return {
            name: None if text is None else convert(text)
            for name, convert, text in zip(self.columns, self.converters, row, strict=True)
            if text is not UNCHANGED
        }

    def key_of(self, values: dict[str, Any]) -> str:
        columns = self.key or range(len(self.columns))
        return key_text([values.get(self.columns[index]) for index in columns])


def record_of(
    table: Table, operation: Operation, key: str, headers: dict[str, Any], **images: dict[str, Any]
) -> bytes:
    """One record, encoded."""
    return _encode(
        {
            "type": table.name,
            "key": key,
            **images,
            "headers": {"operation": operation, **headers},
        }
    )


def control(kind: Control, headers: dict[str, Any]) -> bytes:
    """A record about the state as a whole."""
    return _encode({"headers": {"control": kind, **headers}})


def snapshot_headers(position: Position, timestamp: str, slot: str) -> dict[str, Any]:
    """The headers of a record that is not from the log; they name its slot."""
    assert position.phase == SNAPSHOT
    return {
        "timestamp": timestamp,
        "lsn": format_lsn(position.lsn),
        "seq": position.seq,
        "snapshot": slot,
    }


def rfc3339(at_us: int) -> str:
    """Microseconds since 1970 as text.

    >>> rfc3339(1_767_225_600_500_000)
    '2026-01-01T00:00:00.500000Z'
    """
    moment = _EPOCH + timedelta(microseconds=at_us)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


@dataclass(slots=True)
class Translator:
    """Makes records of the messages of one replication session.

    Call `describe` for every `Relation` before the changes that follow it. Warnings about tables in
    `warned` are not repeated.
    """

    warn: Callable[[str], None]
    warned: set[tuple[str, str]] = field(default_factory=set)
    _tables: dict[int, Table] = field(default_factory=dict)
    _begin: Begin | None = None
    _seq: int = 0
    _headers: dict[str, Any] = field(default_factory=dict)

    @property
    def in_transaction(self) -> bool:
        return self._begin is not None

    def describe(self, relation: Relation, table: Table) -> None:
        """Record the definition of a table from here on."""
        self._tables[relation.oid] = table

    def translate(self, message: Message) -> Unit | None:
        """The records of a message; None if it changes no row."""
        match message:
            case Begin():
                self._open(message)
                return None
            case Commit():
                self._close(message)
                return None
            case Relation() | Ignored():
                return None
        if self._begin is None:
            raise BadMessage("a change outside of a transaction")
        position = Position(self._begin.commit_lsn, CHANGES, self._seq)
        self._seq += 1
        headers = {**self._headers, "seq": position.seq}
        match message:
            case Insert():
                records = self._insert(message, headers)
            case Update():
                records = self._update(message, headers)
            case Delete():
                records = self._delete(message, headers)
            case _:
                names = [self._table(oid).name for oid in message.relations]
                records = [control(RESET, {**headers, "tables": names})]
        return Unit(position, tuple(records))

    def _open(self, begin: Begin) -> None:
        if self._begin is not None:
            raise BadMessage("a transaction inside another one")
        self._begin = begin
        self._seq = 0
        self._headers = {
            "txid": str(begin.xid),
            "timestamp": rfc3339(begin.committed_us),
            "lsn": format_lsn(begin.commit_lsn),
        }

    def _close(self, commit: Commit) -> None:
        if self._begin is None or self._begin.commit_lsn != commit.commit_lsn:
            raise BadMessage("a commit without its transaction")
        self._begin = None

    def _insert(self, message: Insert, headers: dict[str, Any]) -> list[bytes]:
        table = self._table(message.relation)
        self._warn_if_keyless(table)
        value = table.values(message.new)
        return [record_of(table, "insert", table.key_of(value), headers, value=value)]

    def _update(self, message: Update, headers: dict[str, Any]) -> list[bytes]:
        table = self._table(message.relation)
        value, unknown = self._new_values(table, message)
        if message.old is None or not message.old_is_full:
            self._warn_if_partial(table)
        images: dict[str, dict[str, Any]] = {"value": value}
        if message.old is not None and message.old_is_full:
            images["old_value"] = table.values(message.old)
        after = {**headers, "unchanged": unknown} if unknown else headers
        key = table.key_of(value)
        old_key = key if message.old is None else table.key_of(table.values(message.old))
        if old_key == key:
            return [record_of(table, "update", key, after, **images)]
        before = {name: image for name, image in images.items() if name == "old_value"}
        return [
            record_of(table, "delete", old_key, headers, **before),
            record_of(table, "insert", key, after, value=value),
        ]

    def _delete(self, message: Delete, headers: dict[str, Any]) -> list[bytes]:
        table = self._table(message.relation)
        old = table.values(message.old)
        images = {"old_value": old} if message.old_is_full else {}
        if not message.old_is_full:
            self._warn_if_partial(table)
        return [record_of(table, "delete", table.key_of(old), headers, **images)]

    def _new_values(self, table: Table, message: Update) -> tuple[dict[str, Any], list[str]]:
        """The new row, completed from the old one, and the columns that remain unknown."""
        new = message.new
        if UNCHANGED not in new:
            return table.values(new), []
        if message.old is not None and len(message.old) == len(new):
            # In a partial row, columns outside the identity are NULL only nominally.
            usable = range(len(new)) if message.old_is_full else table.key
            new = tuple(
                message.old[index] if text is UNCHANGED and index in usable else text
                for index, text in enumerate(new)
            )
        unknown = [
            name for name, text in zip(table.columns, new, strict=False) if text is UNCHANGED
        ]
        return table.values(new), unknown

    def _table(self, oid: int) -> Table:
        try:
            return self._tables[oid]
        except KeyError:
            raise BadMessage(f"a change of a table, {oid}, that was not announced") from None

    def _warn_if_partial(self, table: Table) -> None:
        if self._is_first("partial", table):
            self.warn(
                f"{table.name} has no full replica identity, so its records have no old_value; "
                f"`ALTER TABLE {table.name} REPLICA IDENTITY FULL` changes that"
            )

    def _warn_if_keyless(self, table: Table) -> None:
        if not table.key and self._is_first("keyless", table):
            self.warn(
                f"{table.name} has no primary key, so its whole rows serve as keys, and rows that "
                "are equal look like one; give it a primary key"
            )

    def _is_first(self, kind: str, table: Table) -> bool:
        is_first = (kind, table.name) not in self.warned
        self.warned.add((kind, table.name))
        return is_first
