"""Which records are valid, said once: the core, the server's append and the client agree."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headwater.client import InvalidMessage, MaterializedState
from headwater.core.errors import InvalidRecord
from headwater.core.live.records import check_records, read_records
from headwater.core.state_protocol import NotARecord, is_before, read_record


def change(operation: Any, **members: Any) -> dict[str, Any]:
    return {"type": "user", "key": "1", "headers": {"operation": operation}, **members}


VALID = [
    change("insert", value={"name": "Ada"}),
    change("insert", value=None),
    change("update", value=None, old_value=None),
    change("upsert", value="text"),
    change("delete"),
    change("delete", value=None),
    change("delete", value={"name": "Ada"}),
    {"headers": {"control": "reset"}},
    {"headers": {"control": "snapshot-start", "offset": "0_1"}},
    {"headers": {"control": "snapshot-end", "operation": None}, "more": 1},
    change("insert", value=1, headers={"operation": "insert", "control": None, "txid": 7}),
]
INVALID: list[Any] = [
    change("insert"),
    change("update", old_value=1),
    change("merge", value=1),
    change(None, value=1),
    change("insert", value=1, type=""),
    change("insert", value=1, key=""),
    change("insert", value=1, key=5),
    change("delete", type=None),
    change("insert", value=1, headers={"operation": "insert", "control": "reset"}),
    {"headers": {"control": "reset", "operation": "delete"}},
    {"headers": {"control": "stop"}},
    {"headers": {"control": "reset", "offset": 5}},
    {"headers": {}},
    {"headers": None},
    {},
    [],
    "text",
    None,
]


def stored(message: Any) -> bytes:
    return msgspec.json.encode(message) + b","


@pytest.mark.parametrize("message", VALID)
def test_valid_everywhere(message: dict[str, Any]) -> None:
    read_record(msgspec.json.encode(message))
    check_records(stored(message), "coarse")
    assert read_records(stored(message)) != [None]
    MaterializedState().apply_messages([message])


@pytest.mark.parametrize("message", INVALID)
def test_invalid_everywhere(message: Any) -> None:
    with pytest.raises(NotARecord):
        read_record(msgspec.json.encode(message))
    with pytest.raises(InvalidRecord):
        check_records(stored(message), "coarse")
    assert read_records(stored(message)) == [None]
    with pytest.raises(InvalidMessage):
        MaterializedState().apply_messages([message])


def test_nested_too_deeply_is_no_record_and_no_crash() -> None:
    # The parser skips over values without looking into them, to any depth that it can.
    deep = b'{"headers":{"operation":"insert","x":' + b"[" * 9_999 + b"]" * 9_999 + b"}}"
    with pytest.raises(NotARecord):
        read_record(deep)


def test_an_offset_of_another_form_is_never_ahead() -> None:
    assert is_before("0_1", "0_2")
    assert not is_before("0_2", "0_2")
    assert not is_before("0_1", None)
    assert not is_before("0_1", "123456_000")
