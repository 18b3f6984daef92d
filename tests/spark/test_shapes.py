"""Messages into typed rows."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_headwater.errors import InvalidOption, MalformedMessage
from pyspark_headwater.shapes import messages_as_rows, messages_parsed

SCHEMA = StructType([StructField("n", LongType()), StructField("s", StringType())])
WITH_CORRUPT = StructType([*SCHEMA.fields, StructField("_corrupt", StringType())])


def rows(values: list[str]) -> pa.RecordBatch:
    """Messages as the server sends them."""
    count = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "offset": pa.array([f"offset-{n // 2}" for n in range(count)], pa.string()),
            "index": pa.array([n % 2 for n in range(count)], pa.int32()),
            "timestamp": pa.array([n * 1000 for n in range(count)], pa.timestamp("us", tz="UTC")),
            "value": pa.array(values, pa.string()),
        }
    )


def parsed(values: list[str], schema: StructType = SCHEMA, mode: Any = "FAILFAST") -> list[Any]:
    batch: pa.RecordBatch = messages_parsed(schema, mode)("s", rows(values))
    return [*batch.to_pylist()]


def test_fields_by_name() -> None:
    assert parsed(['{"n":1,"s":"a","more":[1]}', "{}", '{"s":null,\n "n":2}']) == [
        {"n": 1, "s": "a"},
        {"n": None, "s": None},
        {"n": 2, "s": None},
    ]


def test_nested_and_typed() -> None:
    inner = StructType([StructField("x", DoubleType())])
    schema = StructType(
        [
            StructField("at", TimestampType()),
            StructField("in", inner),
            StructField("many", ArrayType(LongType())),
        ]
    )
    (row,) = parsed(['{"at":"2026-01-02T03:04:05Z","in":{"x":1.5},"many":[1,2]}'], schema)
    assert row["at"].isoformat() == "2026-01-02T03:04:05+00:00"
    assert (row["in"], row["many"]) == ({"x": 1.5}, [1, 2])


def test_places() -> None:
    places = StructType(
        [
            StructField("_offset", StringType()),
            StructField("n", LongType()),
            StructField("_stream", StringType()),
        ]
    )
    assert parsed(['{"n":1}', '{"n":2}', '{"n":3}'], places)[2] == {
        "_offset": "offset-1",
        "n": 3,
        "_stream": "s",
    }


@pytest.mark.parametrize(
    "bad", ['{"n":"x"}', "7", '"text"', "[1]", '{"n":1.5}', "null", '{"n":', "{", ""]
)
def test_what_does_not_fit_fails_or_is_kept_apart(bad: str) -> None:
    values = ['{"n":1}', '{"n":2}', bad, '{"n":4}']
    with pytest.raises(MalformedMessage, match="offset-1, index 0"):
        parsed(values)
    kept = parsed(values, WITH_CORRUPT, "PERMISSIVE")
    assert [row["n"] for row in kept] == [1, 2, None, 4]
    assert [row["_corrupt"] for row in kept] == [None, None, bad, None]
    assert [row["n"] for row in parsed(values, SCHEMA, "DROPMALFORMED")] == [1, 2, 4]


def test_permissive_needs_a_place_for_what_does_not_fit() -> None:
    with pytest.raises(InvalidOption, match="_corrupt"):
        messages_parsed(SCHEMA, "PERMISSIVE")
    with pytest.raises(InvalidOption, match="_index is a int"):
        messages_parsed(StructType([StructField("_index", LongType())]), "FAILFAST")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
known = {"n": st.none() | st.integers(-(2**63), 2**63 - 1), "s": st.none() | st.text()}
fields = st.fixed_dictionaries(known, optional={"more": anything})
others = anything.filter(lambda value: not isinstance(value, dict))


@given(st.lists(fields | others, min_size=1, max_size=40))
def test_every_message_is_a_row_and_nothing_is_lost(messages: list[Any]) -> None:
    values = [json.dumps(message) for message in messages]
    for message, value, row in zip(
        messages, values, parsed(values, WITH_CORRUPT, "PERMISSIVE"), strict=True
    ):
        if isinstance(message, dict):
            assert row == {"n": message["n"], "s": message["s"], "_corrupt": None}
        else:
            assert row == {"n": None, "s": None, "_corrupt": value}


def test_bytes_that_are_no_text_do_not_fit() -> None:
    batch = rows(["", ""])
    batch = batch.set_column(3, "value", pa.array([b'{"s":"\xff"}', b'{"s":"a"}'], pa.binary()))
    found = messages_parsed(WITH_CORRUPT, "PERMISSIVE")("s", batch).to_pylist()
    assert [(row["s"], row["_corrupt"]) for row in found] == [
        (None, r'{"s":"\xff"}'),
        ("a", None),
    ]


def test_bytes_where_text_was_promised() -> None:
    schema = StructType(
        [StructField("stream", StringType(), False), StructField("value", StringType(), False)]
    )
    batch = rows(["x"]).set_column(3, "value", pa.array([b"\xff"], pa.binary()))
    with pytest.raises(MalformedMessage, match="holds bytes"):
        messages_as_rows(schema)("s", batch)
