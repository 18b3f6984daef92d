"""What each kind of change touches, row by row of the table in `core.live.touches`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.core.errors import InvalidRecord, MissingBefore
from headwater.core.live.keys import membership_key, projected_key, watch_key
from headwater.core.live.records import MissingBeforePolicy, check_records, read_records
from headwater.core.live.templates import Template, TemplateRecord, TemplateSpec
from headwater.core.live.touches import Change, Pending, touch_templates

SPEC = TemplateSpec("todos", ("status", "tenant"), ("string", "int64"))
TEMPLATE = Template(TemplateRecord(SPEC, 0, 1), active_from=0)
FALLBACK = None


def row(status: object = "open", tenant: object = 1, **others: object) -> dict[str, object]:
    return {"status": status, "tenant": tenant, **others}


def keys_of(record: dict[str, Any], policy: MissingBeforePolicy = "coarse") -> set[int] | None:
    return keys_of_text(json.dumps(record), policy)


def keys_of_text(text: str, policy: MissingBeforePolicy = "coarse") -> set[int] | None:
    (parsed,) = read_records(text.encode() + b",")
    assert parsed is not None
    pending: Pending = {}
    touched = touch_templates(Change(parsed), [TEMPLATE], policy, pending, budget=100)
    assert touched >= len(pending)
    return FALLBACK if TEMPLATE.key in pending else set(pending)


def change(operation: str, **members: object) -> dict[str, Any]:
    return {"type": "todos", "key": "1", "headers": {"operation": operation}, **members}


def arguments(status: str = "open", tenant: int = 1) -> list[bytes]:
    return [status.encode(), str(tenant).encode()]


def watch(*values: Any) -> int:
    return watch_key(SPEC.id, arguments(*values))


def member(*values: Any) -> int:
    return membership_key(SPEC.id, arguments(*values))


def field(name: str, *values: Any) -> int:
    return projected_key(SPEC.id, name, arguments(*values))


@pytest.mark.parametrize(
    "record, expected",
    [
        (change("insert", value=row()), {watch(), member()}),
        (change("insert", value=row(None)), FALLBACK),
        (change("insert", value={"status": "open"}), FALLBACK),
        (change("insert", value=row(tenant=1.5)), FALLBACK),
        (change("insert", value="text"), FALLBACK),
        (change("insert", value=None), FALLBACK),
        (change("update", value=None, old_value=row()), FALLBACK),
        (change("delete", value=None, old_value=row()), {watch(), member()}),
        (change("delete", old_value=row()), {watch(), member()}),
        (change("delete", old_value=row(None)), FALLBACK),
        (change("delete"), FALLBACK),
        (change("delete", value=row()), FALLBACK),
        (change("delete", old_value={"status": "open"}), FALLBACK),
        (
            change("update", value=row("done"), old_value=row()),
            {watch(), member(), watch("done"), member("done")},
        ),
        (change("update", value=row(None), old_value=row()), FALLBACK),
        (change("update", value=row(), old_value=row(None)), FALLBACK),
        (change("update", value=row()), FALLBACK),
        (change("update", value=row(), old_value=None), FALLBACK),
        (change("update", value=row(), old_value="text"), FALLBACK),
        (change("update", value=row(), old_value=row()), {watch()}),
        (
            change("update", value=row(title="b"), old_value=row(title="a")),
            {watch(), field("title")},
        ),
        (change("update", value=row(title="b"), old_value=row()), {watch(), field("title")}),
        (change("update", value=row(), old_value=row(title="a")), {watch(), field("title")}),
        (
            change("update", value=row(tags=[1, 2]), old_value=row(tags=[2, 1])),
            {watch(), field("tags")},
        ),
        (
            change("update", value=row(at={"x": 1, "y": 2}), old_value=row(at={"y": 2, "x": 1})),
            {watch()},
        ),
        (
            change("update", value=row(at={"x": 1}), old_value=row(at={"x": True})),
            {watch(), field("at")},
        ),
        (
            change("update", value=row(a=1, b=2, c=3), old_value=row(a=1, b=3, d=4)),
            {watch(), field("b"), field("c"), field("d")},
        ),
        # The same tuple, written differently: who looks for either text wants to know.
        (
            change("update", value=row(tenant=1), old_value=row(tenant="1")),
            {watch(), member(), field("tenant")},
        ),
        (change("upsert", value=row(), old_value=None), {watch(), member()}),
        (change("upsert", value=row()), FALLBACK),
        (change("upsert", value=row(), old_value=row()), {watch()}),
        (
            change("insert", value=row("done"), old_value=row()),
            {watch(), member(), watch("done"), member("done")},
        ),
    ],
)
def test_what_a_change_touches(record: dict[str, Any], expected: set[int] | None) -> None:
    assert keys_of(record) == expected
    assert keys_of(record, "error") == expected


@pytest.mark.parametrize(
    "record, expected",
    [
        (
            change("update", value=row(title="b")),
            {watch(), member(), field("title")},
        ),
        (change("update", value=row(None)), FALLBACK),
        (change("delete"), FALLBACK),
        (change("update", value=row(), old_value=row()), {watch()}),
        (
            change("update", value=row("done"), old_value={"tenant": 1}),
            {watch("done"), member("done")},
        ),
    ],
)
def test_without_the_row_as_it_was_and_skip_before(
    record: dict[str, Any], expected: set[int] | None
) -> None:
    assert keys_of(record, "skipBefore") == expected


def test_numbers_that_floats_cannot_tell_apart_differ() -> None:
    precise, rounded = (
        json.dumps(row(n=0)).replace('"n": 0', f'"n": {digits}')
        for digits in ("0.1000000000000000000001", "0.1")
    )
    text = json.dumps(change("update", value="NEW", old_value="OLD"))
    text = text.replace('"NEW"', precise).replace('"OLD"', rounded)
    assert keys_of_text(text) == {field("n"), watch()}


# ── What is well formed ──────────────────────────────────────────────────────────────────────

GOOD = change("insert", value=row())


@pytest.mark.parametrize(
    "record",
    [
        GOOD,
        change("delete"),
        {**GOOD, "extra": 1, "headers": {"operation": "insert", "txid": "7", "more": {}}},
        {"headers": {"control": "snapshot-start"}},
        {"headers": {"control": "reset"}, "anything": True},
    ],
)
def test_well_formed(record: dict[str, Any]) -> None:
    check_records(json.dumps(record).encode() + b",", "coarse")


@pytest.mark.parametrize(
    "record",
    [
        1,
        "text",
        None,
        [],
        {},
        {"headers": None},
        {"headers": {}},
        {**GOOD, "headers": {"operation": "merge"}},
        {**GOOD, "headers": {"operation": "insert", "control": "reset"}},
        {"headers": {"control": "stop"}},
        {**GOOD, "type": ""},
        {**GOOD, "type": 1},
        {**GOOD, "key": ""},
        {**GOOD, "key": 7},
        change("insert"),
        change("update"),
        change("upsert"),
    ],
)
def test_malformed_and_which_one(record: object) -> None:
    body = json.dumps([GOOD, GOOD, record])[1:-1].encode() + b","
    with pytest.raises(InvalidRecord) as caught:
        check_records(body, "coarse")
    assert caught.value.index == 2


@pytest.mark.parametrize(
    "record", [change("update", value=row()), change("delete"), change("upsert", value=row())]
)
def test_a_missing_before_is_refused_where_asked(record: dict[str, Any]) -> None:
    body = json.dumps([GOOD, record])[1:-1].encode() + b","
    check_records(body, "coarse")
    with pytest.raises(MissingBefore) as caught:
        check_records(body, "error")
    assert caught.value.index == 1


def test_what_was_there_before_the_profile_is_passed_over() -> None:
    deep = b"[" * 2000 + b"]" * 2000
    stored = b'1,{"headers":{}},%b,%b,' % (json.dumps(GOOD).encode(), deep)
    parsed = read_records(stored)
    assert [record is not None for record in parsed] == [False, False, True, False]
