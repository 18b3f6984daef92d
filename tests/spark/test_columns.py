"""Fields as columns: whatever comes, and in whatever order, columns say what the JSON says."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_headwater.pipelines import columns as columns_module
from pyspark_headwater.pipelines.columns import (
    INTEGER,
    NAME_CHARS_MAX,
    NOTHING,
    Columns,
    ColumnType,
    Reader,
    arrays_of,
    fits,
    grown,
    kind_of,
    must_rewrite,
    news_in,
    room_for,
    same_shape,
)
from pyspark_headwater.pipelines.layout import plain_name, safe_name
from tests.spark.values import entities, says_the_same
from tests.support.nesting import TOO_DEEP

TAKEN = ("key", "_value")


def taken_in(values: list[str], columns: Columns = ()) -> Columns:
    news = {field: kinds for field, (kinds, _) in news_in(values, columns).items()}
    return grown(columns, news, TAKEN)


def rows_of(values: list[str], columns: Columns) -> list[dict[str, Any]]:
    """What the columns hold, by field."""
    arrays = [array.to_pylist() for array in arrays_of(values, columns)]
    fields = [one.field for one in columns]
    return [dict(zip(fields, row, strict=True)) for row in zip(*arrays, strict=True)]


@given(st.lists(st.lists(entities, max_size=4), max_size=5))
def test_columns_say_what_the_json_says(batches: list[list[Any]]) -> None:
    columns: Columns = ()
    seen: list[Any] = []
    for batch in batches:
        before, texts = columns, [json.dumps(value) for value in seen]
        columns = taken_in([json.dumps(value) for value in batch], before)
        assert [one.name for one in columns][: len(before)] == [one.name for one in before]
        if not must_rewrite(before, columns):
            # Rows that are there already are right as they are.
            rewritten = arrays_of(texts, columns)[: len(before)]
            assert [one.to_pylist() for one in arrays_of(texts, before)] == [
                one.to_pylist() for one in rewritten
            ]
        seen += batch
    types = {one.field: one.type for one in columns}
    texts = [json.dumps(value) for value in seen]
    for value, row in zip(seen, rows_of(texts, columns), strict=bool(columns)):
        fields = value if isinstance(value, dict) else {}
        for field, found in row.items():
            assert says_the_same(fields.get(field), found, types[field])


@given(st.lists(st.lists(entities, max_size=6), max_size=4), st.lists(entities, max_size=4))
def test_a_quick_look_finds_what_a_close_one_does(
    batches: list[list[Any]], known: list[Any]
) -> None:
    """Whatever the columns expect: what fits is read, and what does not is null and news."""
    columns = taken_in([json.dumps(value) for value in known])
    reader = Reader(columns)
    for batch in batches:
        texts = [json.dumps(value) for value in batch]
        arrays = [array.to_pylist() for array in reader.arrays(texts)]
        for row, value in enumerate(batch):
            fields = value if isinstance(value, dict) else {}
            for one, array in zip(columns, arrays, strict=True):
                kind = kind_of(json.dumps(fields.get(one.field)).encode())
                expected = fields.get(one.field) if fits(kind, one.type) else None
                assert says_the_same(expected, array[row], one.type)
    every = [json.dumps(value) for batch in batches for value in batch]
    after = grown(columns, room_for(reader.news, columns), TAKEN)
    assert same_shape(after, taken_in(every, columns))
    # With room for the news there are none that would change a column.
    again = news_in(every, after)
    assert same_shape(grown(after, room_for(again, after), TAKEN), after)


def test_what_is_expected_is_learnt() -> None:
    reader = Reader(taken_in(['{"a": "x", "n": 1}']))
    rows = ['{"a": {"b": [1]}, "c": null}', '{"a": "y", "n": 2, "c": null}', '{"n": 3, "c": null}']
    for _ in range(2):
        found = [array.to_pylist() for array in reader.arrays(rows)]
        assert found == [['{"b": [1]}', "y", None], [None, 2, 3]]
    assert reader.news == {}
    deep = "[" * TOO_DEEP + "]" * TOO_DEEP
    assert [one.to_pylist() for one in reader.arrays([f'{{"a": {deep}}}'])] == [[None], [None]]


@given(st.lists(st.sets(st.text(max_size=3), max_size=6), max_size=4))
def test_names_are_those_that_every_reader_takes(batches: list[set[str]]) -> None:
    columns: Columns = ()
    for fields in batches:
        columns = grown(columns, dict.fromkeys(fields, INTEGER), TAKEN)
    names = [*TAKEN, *(one.name for one in columns)]
    for fold in (str.upper, str.lower, str.casefold):
        assert len({fold(name) for name in names}) == len(names)
    assert all(re.fullmatch(r"\w+", name) for name in names)
    assert len({one.field for one in columns}) == len(columns)


@pytest.mark.parametrize(
    "raws, kind",
    [
        (["1", "-9007199254740993", "9223372036854775807"], "long"),
        (["1", "2.5", "-0", "1e3"], "double"),
        (["1.5", "9007199254740993"], "string"),
        (["9223372036854775808"], "string"),
        (["1" * 5000], "string"),
        (["1e999"], "string"),
        (["true", "false"], "boolean"),
        (["true", "1"], "string"),
        (['"x"', "1"], "string"),
        (['{"x": 1}', "[1]"], "string"),
    ],
)
def test_types(raws: list[str], kind: ColumnType) -> None:
    values = [f'{{"f": {raw}}}' for raw in raws]
    (column,) = taken_in(values)
    assert column.type == kind
    found = [row["f"] for row in rows_of(values, (column,))]
    if kind == "string":
        assert found == [raw.strip('"') for raw in raws]
    else:
        assert found == [json.loads(raw) for raw in raws]


def test_null_is_no_reason_for_a_column() -> None:
    assert kind_of(b"null") == NOTHING
    assert taken_in(['{"a": null}', "null", "5", "[1]", '"text"', "{}"]) == ()


def test_half_a_character_stays_as_it_was_sent() -> None:
    value = r'{"f": "\ud800\u0041"}'
    assert rows_of([value], taken_in([value])) in ([{"f": r'"\ud800\u0041"'}], [])


def test_names_that_collide() -> None:
    columns = taken_in(['{"key": 1, "Id": 1, "id": 1, "a b": 1, "a.b": 1, "": 1, "straße": 1}'])
    assert {one.field: one.name for one in columns} == {
        "": "_",
        "Id": "Id",
        "id": "id_2",
        "key": "key_2",
        "a b": "a_b",
        "a.b": "a_b_2",
        "straße": "straße",
    }
    again = taken_in(['{"ID": 1, "STRASSE": 1}'], columns)
    assert [one.name for one in again[len(columns) :]] == ["ID_3", "STRASSE_2"]


def test_what_is_too_much_stays_in_the_json(monkeypatch: pytest.MonkeyPatch) -> None:
    assert taken_in([json.dumps({"x" * (NAME_CHARS_MAX + 1): 1})]) == ()
    monkeypatch.setattr(columns_module, "COLUMNS_MAX", 2)
    columns = taken_in(['{"c": 1, "b": 1, "a": 1}'])
    assert [one.name for one in columns] == ["a", "b"]
    # A column that is there can still change its type.
    assert [one.type for one in taken_in(['{"d": 1, "a": 0.5}'], columns)] == ["double", "long"]


@given(st.text(min_size=1))
def test_names_of_tables(name: str) -> None:
    safe = safe_name(name)
    assert re.fullmatch(r"[A-Za-z0-9~-][A-Za-z0-9._~-]*", safe)
    assert plain_name(safe) == name
