"""Texts to JSON, keys, positions: rules without IO."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core import json_mode
from headwater.postgres.errors import without_secret
from headwater.postgres.position import (
    CHANGES,
    SNAPSHOT,
    LastRecord,
    Position,
    format_lsn,
    parse_lsn,
    read_record,
)
from headwater.postgres.values import JSON_DEPTH_MAX, SCALARS, TypeInfo, converter, key_text

TEXT, TEXT_ARRAY, DOMAIN, JSON, FLOAT = 25, 1009, 90_000, 114, 701

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
elements = st.one_of(st.none(), texts)
arrays: st.SearchStrategy[list[Any]] = st.lists(elements, max_size=4) | st.lists(
    st.lists(elements, min_size=2, max_size=2), min_size=1, max_size=3
)
lsns = st.integers(0, 2**64 - 1)
positions = st.builds(
    Position, lsns, st.sampled_from([SNAPSHOT, CHANGES]), st.integers(0, 2**63 - 1)
)


def array_text(value: Any) -> str:
    """An array as PostgreSQL writes it, with every text quoted, which it accepts as well."""
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return "{" + ",".join(map(array_text, value)) + "}"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@given(arrays)
def test_arrays_are_read_back(value: list[Any]) -> None:
    convert = converter(TEXT_ARRAY, {TEXT_ARRAY: TypeInfo(element=TEXT)})
    assert convert(array_text(value)) == value


@given(st.text(max_size=30))
def test_what_is_no_array_stays_a_text(text: str) -> None:
    convert = converter(TEXT_ARRAY, {TEXT_ARRAY: TypeInfo(element=TEXT)})
    assert isinstance(convert(text), str | list)


def test_elements_have_the_delimiter_of_their_type() -> None:
    convert = converter(1020, {1020: TypeInfo(element=603, delimiter=";")})
    assert convert("{(1,1),(0,0);(2,2),(0,0)}") == ["(1,1),(0,0)", "(2,2),(0,0)"]


def test_a_domain_is_what_it_is_made_of() -> None:
    types = {DOMAIN: TypeInfo(base=DOMAIN + 1), DOMAIN + 1: TypeInfo(base=23)}
    assert converter(DOMAIN, types)("7") == 7
    assert converter(DOMAIN, {DOMAIN: TypeInfo(base=DOMAIN)})("7") == "7"


@given(st.floats())
def test_every_float_makes_valid_json(value: float) -> None:
    encoded = msgspec.json.encode(SCALARS[FLOAT](repr(value)))
    assert msgspec.json.decode(encoded) == value or isinstance(msgspec.json.decode(encoded), str)


@pytest.mark.parametrize(
    "text",
    [
        '"\\ud800"',
        "[" * (JSON_DEPTH_MAX + 1) + "]" * (JSON_DEPTH_MAX + 1),
        "[" * 100_000 + "]" * 100_000,
        '{"a":' * 5000 + "1" + "}" * 5000,
    ],
    ids=["surrogate", "deep", "very deep", "deep object"],
)
def test_json_that_the_server_might_refuse_becomes_a_text(text: str) -> None:
    assert SCALARS[JSON](text) == text


@pytest.mark.parametrize("text", ["[" * JSON_DEPTH_MAX + "]" * JSON_DEPTH_MAX, "[[]," * 3 + "1]]]"])
def test_other_json_is_embedded(text: str) -> None:
    value = SCALARS[JSON](text)
    assert bytes(value) == text.encode()
    json_mode.encode(msgspec.json.encode([{"value": {"j": value}}]))


@given(st.lists(st.lists(elements, min_size=2, max_size=2), min_size=2, max_size=2))
def test_keys_of_several_columns_are_never_confused(rows: list[list[str | None]]) -> None:
    one, other = rows
    assert (key_text(one) == key_text(other)) == (one == other)


@given(texts, texts)
def test_keys_of_one_column_are_never_confused_and_never_empty(one: str, other: str) -> None:
    assert (key_text([one]) == key_text([other])) == (one == other)
    assert key_text([one])


@given(positions, positions)
def test_tokens_sort_bytewise_as_positions_do(one: Position, other: Position) -> None:
    assert (one < other) == (one.token.encode() < other.token.encode())


@given(lsns, lsns)
def test_lsns_are_read_back_and_sort(one: int, other: int) -> None:
    assert parse_lsn(format_lsn(one)) == one
    assert (one < other) == (format_lsn(one) < format_lsn(other))


@pytest.mark.parametrize(
    "message",
    [
        b"{}",
        b"[]",
        b'"text"',
        b"7",
        b"{",
        b'{"headers": {"operation": "insert"}}',
        b'{"headers": {"lsn": "x", "seq": 0}}',
        b'{"headers": {"lsn": "0/1", "seq": -1}}',
        b'{"headers": {"lsn": "0/1", "seq": "0"}}',
    ],
)
def test_messages_of_others_have_no_position(message: bytes) -> None:
    assert read_record(message) is None


def test_records_tell_their_position() -> None:
    change = b'{"type":"t","headers":{"lsn":"00000001/000000A0","seq":3}}'
    row = b'{"type":"t","headers":{"lsn":"0/A0","seq":3,"snapshot":"s"}}'
    end = b'{"headers":{"lsn":"0/A0","seq":4,"snapshot":"s","control":"snapshot-end"}}'
    assert read_record(change) == LastRecord(Position((1 << 32) + 0xA0, CHANGES, 3))
    assert read_record(row) == LastRecord(Position(0xA0, SNAPSHOT, 3), "s")
    assert read_record(end) == LastRecord(Position(0xA0, SNAPSHOT, 4))


@given(st.text(min_size=1))
def test_secrets_do_not_survive(secret: str) -> None:
    assert without_secret(f"a {secret} b", [secret, ""]).count("***") >= 1
