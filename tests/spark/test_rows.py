"""Rows into messages, messages into requests."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_headwater.errors import InvalidOption, MalformedMessage
from pyspark_headwater.options import write_options
from pyspark_headwater.rows import REQUEST_BYTES_MAX, Message, RowEncoder, cut

JSON = "application/json"


def schema(**kinds: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def encode(kinds: StructType, rows: list[dict[str, Any]], **options: str) -> list[Message]:
    chosen = write_options({"stream": "shop/orders", **options}, "stream write")
    encoder = RowEncoder(chosen, kinds, JSON)
    return [*encoder.messages([pa.RecordBatch.from_pylist(rows)])]


def test_a_row_is_an_object() -> None:
    kinds = schema(n=LongType(), who=StringType())
    (message,) = encode(kinds, [{"n": 1, "who": None}])
    assert (message.stream, message.body) == ("shop/orders", b'{"n":1,"who":null}')


def test_types_that_json_does_not_have() -> None:
    kinds = schema(
        at=TimestampType(),
        price=DecimalType(10, 2),
        raw=BinaryType(),
        tags=MapType(StringType(), LongType()),
        many=ArrayType(BinaryType()),
    )
    row = {
        "at": datetime(2026, 1, 2, tzinfo=UTC),
        "price": Decimal("1.50"),
        "raw": b"\xff",
        "tags": [("a", 1)],
        "many": [b"x", None],
    }
    chosen = write_options({"stream": "s"}, "stream write")
    encoded = RowEncoder(chosen, kinds, JSON)._message(row)
    assert encoded.body == (
        b'{"at":"2026-01-02T00:00:00Z","price":1.50,"raw":"/w==","tags":{"a":1},"many":["eA==",null]}'
    )


def test_a_column_value_is_the_message() -> None:
    (message,) = encode(schema(value=StringType()), [{"value": '{"a": 1.0}'}])
    assert message.body == b'{"a": 1.0}'
    with pytest.raises(MalformedMessage, match="no value"):
        encode(schema(value=StringType()), [{"value": None}])


def test_a_column_can_name_the_stream() -> None:
    kinds = schema(stream=StringType(), n=LongType())
    chosen = write_options({}, "stream write")
    batch = pa.RecordBatch.from_pylist([{"stream": "a", "n": 1}, {"stream": "b", "n": 2}])
    found = [*RowEncoder(chosen, kinds, JSON).messages([batch])]
    assert [(one.stream, one.body) for one in found] == [("a", b'{"n":1}'), ("b", b'{"n":2}')]
    with pytest.raises(InvalidOption, match="name the stream"):
        RowEncoder(chosen, schema(n=LongType()), JSON)


def test_rows_as_changes() -> None:
    kinds = schema(id=LongType(), total=LongType(), op=StringType())
    rows: list[dict[str, Any]] = [
        {"id": 7, "total": 1, "op": "insert"},
        {"id": 7, "total": None, "op": "delete"},
    ]
    changes = [
        json.loads(one.body) for one in encode(kinds, rows, keyColumn="id", operationColumn="op")
    ]
    assert changes == [
        {
            "type": "orders",
            "key": "7",
            "headers": {"operation": "insert"},
            "value": {"id": 7, "total": 1},
        },
        {"type": "orders", "key": "7", "headers": {"operation": "delete"}},
    ]
    with pytest.raises(MalformedMessage, match="a change needs"):
        encode(kinds, [{"id": 7, "total": 1, "op": "drop"}], keyColumn="id", operationColumn="op")


def test_columns_that_are_not_there() -> None:
    with pytest.raises(InvalidOption, match="no column 'id'"):
        encode(schema(n=LongType()), [], messageIdColumn="id")


def bodies(sizes: list[tuple[str, int]]) -> list[Message]:
    return [
        Message(stream, json.dumps(f"{n}-" + "x" * size).encode())
        for n, (stream, size) in enumerate(sizes)
    ]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30)), max_size=60),
    st.integers(1, 9),
)
def test_a_cut_keeps_order_and_depends_on_the_rows_alone(
    sizes: list[tuple[str, int]], rows_max: int
) -> None:
    messages = bodies(sizes)
    appends = [*cut(iter(messages), json=True, rows_max=rows_max)]
    assert appends == [*cut(messages, json=True, rows_max=rows_max)]
    for stream in "ab":
        mine = [append for append in appends if append.stream == stream]
        assert [append.seq for append in mine] == [*range(len(mine))]
        sent = [value for append in mine for value in map(json.loads, append.messages)]
        assert sent == [json.loads(one.body) for one in messages if one.stream == stream]
        assert all(len(append.messages) == rows_max for append in mine[:-1])


def test_large_rows_go_in_smaller_requests() -> None:
    large = REQUEST_BYTES_MAX // 2 + 1
    appends = [*cut(bodies([("a", large)] * 3 + [("a", 1)]), json=True, rows_max=10)]
    assert [len(append.messages) for append in appends] == [1, 1, 2]


def test_bytes_and_ids_go_one_by_one() -> None:
    messages = [Message("a", b"1", "x"), Message("a", b"2", "y")]
    assert [one.messages for one in cut(messages, json=True, rows_max=10)] == [[b"1"], [b"2"]]
    assert [one.messages for one in cut(messages, json=False, rows_max=10)] == [[b"1"], [b"2"]]
