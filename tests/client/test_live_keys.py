"""What a query waits on, and that its values enter keys as they do on the server."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client.live_keys import (
    PROJECTED_MAX,
    Encoded,
    Keyset,
    encode_value,
    key_id,
    keyset,
    table_key,
)
from headwater.core import json_mode
from headwater.core.live import keys as rules
from headwater.core.live.encodings import ENCODINGS, Encoding, encode
from headwater.core.live.records import read_records
from headwater.core.live.templates import Template, TemplateRecord, parse_spec
from headwater.core.live.touches import Change, Pending, touch_templates
from tests.support.properties import THOROUGH

TABLE = Keyset("todos", (table_key("todos"),))
WHERE = {"tenant": "t1", "status": "open"}
TEMPLATE = rules.template_id("todos", ["status", "tenant"])
VALUES = [b"open", b"t1"]


def hexed(*found: int) -> tuple[str, ...]:
    return tuple(map(rules.to_hex, found))


# ── Which keys ───────────────────────────────────────────────────────────────────────────────


def test_any_other_query_waits_on_what_its_rows_hold() -> None:
    assert keyset("todos", WHERE).keys == hexed(rules.watch_key(TEMPLATE, VALUES))


def test_a_query_that_depends_on_which_rows_match_waits_on_that() -> None:
    membership = hexed(rules.membership_key(TEMPLATE, VALUES))
    assert keyset("todos", WHERE, membership_only=True).keys == membership
    assert keyset("todos", WHERE, project=[]).keys == membership


def test_a_query_that_depends_on_some_fields_waits_on_those_too() -> None:
    expected = hexed(
        rules.membership_key(TEMPLATE, VALUES),
        rules.projected_key(TEMPLATE, "title", VALUES),
        rules.projected_key(TEMPLATE, "due", VALUES),
    )
    assert keyset("todos", WHERE, project=["title", "due", "title"]).keys == expected


def test_so_many_fields_that_all_are_cheaper() -> None:
    fields = [f"f{number}" for number in range(PROJECTED_MAX + 1)]
    assert keyset("todos", WHERE, project=fields) == keyset("todos", WHERE)
    assert len(keyset("todos", WHERE, project=fields[1:]).keys) == 1 + PROJECTED_MAX


NOT_FINE = {
    "no where": None,
    "an empty where": {},
    "four fields": {"a": 1, "b": 2, "c": 3, "d": 4},
    "null": {"a": None},
    "a float": {"a": 1.5},
    "a decimal": {"a": Decimal("1.5")},
    "several values": {"a": ["x", "y"]},
    "an integer too large": {"a": 2**63},
    "no JSON": {"a": "x", "b": object()},
    "no Unicode": {"a": "\ud800"},
    "no datetime": {"a": Encoded("soon", "datetime")},
    "a long name": {"a" * 257: "x"},
    "no name": {"": "x"},
}


@pytest.mark.parametrize("where", NOT_FINE.values(), ids=NOT_FINE.keys())
def test_what_has_no_fine_keys_waits_on_the_table(where: dict[str, Any] | None) -> None:
    assert keyset("todos", where) == TABLE
    assert keyset("todos", where, project=["title"]) == TABLE


def test_a_coarse_wait_says_so() -> None:
    assert TABLE.wire() == {"keys": TABLE.keys, "interestMode": "coarse"}
    assert keyset("todos", WHERE).coarse() == TABLE


def test_a_fine_wait_names_and_declares_its_template() -> None:
    found = keyset("todos", {"n": 7, "at": date(2026, 1, 1), "ok": True}).wire()
    (declared,) = found["declareTemplates"]
    spec = parse_spec(declared["entity"], declared["fields"])
    assert spec is not None
    assert spec.encodings == ("datetime", "int64", "bool")
    assert found["templateIdsUsed"] == [rules.to_hex(spec.id)]


def test_the_order_of_fields_does_not_matter() -> None:
    assert keyset("todos", dict(reversed(WHERE.items()))) == keyset("todos", WHERE)


def test_mistakes_are_told() -> None:
    with pytest.raises(ValueError, match="not both"):
        keyset("todos", WHERE, project=["title"], membership_only=True)
    with pytest.raises(ValueError, match="where does not: nobody"):
        keyset("todos", WHERE, encodings={"nobody": "string"})
    with pytest.raises(ValueError, match="no encoding: 'text'"):
        keyset("todos", WHERE, encodings={"tenant": "text"})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="no encoding: 'text'"):
        keyset("todos", {"tenant": Encoded("t1", "text")})  # type: ignore[arg-type]


def test_short_ids() -> None:
    assert key_id("feadeb84d447fd63") == 0xD447FD63


# ── Values ───────────────────────────────────────────────────────────────────────────────────


class Colour(Enum):
    RED = "red"


class Size(IntEnum):
    LARGE = 3


@pytest.mark.parametrize(
    "value, expected",
    [
        ("x", ("string", b"x")),
        ("", ("string", b"")),
        (7, ("int64", b"7")),
        (-(2**63), ("int64", b"-9223372036854775808")),
        (True, ("bool", b"1")),
        (False, ("bool", b"0")),
        (datetime(2026, 3, 23, 8, 30, tzinfo=UTC), ("datetime", b"2026-03-23T08:30:00.000Z")),
        (
            datetime(2026, 3, 23, 8, 30, 0, 1999, tzinfo=timezone(timedelta(hours=2))),
            ("datetime", b"2026-03-23T06:30:00.001Z"),
        ),
        (datetime(2026, 3, 23, 8, 30), ("datetime", b"2026-03-23T08:30:00.000Z")),  # noqa: DTZ001
        (date(2026, 3, 23), ("datetime", b"2026-03-23T00:00:00.000Z")),
        (b"hi", ("bytes", b"aGk=")),
        (UUID(int=1), ("string", b"00000000-0000-0000-0000-000000000001")),
        (Colour.RED, ("string", b"red")),
        (Size.LARGE, ("int64", b"3")),
        (Encoded("7", "int64"), ("int64", b"7")),
        (Encoded(7, "string"), ("string", b"7")),
        (Encoded("aGk=", "bytes"), ("bytes", b"aGk=")),
    ],
)
def test_values_by_their_type(value: Any, expected: tuple[Encoding, bytes]) -> None:
    assert encode_value(value) == expected


zones = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
values = st.one_of(
    st.text(),
    st.integers(),
    st.booleans(),
    st.datetimes(),
    st.datetimes(timezones=zones),
    st.dates(),
    st.binary(),
    st.uuids(),
)


@THOROUGH
@given(values)
def test_the_type_of_a_value_never_disagrees_with_its_json(value: object) -> None:
    found = encode_value(value)
    if found is None:
        assert isinstance(value, int | datetime), "only what is out of range has no encoding"
    else:
        assert encode(msgspec.json.encode(value), found[0]) == found[1]


@THOROUGH
@given(values | st.none() | st.floats() | st.lists(st.integers()), st.sampled_from(ENCODINGS))
def test_a_given_encoding_is_the_servers(value: object, encoding: Encoding) -> None:
    """Checked from the far end: the value in a record touches the very keys of the query."""
    try:
        record = {"id": "1", "f": msgspec.json.decode(msgspec.json.encode(value))}
        row = {"type": "t", "key": "1", "value": record, "headers": {"operation": "insert"}}
        (parsed,) = read_records(json_mode.encode(msgspec.json.encode(row))[0])
    except OverflowError:
        return
    where = {"f": Encoded(value, encoding)}
    watch, membership = keyset("t", where), keyset("t", where, membership_only=True)
    spec = parse_spec("t", [{"name": "f", "encoding": encoding}])
    assert parsed is not None
    assert spec is not None
    template, pending = Template(TemplateRecord(spec, 0, 1), 0), Pending()
    touch_templates(Change(parsed), [template], "coarse", pending, budget=100)
    if template.key in pending:
        assert watch.template is None
    else:
        assert {*watch.keys, *membership.keys} == {*hexed(*pending)}
