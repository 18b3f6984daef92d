"""The columns: as the server sends a message, or parsed by the user's schema.

Without a schema a row is a message with its place. With one, each field of the schema is a field of
the message's JSON object; names that begin with an underscore and are listed in `PLACES` are the
message's place and sender. pyarrow does the parsing, a batch at a time. A message does not fit if
it is not an object or if a field has another type; fields that the schema does not name are
ignored, and fields missing in the message are null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headwater.core import objects
from headwater.core.arrow import places_of
from headwater.core.frames import Frame
from headwater.core.offsets import Offset
from pyspark_headwater.errors import InvalidOption, MalformedMessage
from pyspark_headwater.keys import keys_and_headers
from pyspark_headwater.options import Mode

CORRUPT: Final = "_corrupt"
KEY: Final = "key"
HEADERS: Final = "headers"
SENDER: Final[Mapping[str, DataType]] = {
    "producer_id": StringType(),
    "producer_epoch": LongType(),
    "producer_seq": LongType(),
    "message_id": StringType(),
}
PLACES: Final[Mapping[str, DataType]] = {
    "_stream": StringType(),
    "_offset": StringType(),
    "_index": IntegerType(),
    "_timestamp": TimestampType(),
    **{f"_{name}": kind for name, kind in SENDER.items()},
    CORRUPT: StringType(),
}
_EXCERPT_CHARS: Final = 200

Shape = Callable[[str, Any], Any]
"""Converts a stream's rows from the server's form to the one that Spark expects."""


def message_schema(*, json: bool, headers: bool) -> StructType:
    """The columns when no schema is given."""
    fields = [
        StructField("stream", StringType(), False),
        StructField("offset", StringType(), False),
        StructField("index", IntegerType(), False),
        StructField("timestamp", TimestampType(), False),
        StructField("value", StringType() if json else BinaryType(), False),
    ]
    if headers:
        fields += [StructField(name, kind) for name, kind in SENDER.items()]
        fields += [
            StructField(KEY, StringType()),
            StructField(HEADERS, MapType(StringType(), StringType())),
        ]
    return StructType(fields)


def names_sender(schema: StructType) -> bool:
    """Whether a user's own schema asks for the sender of a message."""
    return any(f"_{name}" in schema.fieldNames() for name in SENDER)


def messages_as_rows(schema: StructType) -> Shape:
    """Rows as the server sends them, with the names that Spark expects."""
    target = to_arrow_schema(schema, timezone="UTC")
    names = [name for name in target.names if name not in ("stream", KEY, HEADERS)]

    def shape(stream: str, rows: Any) -> Any:
        columns = {"stream": pa.repeat(pa.scalar(stream, pa.string()), rows.num_rows)}
        columns |= {name: rows.column(name) for name in names}
        if KEY in target.names:
            keys, headers = keys_and_headers(columns["value"].to_pylist())
            columns[KEY] = pa.array(keys, pa.string())
            columns[HEADERS] = pa.array(headers, target.field(HEADERS).type)
        try:
            columns["value"] = columns["value"].cast(target.field("value").type)
        except pa.ArrowInvalid:
            raise MalformedMessage(
                f"the stream {stream!r} holds bytes, but the query began when there were only "
                "JSON streams; start it again"
            ) from None
        return pa.RecordBatch.from_arrays([columns[name] for name in target.names], schema=target)

    return shape


@dataclass(frozen=True, slots=True)
class Shaped:
    """Rows in the form that Spark expects."""

    batch: Any


class ParsedMessages:
    """Rows of the user's own schema."""

    def __init__(self, schema: StructType, mode: Mode) -> None:
        check_places(schema, mode)
        self._mode: Mode = mode
        self._target = to_arrow_schema(schema, timezone="UTC")
        self._headers = names_sender(schema)
        self._wanted = pa.schema(
            [field.with_nullable(True) for field in self._target if field.name not in PLACES]
        )

    def __call__(self, stream: str, rows: Any) -> Any:
        values = _texts(rows.column("value"))
        table, corrupt = _parse_all(values, self._wanted, self._mode, stream, rows)
        batch = self._batch(stream, rows, table, corrupt)
        return batch.filter(pc.is_null(corrupt)) if self._mode == "DROPMALFORMED" else batch

    def whole(self, stream: str, frame: Frame, first: Offset) -> Any:
        """The rows of a frame in one pass over its bytes; None if that is not possible.

        The parser takes lines of objects. If it is not easy to tell where messages end, or if one
        of them does not fit, they are processed one by one.
        """
        if not len(self._wanted):
            return None
        places = places_of(frame, first, headers=self._headers)
        if places is None:
            return None
        lines = objects.as_lines(frame.data, frame.messages)
        if lines is None:
            return None
        table = _read_json(pa.py_buffer(lines), self._wanted, frame.messages)
        if table is None:
            return None
        return self._batch(stream, places, table, pa.nulls(frame.messages, pa.string()))

    def _batch(self, stream: str, rows: Any, table: Any, corrupt: Any) -> Any:
        columns = place_columns(stream, rows, corrupt)
        arrays = [
            columns[name]() if name in columns else table.column(name).combine_chunks()
            for name in self._target.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._target)


def place_columns(stream: str, rows: Any, corrupt: Any) -> dict[str, Callable[[], Any]]:
    """Columns that do not come from the message, by the names in `PLACES`, computed on demand."""
    return {
        "_stream": lambda: pa.repeat(pa.scalar(stream, pa.string()), rows.num_rows),
        "_offset": lambda: rows.column("offset"),
        "_index": lambda: rows.column("index"),
        "_timestamp": lambda: rows.column("timestamp"),
        **{f"_{name}": partial(rows.column, name) for name in SENDER},
        CORRUPT: lambda: corrupt,
    }


def _texts(values: Any) -> Any:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        # Bytes that are not text become escapes that JSON does not have, so that they never fit.
        texts = [value.decode("utf-8", "backslashreplace") for value in values.to_pylist()]
        return pa.array(texts, pa.string())


def check_places(schema: StructType, mode: Mode) -> None:
    """Refuse columns with the name of a place and another type."""
    for field in schema.fields:
        expected = PLACES.get(field.name)
        if expected is not None and field.dataType != expected:
            raise InvalidOption(
                f"the column {field.name} is a {expected.simpleString()}, "
                f"not a {field.dataType.simpleString()}"
            )
    if mode == "PERMISSIVE" and CORRUPT not in schema.fieldNames():
        raise InvalidOption(f"mode PERMISSIVE needs a column {CORRUPT} string in the schema")


def _parse_all(values: Any, wanted: Any, mode: Mode, stream: str, rows: Any) -> tuple[Any, Any]:
    """The parsed table, and the texts of messages that do not fit."""
    whole = _parse(values, wanted)
    if whole is not None:
        return whole, pa.nulls(len(values), pa.string())
    good: list[Any] = []
    bad = _sift(values, 0, wanted, good)
    if mode == "FAILFAST":
        first = min(bad)
        place = f"{rows.column('offset')[first]}, index {rows.column('index')[first]}"
        text = values[first].as_py()[:_EXCERPT_CHARS]
        raise MalformedMessage(
            f"a message of {stream!r} at {place} does not fit the schema: {text}. "
            f"Mode PERMISSIVE with a column {CORRUPT} keeps such messages apart, "
            "DROPMALFORMED leaves them out."
        )
    marks = [values[at].as_py() if at in bad else None for at in range(len(values))]
    return pa.concat_tables(good), pa.array(marks, pa.string())


def _sift(values: Any, start: int, wanted: Any, good: list[Any]) -> set[int]:
    """Bisect until misfits are isolated; a row of nulls replaces each."""
    table = _parse(values, wanted)
    if table is not None:
        good.append(table)
        return set()
    if len(values) == 1:
        nulls = [pa.nulls(1, field.type) for field in wanted]
        good.append(pa.Table.from_arrays(nulls, schema=wanted))
        return {start}
    middle = len(values) // 2
    left = _sift(values.slice(0, middle), start, wanted, good)
    return left | _sift(values.slice(middle), start + middle, wanted, good)


def _parse(values: Any, wanted: Any) -> Any:
    """A table with a row for every message, or None if one of them does not fit."""
    if not len(wanted) or not len(values):
        return pa.Table.from_arrays([pa.nulls(len(values), f.type) for f in wanted], schema=wanted)
    if not _are_objects(values):
        return None
    lines = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    return _read_json(pc.binary_join(lines, "\n")[0].as_buffer(), wanted, len(values))


def _read_json(text: Any, wanted: Any, messages: int) -> Any:
    """A table of this many consecutive objects, or None if not all are of that kind."""
    options = {
        "parse_options": pj.ParseOptions(
            explicit_schema=wanted,
            # Messages are kept as they were sent, possibly over several lines.
            newlines_in_values=True,
            unexpected_field_behavior="ignore",
        ),
        "read_options": pj.ReadOptions(use_threads=False, block_size=max(text.size + 1, 1 << 16)),
    }
    try:
        table = pj.read_json(pa.BufferReader(text), **options)
    except pa.ArrowInvalid:
        return None
    return table if table.num_rows == messages and table.schema.equals(wanted) else None


def _are_objects(values: Any) -> bool:
    """Whether each message is an object. pyarrow crashes on a message that is just `null`."""
    return bool(
        pc.all(pc.starts_with(values, "{")).as_py()
        or pc.all(pc.starts_with(pc.ascii_ltrim_whitespace(values), "{")).as_py()
    )
