"""Change records as queries see them: the row after and the row before.

`core.state_protocol` defines a valid record. A stream with the profile refuses anything else.
Touching adds this: a before-image counts only if it is an object, because only an object has
fields. An insert without one means that the row is new, and so does an upsert with `"old_value":
null`.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from headwater.core import json_mode
from headwater.core.errors import InvalidRecord, MissingBefore
from headwater.core.state_protocol import NotARecord, RawRecord, problem_of, read_record

MissingBeforePolicy = Literal["coarse", "skipBefore", "error"]

_INDEX: Final = re.compile(r"\$\[(\d+)\](?:\.([\w.]+))?")
_records: Final = msgspec.json.Decoder(list[RawRecord])


def is_object(raw: bytes) -> bool:
    return raw[:1] == b"{"


def row_of(value: msgspec.Raw | UnsetType) -> bytes | None:
    """The text of a value; None if there is none."""
    return None if value is UNSET else bytes(value)


def has_before(record: RawRecord) -> bool:
    """Whether the row before the change is known."""
    return record.old_value is not UNSET and is_object(bytes(record.old_value))


def is_insert(record: RawRecord) -> bool:
    if record.headers.operation == "upsert":
        return row_of(record.old_value) == b"null"
    return record.headers.operation == "insert" and not has_before(record)


def read_records(stored: bytes) -> list[RawRecord | None]:
    """Stored messages as records; None for invalid ones from before the profile."""
    try:
        records = _records.decode(json_mode.as_array(stored))
    except (msgspec.ValidationError, RecursionError):
        return [_lenient(raw) for raw in json_mode.decode(stored)]
    return [None if problem_of(record) else record for record in records]


def _lenient(raw: bytes) -> RawRecord | None:
    try:
        return read_record(raw)
    except NotARecord:
        return None


def check_records(stored: bytes, on_missing_before: MissingBeforePolicy) -> None:
    """Refuse a body that holds a malformed record, and say which."""
    try:
        records = _records.decode(json_mode.as_array(stored))
    except msgspec.ValidationError as error:
        raise _explain(error) from None
    except RecursionError:
        raise InvalidRecord(0, "is nested too deeply") from None
    for index, record in enumerate(records):
        problem = problem_of(record)
        if problem is not None:
            raise InvalidRecord(index, problem)
        if on_missing_before == "error":
            _check_before(index, record)


def _check_before(index: int, record: RawRecord) -> None:
    operation = record.headers.operation
    if operation in (None, "insert") or is_insert(record) or has_before(record):
        return
    raise MissingBefore(index, operation or "change")


def _explain(error: msgspec.ValidationError) -> InvalidRecord:
    """The parser's message contains the record's index, as a path."""
    text = str(error)
    found = _INDEX.search(text)
    index = int(found[1]) if found else 0
    field = found[2] if found and found[2] else None
    problem = text.split(" - at ")[0]
    problem = problem[:1].lower() + problem[1:]
    return InvalidRecord(index, f"is not a change record: {field + ': ' if field else ''}{problem}")
