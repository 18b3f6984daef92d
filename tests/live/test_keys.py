"""Keys and encodings: vectors checked with several implementations, and rules for every value."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.live.encodings import ENCODINGS, Encoding, encode
from headwater.core.live.keys import (
    KEY_ID_MASK,
    key_id,
    membership_key,
    parse_key,
    projected_key,
    sorted_fields,
    table_key,
    template_id,
    template_key,
    to_hex,
    watch_key,
)

VECTORS: dict[str, list[dict[str, Any]]] = {
    name: cases
    for name, cases in json.loads((Path(__file__).parent / "live_keys.json").read_text()).items()
    if isinstance(cases, list)
}


def compute(name: str, case: dict[str, Any]) -> int:
    template = int(case.get("templateId", "0"), 16)
    arguments = [text.encode() for text in case.get("args", ())]
    match name:
        case "table":
            return table_key(case["entity"])
        case "templateId":
            return template_id(case["entity"], case["fields"])
        case "templateKey":
            return template_key(template)
        case "watch":
            return watch_key(template, arguments)
        case "membership":
            return membership_key(template, arguments)
        case "projectedField":
            return projected_key(template, case["field"], arguments)
    raise AssertionError(name)


CASES = [(n, c) for n, cases in VECTORS.items() for c in cases if n != "keyIdFallback"]


@pytest.mark.parametrize("name, case", CASES)
def test_vectors(name: str, case: dict[str, Any]) -> None:
    key = compute(name, case)
    assert to_hex(key) == case.get("key", case.get("id"))
    if "keyId" in case:
        assert key & KEY_ID_MASK == key_id(to_hex(key)) == case["keyId"]


@pytest.mark.parametrize("case", VECTORS["keyIdFallback"])
def test_vectors_of_other_texts(case: dict[str, Any]) -> None:
    assert key_id(case["text"]) == case["keyId"]


def test_the_order_of_fields_does_not_matter_and_is_that_of_utf16() -> None:
    assert template_id("t", ["b", "a"]) == template_id("t", ["a", "b"])
    # A surrogate pair sorts before the last characters of the first plane.
    pair, late = "\U0001f600", "\uff5e"
    assert sorted_fields([late, pair, "z"]) == ["z", pair, late]


@given(st.integers(0, 2**64 - 1))
def test_hex_round_trip(key: int) -> None:
    assert parse_key(f" {to_hex(key).upper()} ") == key


@pytest.mark.parametrize("text", ["", "abc", "0" * 15, "0" * 17, "g" * 16, "0x" + "0" * 14])
def test_what_is_no_key(text: str) -> None:
    assert parse_key(text) is None


@pytest.mark.parametrize(
    "raw, encoding, text",
    [
        ('"open"', "string", "open"),
        ('""', "string", ""),
        ('"\\u00e9"', "string", "é"),
        ("1.50", "string", "1.50"),
        ("true", "string", "true"),
        ("null", "string", None),
        ('{"a":1}', "string", None),
        ("[1]", "string", None),
        ("42", "int64", "42"),
        ("-0", "int64", "0"),
        ("42.000", "int64", "42"),
        ("4.2e1", "int64", "42"),
        ("42e-1", "int64", None),
        ("9007199254740993", "int64", "9007199254740993"),
        ("9007199254740993.0", "int64", "9007199254740993"),
        ("9223372036854775807", "int64", "9223372036854775807"),
        ("9223372036854775808", "int64", None),
        ("-9223372036854775808", "int64", "-9223372036854775808"),
        ("-9223372036854775809", "int64", None),
        ("1e999999999", "int64", None),
        ("1e-999999999", "int64", None),
        ('"42"', "int64", "42"),
        ('"007"', "int64", "7"),
        ('"4 2"', "int64", None),
        ('"4.0"', "int64", None),
        ("true", "int64", None),
        ("true", "bool", "1"),
        ("false", "bool", "0"),
        ("1", "bool", None),
        ('"true"', "bool", None),
        ('"2026-03-23T10:30:00Z"', "datetime", "2026-03-23T10:30:00.000Z"),
        ('"2026-03-23T10:30:00.98765+02:00"', "datetime", "2026-03-23T08:30:00.987Z"),
        ('"2026-03-23T10:30:00"', "datetime", "2026-03-23T10:30:00.000Z"),
        ('"2026-03-23 10:30:00.5-0530"', "datetime", "2026-03-23T16:00:00.500Z"),
        ('"2026-03-23"', "datetime", "2026-03-23T00:00:00.000Z"),
        ('"0099-01-01T00:00:00Z"', "datetime", "0099-01-01T00:00:00.000Z"),
        ('"2026-02-30"', "datetime", None),
        ('"2026-03-23T25:00:00Z"', "datetime", None),
        ('"2026-03-23T10:30:00+24:00"', "datetime", None),
        ('"0001-01-01T00:00:00+01:00"', "datetime", None),
        ("1774261800", "datetime", None),
        ('"AAEC/w=="', "bytes", "AAEC/w=="),
        ("12", "bytes", None),
    ],
)
def test_encodings(raw: str, encoding: Encoding, text: str | None) -> None:
    assert encode(raw.encode(), encoding) == (None if text is None else text.encode())


@given(st.integers(-(2**70), 2**70))
def test_every_whole_number_is_exact_or_refused(number: int) -> None:
    fits = -(2**63) <= number < 2**63
    assert encode(str(number).encode(), "int64") == (str(number).encode() if fits else None)


offsets = st.integers(-23 * 60, 23 * 60).map(lambda m: timezone(timedelta(minutes=m)))
moments = st.tuples(st.integers(-60_000_000_000_000_000, 250_000_000_000_000_000), offsets).map(
    lambda drawn: (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=drawn[0])).astimezone(
        drawn[1]
    )
)


@given(moments)
def test_the_same_moment_has_one_text_whatever_its_zone(moment: datetime) -> None:
    here = encode(msgspec.json.encode(moment), "datetime")
    assert here is not None
    assert here == encode(msgspec.json.encode(moment.astimezone(UTC)), "datetime")
    assert len(here) == 24


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=5,
)


@given(json_values, st.sampled_from(ENCODINGS))
def test_no_value_is_too_strange(value: Any, encoding: Encoding) -> None:
    encoded = encode(json.dumps(value).encode(), encoding)
    assert encoded is None or isinstance(encoded, bytes)
