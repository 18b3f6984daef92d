"""Rows into messages, and messages into requests. No IO.

A row with a column `value` is that message; any other row is a JSON object of its columns. With
`keyColumn` it becomes a change of the State Protocol. If no stream is named, the column `stream`
says where a row goes.

The split into requests depends only on the rows: a number of rows, or fewer if they are large. A
task that is run again with the same rows sends the same requests with the same numbers, and the
server knows which of them it has.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import msgspec
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from headwater.core.content_types import is_json
from headwater.core.state_protocol import OPERATIONS
from pyspark_headwater.errors import InvalidOption, MalformedMessage
from pyspark_headwater.options import WriteOptions

STREAM_COLUMN: Final = "stream"
VALUE_COLUMN: Final = "value"
REQUEST_BYTES_MAX: Final = 8 * 2**20
BUFFERED_BYTES_MAX: Final = 64 * 2**20

_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")

Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One row on its way to a stream."""

    stream: str
    body: bytes
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Append:
    """What one request appends to a stream, and its number within the task."""

    stream: str
    seq: int
    messages: list[bytes]
    id: str | None = None


class RowEncoder:
    """Turns Arrow record batches into messages."""

    def __init__(self, options: WriteOptions, schema: StructType, content_type: str) -> None:
        self._options = options
        self._is_json = is_json(content_type)
        names = set(schema.fieldNames())
        special = {options.key_column, options.operation_column, options.id_column}
        for name in sorted(one for one in special if one is not None):
            if name not in names:
                raise InvalidOption(f"there is no column {name!r} to write: {sorted(names)}")
        self._by_column = options.stream is None
        if self._by_column and STREAM_COLUMN not in names:
            raise InvalidOption(
                f"name the stream with the option stream, or in a column {STREAM_COLUMN!r}"
            )
        self._has_value = VALUE_COLUMN in names and options.key_column is None
        self._check_value(schema)
        left_out = {options.operation_column}
        if self._by_column:
            left_out.add(STREAM_COLUMN)
        self._fields = [
            (one.name, converter(one.dataType)) for one in schema.fields if one.name not in left_out
        ]

    def _check_value(self, schema: StructType) -> None:
        if self._has_value:
            kind = schema[VALUE_COLUMN].dataType
            if not isinstance(kind, StringType | BinaryType):
                raise InvalidOption(f"the column value is text or binary, not {kind}")
        elif not self._is_json:
            raise InvalidOption("a stream that is not JSON needs a column value to write")

    def messages(self, batches: Iterable[Any]) -> Iterator[Message]:
        """The messages of some record batches, in order."""
        stream = self._options.stream
        for batch in batches:
            if self._has_value and stream is not None and self._options.id_column is None:
                # The usual case, without a dict for every row.
                for value in batch.column(VALUE_COLUMN).to_pylist():
                    yield Message(stream, _body_of(value))
            else:
                for row in batch.to_pylist():
                    yield self._message(row)

    def _message(self, row: dict[str, Any]) -> Message:
        options = self._options
        stream = row[STREAM_COLUMN] if self._by_column else options.stream
        if not stream:
            raise MalformedMessage(f"a row names no stream: {row}")
        message_id = None if options.id_column is None else row[options.id_column]
        if options.id_column is not None and message_id is None:
            raise MalformedMessage(f"a row has no {options.id_column}: {row}")
        body = self._body(stream, row)
        return Message(stream, body, None if message_id is None else str(message_id))

    def _body(self, stream: str, row: dict[str, Any]) -> bytes:
        if self._has_value:
            return _body_of(row[VALUE_COLUMN])
        fields = {name: convert(row[name]) for name, convert in self._fields}
        key_column = self._options.key_column
        return _ENCODER.encode(fields if key_column is None else self._change(stream, row, fields))

    def _change(self, stream: str, row: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
        options = self._options
        key = row[options.key_column or ""]
        operation = row[options.operation_column] if options.operation_column else "upsert"
        if key is None or operation not in OPERATIONS:
            raise MalformedMessage(
                f"a change needs a key and one of {', '.join(OPERATIONS)}: {row}"
            )
        change: dict[str, Any] = {
            "type": options.entity_type or stream.rpartition("/")[2],
            "key": str(key),
            "headers": {"operation": operation},
        }
        return change if operation == "delete" else {**change, "value": fields}


def _body_of(value: str | bytes | None) -> bytes:
    if value is None:
        raise MalformedMessage("a row has no value, so there is nothing to append")
    return value.encode() if isinstance(value, str) else bytes(value)


def converter(kind: DataType) -> Convert:
    """How to convert a value of a Spark type to JSON."""
    match kind:
        case StructType():
            inner = {one.name: converter(one.dataType) for one in kind.fields}
            return _unless_none(
                lambda value: {name: convert(value[name]) for name, convert in inner.items()}
            )
        case ArrayType():
            element = converter(kind.elementType)
            return _unless_none(lambda value: [element(one) for one in value])
        case MapType():
            of_value = converter(kind.valueType)
            return _unless_none(lambda value: {str(k): of_value(v) for k, v in value})
        case BinaryType():
            return _unless_none(lambda value: base64.b64encode(value).decode())
    return _plain


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | Decimal) or value is None:
        return value
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return None
    return value


def _unless_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


@dataclass(slots=True)
class _Pending:
    bodies: list[bytes] = field(default_factory=list)
    size: int = 0
    next_seq: int = 0


def cut(messages: Iterable[Message], *, json: bool, rows_max: int) -> Iterator[Append]:
    """Messages into appends: many to one in JSON streams, unless each has its own id."""
    pending: dict[str, _Pending] = {}
    buffered = 0
    for message in messages:
        one = pending.setdefault(message.stream, _Pending())
        if not json or message.id is not None:
            yield Append(message.stream, one.next_seq, [message.body], message.id)
            one.next_seq += 1
            continue
        if one.bodies and one.size + len(message.body) > REQUEST_BYTES_MAX:
            buffered -= one.size
            yield _flushed(message.stream, one)
        one.bodies.append(message.body)
        one.size += len(message.body)
        buffered += len(message.body)
        if len(one.bodies) >= rows_max:
            buffered -= one.size
            yield _flushed(message.stream, one)
        elif buffered > BUFFERED_BYTES_MAX:
            buffered = 0
            yield from _flush_all(pending)
    yield from _flush_all(pending)


def _flush_all(pending: dict[str, _Pending]) -> Iterator[Append]:
    for stream, one in pending.items():
        if one.bodies:
            yield _flushed(stream, one)


def _flushed(stream: str, one: _Pending) -> Append:
    append = Append(stream, one.next_seq, one.bodies)
    one.bodies, one.size = [], 0
    one.next_seq += 1
    return append
