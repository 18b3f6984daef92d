"""State Protocol streams, folded into a table."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client.errors import InvalidMessage
from headwater.client.protocol.batch import Batch, Position
from headwater.client.protocol.state import Change, MaterializedState

_ABSENT: Any = object()


def change(operation: str, key: str, value: Any = _ABSENT, type: str = "user") -> dict[str, Any]:
    message = {"type": type, "key": key, "headers": {"operation": operation}}
    return message if value is _ABSENT else {**message, "value": value}


def control(kind: str, **headers: str) -> dict[str, Any]:
    return {"headers": {"control": kind, **headers}}


def batch_of(messages: list[Any], start: str = "0_1", end: str = "0_2") -> Batch:
    return Batch(
        Position(start), end, "application/json", payloads=(msgspec.json.encode(messages),)
    )


def content(state: MaterializedState) -> dict[tuple[str, str], Any]:
    return {(type, key): state.get(type, key) for type, key in state}


@pytest.mark.parametrize("operation", ["insert", "update", "upsert"])
def test_every_operation_but_delete_stores_the_value(operation: str) -> None:
    state = MaterializedState()
    [new] = state.apply_messages([change(operation, "1", "Ada")])
    assert (new.kind, new.value, new.old_value) == ("insert", "Ada", None)
    [again] = state.apply_messages([change(operation, "1", "Eve")])
    assert (again.kind, again.value, again.old_value) == ("update", "Eve", "Ada")
    assert again.headers == {"operation": operation}


def test_delete() -> None:
    state = MaterializedState()
    state.apply_messages([change("insert", "1", "Ada"), change("insert", "2", "Eve")])
    [gone] = state.apply_messages([change("delete", "1")])
    assert (gone.kind, gone.value, gone.old_value) == ("delete", None, "Ada")
    assert state.apply_messages([change("delete", "1", None)]) == []
    assert content(state) == {("user", "2"): "Eve"}


def test_types_do_not_mix() -> None:
    state = MaterializedState()
    state.apply_messages([change("insert", "1", "Ada"), change("insert", "1", 5, type="score")])
    assert state.get("user", "1") == "Ada"
    assert state.of_type("score") == {"1": 5}
    assert state.of_type("none") == {}
    assert state.get("none", "1", "nobody") == "nobody"
    assert ("user", "1") in state
    assert ("user", "2") not in state
    assert len(state) == 2
    state.apply_messages([change("delete", "1", type="score")])
    assert state.types() == ["user"]


def test_a_value_may_be_null() -> None:
    state = MaterializedState()
    state.apply_messages([change("insert", "1", None)])
    assert ("user", "1") in state


def test_a_snapshot_replaces_the_state_when_it_is_complete() -> None:
    state = MaterializedState()
    state.apply_messages([change("insert", "old", 1), change("insert", "same", 1)])
    state.apply_messages([change("insert", "changed", 1)])
    assert state.apply_messages([control("snapshot-start")]) == []
    inside = [change("insert", "same", 1), change("insert", "changed", 2), change("upsert", "n", 3)]
    assert state.apply_messages(inside) == []
    assert state.get("user", "old") == 1
    changes = state.apply_messages([control("snapshot-end"), change("update", "n", 4)])
    assert [(c.kind, c.key, c.value, c.old_value) for c in changes] == [
        ("delete", "old", None, 1),
        ("update", "changed", 2, 1),
        ("insert", "n", 3, None),
        ("update", "n", 4, 3),
    ]


def test_an_end_without_a_start_changes_nothing() -> None:
    state = MaterializedState()
    state.apply_messages([change("insert", "1", 1), control("snapshot-end")])
    assert content(state) == {("user", "1"): 1}


def test_a_snapshot_that_is_begun_again_starts_from_nothing() -> None:
    state = MaterializedState()
    state.apply_messages(
        [
            control("snapshot-start"),
            change("insert", "half", 1),
            control("snapshot-start"),
            change("insert", "whole", 1),
            control("snapshot-end"),
        ]
    )
    assert content(state) == {("user", "whole"): 1}


def test_reset_empties_the_state_and_drops_a_snapshot() -> None:
    state = MaterializedState()
    state.apply_messages([change("insert", "1", 1), control("snapshot-start")])
    [gone] = state.apply_messages([control("reset")])
    assert (gone.kind, gone.key) == ("delete", "1")
    state.apply_messages([change("insert", "2", 2)])
    assert content(state) == {("user", "2"): 2}


def test_after_a_reset_what_lies_before_its_offset_is_ignored() -> None:
    state = MaterializedState()
    state.apply(batch_of([control("reset", offset="0_5")], end="0_3"))
    assert state.apply(batch_of([change("insert", "1", 1)], end="0_5")) == []
    assert state.position == Position("0_5")
    assert state.apply(batch_of([change("insert", "2", 2)], end="0_6")) != []


@pytest.mark.parametrize("offset", ["0_1", "-1", "123456_000"])
def test_a_reset_to_the_past_or_to_nowhere_ignores_nothing(offset: str) -> None:
    state = MaterializedState()
    state.apply(batch_of([control("reset", offset=offset)]))
    assert len(state.apply(batch_of([change("insert", "1", 1)], end="0_3"))) == 1


@pytest.mark.parametrize(
    "message",
    [
        "text",
        None,
        [],
        {},
        {"headers": None},
        {"headers": {}},
        {"headers": {"operation": "replace"}, "type": "user", "key": "1", "value": 1},
        {"headers": {"control": "stop"}},
        change("insert", "", 1),
        change("insert", "1", 1, type=""),
        change("insert", "1"),
        {"headers": {"operation": "delete"}, "type": "user"},
        {"headers": {"operation": "delete"}, "type": "user", "key": 5},
    ],
)
def test_a_malformed_message_fails_the_whole_batch(message: Any) -> None:
    state = MaterializedState()
    with pytest.raises(InvalidMessage):
        state.apply(batch_of([change("insert", "1", 1), message]))
    assert content(state) == {}
    assert state.position == Position()


def test_unknown_members_are_no_reason_to_refuse_a_message() -> None:
    message = {**change("insert", "1", 1), "extra": 1, "old_value": 3}
    message["headers"] = {"operation": "insert", "txid": "7", "more": [1]}
    [applied] = MaterializedState().apply_messages([message])
    assert applied.headers["txid"] == "7"


def test_listeners() -> None:
    state = MaterializedState()
    everything: list[Change] = []
    scores: list[str] = []
    state.on_change(everything.append)
    stop = state.on_change(lambda one: scores.append(one.key), type="score")
    state.apply(batch_of([change("insert", "1", 1), change("insert", "2", 5, type="score")]))
    stop()
    stop()
    state.apply_messages([change("insert", "3", 5, type="score")])
    assert [one.key for one in everything] == ["1", "2", "3"]
    assert scores == ["2"]


def test_a_listener_that_fails_does_not_undo_the_batch() -> None:
    state = MaterializedState()

    def broken(_: Change) -> None:
        raise ZeroDivisionError

    state.on_change(broken)
    with pytest.raises(ZeroDivisionError):
        state.apply(batch_of([change("insert", "1", 1)]))
    assert state.position == Position("0_2")
    assert state.get("user", "1") == 1


KEYS = st.sampled_from("abc")
CHANGES = st.one_of(
    st.builds(change, st.sampled_from(["insert", "update", "upsert"]), KEYS, st.integers(0, 3)),
    st.builds(change, st.just("delete"), KEYS),
    st.builds(control, st.sampled_from(["snapshot-start", "snapshot-end", "reset"])),
)


@given(st.lists(CHANGES, max_size=30))
def test_the_changes_tell_the_whole_story(messages: list[dict[str, Any]]) -> None:
    """Applying only the reported changes gives the same table."""
    state, mirror = MaterializedState(), dict[tuple[str, str], Any]()
    for message in messages:
        for one in state.apply_messages([message]):
            known = (one.type, one.key) in mirror
            assert known is (one.kind != "insert")
            assert mirror.pop((one.type, one.key), None) == one.old_value
            if one.kind != "delete":
                mirror[(one.type, one.key)] = one.value
    assert mirror == content(state)
