"""Messages into typed rows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headwater.core.arrow import rows_of
from headwater.core.frames import Frame
from headwater.core.offsets import Offset
from headwater.core.stream import Appended
from pyspark_headwater.errors import InvalidOption, MalformedMessage
from pyspark_headwater.shapes import ParsedMessages, messages_as_rows

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
    batch: pa.RecordBatch = ParsedMessages(schema, mode)("s", rows(values))
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
        ParsedMessages(SCHEMA, "PERMISSIVE")
    with pytest.raises(InvalidOption, match="_index is a int"):
        ParsedMessages(StructType([StructField("_index", LongType())]), "FAILFAST")


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
    found = ParsedMessages(WITH_CORRUPT, "PERMISSIVE")("s", batch).to_pylist()
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


# --- In one pass over the bytes of a frame -------------------------------------------------------

OF_FRAMES = StructType(
    [
        StructField("n", LongType()),
        StructField("s", StringType()),
        StructField("_offset", StringType()),
        StructField("_index", IntegerType()),
        StructField("_message_id", StringType()),
    ]
)


def framed(appends: list[list[bytes]]) -> Frame:
    """Appends of messages as a frame."""
    found: list[Appended] = []
    start = number = 0
    for index, messages in enumerate(appends):
        body = b"".join(message + b"," for message in messages)
        one = Appended(7, start, body, number, len(messages), 1_000 + index, message_id=f"m{index}")
        found.append(one)
        start, number = start + len(body), number + len(messages)
    return Frame.of(found, start)


def both_ways(frame: Frame) -> tuple[Any, Any]:
    """Rows made of a frame at once, and rows made of its messages."""
    shape = ParsedMessages(OF_FRAMES, "FAILFAST")
    first = Offset(7, frame.start)
    rows = rows_of(frame, first, json=True, headers=True)
    return shape.whole("s", frame, first), lambda: shape("s", rows)


@pytest.mark.parametrize(
    "appends",
    [
        [[b'{"n":1,"s":"a"}', b'{"n":2}'], [b'{"s":"x"}']],
        [[b'{"n":1}'], [b'{"n":2}']],
        [[b'{"n":1,\n "s":null}', b"{}"]],
    ],
)
def test_a_frame_of_objects_is_parsed_at_once(appends: list[list[bytes]]) -> None:
    whole, one_by_one = both_ways(framed(appends))
    assert whole is not None
    assert whole.equals(one_by_one())


@pytest.mark.parametrize(
    "message",
    [
        b'{"s":"},{"}',
        b'{"other":"},{"}',
        b'{"n":1,"other":[{},{}]}',
        b'{"other":[{"a":"},{"},{"b":[{},{}]}]}',
    ],
)
def test_what_looks_like_the_end_of_a_message_is_seen_through(message: bytes) -> None:
    for messages in ([message], [message, b"{}"], [b"{}", message], [b'{"n":1}', message, b"{}"]):
        whole, one_by_one = both_ways(framed([messages]))
        assert whole is None
        assert one_by_one().num_rows == len(messages)


@pytest.mark.parametrize(
    "messages",
    [
        [b"null"],
        [b"{}", b"null"],
        [b"null", b"{}"],
        [b"{}", b"[{},{},{}]", b"{}"],
        [b"{}", b"1", b"{}"],
        [b'{"n":"text"}'],
        [b"{}", b'"},{"'],
    ],
)
def test_what_does_not_fit_is_left_to_the_careful_way(messages: list[bytes]) -> None:
    whole, _ = both_ways(framed([messages]))
    assert whole is None


def test_an_append_that_was_cut_is_left_to_the_careful_way() -> None:
    frame = framed([[b'{"n":1}', b'{"n":2}']])
    cut = replace(frame, data=frame.data[: len(b'{"n":1},')])
    whole, one_by_one = both_ways(cut)
    assert whole is None
    assert one_by_one().num_rows == 1


_LEAVES = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["},{", "}", "a", '"'])
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("nsx"), inner),
    max_leaves=6,
)


@given(st.lists(st.lists(_VALUES, min_size=1, max_size=4), min_size=1, max_size=4))
def test_both_ways_agree_on_any_messages(appends: list[list[Any]]) -> None:
    encoded = [[msgspec.json.encode(one) for one in messages] for messages in appends]
    whole, one_by_one = both_ways(framed(encoded))
    if whole is not None:
        assert whole.equals(one_by_one())
