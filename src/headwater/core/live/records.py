"""Change records: the State Protocol, and what is well formed.

A change has a non-empty `type` (its entity, a table) and `key`, and `headers.operation`: insert,
update and upsert carry a `value`, update and delete should carry the row as it was in `old_value`.
A control record has `headers.control` instead: `snapshot-start` and `snapshot-end` bracket a copy
of everything, `reset` says that all that was before is void. Whatever else a record carries is
kept and means nothing here.

An upsert with `"old_value": null` says that there was no such row: it is an insert.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from headwater.core import json_mode
from headwater.core.errors import InvalidRecord, MissingBefore

Operation = Literal["insert", "update", "upsert", "delete"]
Control = Literal["snapshot-start", "snapshot-end", "reset"]
MissingBeforePolicy = Literal["coarse", "skipBefore", "error"]

_INDEX: Final = re.compile(r"\$\[(\d+)\](?:\.([\w.]+))?")
_NULL: Final = b"null"
_ABSENT: Final = (b"", _NULL)


def is_object(raw: bytes) -> bool:
    return raw[:1] == b"{"


def is_absent(raw: bytes) -> bool:
    return raw in _ABSENT


class RecordHeaders(msgspec.Struct, gc=False):
    operation: Operation | None = None
    control: Control | None = None


class Record(msgspec.Struct, gc=False):
    # Nothing in a record can lead back to it, so the garbage collector need not look.
    headers: RecordHeaders
    type: str = ""
    key: str = ""
    value: msgspec.Raw = msgspec.Raw()
    old_value: msgspec.Raw = msgspec.Raw()

    @property
    def has_value(self) -> bool:
        return not is_absent(bytes(self.value))

    @property
    def has_before(self) -> bool:
        """Whether there is a row as it was. Anything but an object is as if absent."""
        return is_object(bytes(self.old_value))

    @property
    def is_insert(self) -> bool:
        if self.headers.operation == "upsert":
            return bytes(self.old_value) == _NULL
        return self.headers.operation == "insert" and not self.has_before


_records = msgspec.json.Decoder(list[Record])
_one = msgspec.json.Decoder(Record)


def read_records(stored: bytes) -> list[Record | None]:
    """Stored messages as records; None for those that are none, from before the profile."""
    try:
        return [*_records.decode(json_mode.as_array(stored))]
    except (msgspec.ValidationError, RecursionError):
        return [_lenient(raw) for raw in json_mode.decode(stored)]


def _lenient(raw: bytes) -> Record | None:
    try:
        record = _one.decode(raw)
        _check(0, record)
    except (msgspec.ValidationError, RecursionError, InvalidRecord):
        return None
    return record


def check_records(stored: bytes, on_missing_before: MissingBeforePolicy) -> None:
    """Refuse a body that holds a malformed record, and say which."""
    try:
        records = _records.decode(json_mode.as_array(stored))
    except msgspec.ValidationError as error:
        raise _explain(error) from None
    except RecursionError:
        raise InvalidRecord(0, "is nested too deeply") from None
    for index, record in enumerate(records):
        _check(index, record)
        if on_missing_before == "error":
            _check_before(index, record)


def _check(index: int, record: Record) -> None:
    operation, control = record.headers.operation, record.headers.control
    if (operation is None) == (control is None):
        raise InvalidRecord(index, "needs headers.operation or headers.control, one of the two")
    if control is not None:
        return
    if not record.type:
        raise InvalidRecord(index, "needs a type that is not empty")
    if not record.key:
        raise InvalidRecord(index, "needs a key that is not empty")
    if operation != "delete" and not record.has_value:
        raise InvalidRecord(index, f"is an {operation} and needs a value")


def _check_before(index: int, record: Record) -> None:
    if record.headers.control is not None or record.is_insert:
        return
    if not record.has_before and record.headers.operation != "insert":
        raise MissingBefore(index, record.headers.operation or "change")


def _explain(error: msgspec.ValidationError) -> InvalidRecord:
    """Which record it was is in the parser's message, as a path."""
    text = str(error)
    found = _INDEX.search(text)
    index = int(found[1]) if found else 0
    field = found[2] if found and found[2] else None
    problem = text.split(" - at ")[0]
    problem = problem[:1].lower() + problem[1:]
    return InvalidRecord(index, f"is no change record: {field + ': ' if field else ''}{problem}")
