"""The State Protocol in columns says what the core says: what is valid, and what it folds to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.state_protocol import Fold as CoreFold
from headwater.core.state_protocol import NotARecord, convert_record, read_record
from pyspark_headwater.pipelines.folding import Control, Fold, Place, fold_controls

State = dict[tuple[str, str], Any]


@dataclass(frozen=True)
class Message:
    place: Place
    body: dict[str, Any]

    @property
    def control(self) -> Control | None:
        headers = self.body["headers"]
        if "control" not in headers:
            return None
        return Control(self.place, headers["control"], headers.get("offset"))


def offset(append: int) -> str:
    return f"{1:016d}_{append:016d}"


keys = st.sampled_from(["a", "b", "c"])
puts = st.builds(
    lambda key, kind, value, operation: {
        "type": kind,
        "key": key,
        "value": value,
        "headers": {"operation": operation},
    },
    keys,
    st.sampled_from(["user", "order"]),
    st.integers(0, 99),
    st.sampled_from(["insert", "update", "upsert"]),
)
deletes = st.builds(
    lambda key, kind: {"type": kind, "key": key, "headers": {"operation": "delete"}},
    keys,
    st.sampled_from(["user", "order"]),
)
controls = st.sampled_from(
    [{"headers": {"control": name}} for name in ("snapshot-start", "snapshot-end", "reset")]
)
bodies = st.lists(st.lists(puts | deletes | controls, min_size=1, max_size=4), max_size=12)


def numbered(appends: Iterable[list[dict[str, Any]]]) -> list[list[Message]]:
    return [
        [Message(Place(offset(at), number), body) for number, body in enumerate(append)]
        for at, append in enumerate(appends)
    ]


def reference(messages: Iterable[Message]) -> State:
    fold = CoreFold()
    for message in messages:
        fold.apply(convert_record(message.body))
    return {
        (kind, key): value
        for kind, entities in fold.entities.items()
        for key, value in entities.items()
    }


def apply(fold: Fold, batch: list[Message], state: State) -> State:
    """What Spark does with a fold, in Python."""
    counting = [m for m in batch if any(one.holds(m.place) for one in fold.intervals)]
    after: State = {} if fold.replaces else dict(state)
    for message in counting:
        if message.control is not None:
            continue
        entity = (message.body["type"], message.body["key"])
        after.pop(entity, None)
        if message.body["headers"]["operation"] != "delete":
            after[entity] = message.body["value"]
    return after


@given(bodies, st.data())
def test_however_a_stream_is_cut_into_batches(
    appends: list[list[dict[str, Any]]], data: st.DataObject
) -> None:
    messages = numbered(appends)
    state: State = {}
    aside: list[Message] = []
    at = 0
    while at < len(messages):
        until = data.draw(st.integers(at + 1, len(messages)))
        batch = aside + [message for append in messages[at:until] for message in append]
        found = [one.control for one in batch if one.control is not None]
        fold = fold_controls(found, batch[-1].place)
        state = apply(fold, batch, state)
        aside = [m for m in batch if fold.aside is not None and m.place >= fold.aside]
        at = until
        seen = [message for append in messages[:at] for message in append]
        assert state == reference(seen)


some = st.sampled_from
members = st.fixed_dictionaries(
    {},
    optional={
        "type": some(["user", "", None, 5]),
        "key": some(["1", "", None, 5]),
        "value": some([None, 1, "text", {"a": 1}]),
        "old_value": some([None, {"a": 1}]),
        "headers": st.fixed_dictionaries(
            {},
            optional={
                "operation": some(["insert", "update", "upsert", "delete", "merge", None]),
                "control": some(["snapshot-start", "snapshot-end", "reset", "stop", None]),
                "offset": some(["0_1", None, 5]),
                "txid": some(["7", 7]),
            },
        )
        | some([None, [], "text"]),
        "more": st.just([1]),
    },
)


@given(members | some([None, [], "text", 5]))
def test_a_message_is_valid_as_text_where_it_is_valid_as_a_value(message: Any) -> None:
    text = msgspec.json.encode(message).decode()
    assert _is_valid(read_record, text) is _is_valid(convert_record, message)


def _is_valid(read: Callable[[Any], object], message: Any) -> bool:
    try:
        read(message)
    except NotARecord:
        return False
    return True


def test_a_reset_that_names_an_offset_ahead() -> None:
    reset = {"headers": {"control": "reset", "offset": offset(3)}}

    def put(key: str) -> dict[str, Any]:
        return {"type": "t", "key": key, "value": key, "headers": {"operation": "insert"}}

    messages = numbered([[put("before")], [reset, put("same")], [put("early")], [put("late")]])
    flat = [message for append in messages for message in append]
    for cut in (len(flat), 4, 3):
        first = flat[:cut]
        fold = fold_controls([m.control for m in first if m.control], first[-1].place)
        state = apply(fold, first, {})
        rest = [m for m in first if fold.aside is not None and m.place >= fold.aside] + flat[cut:]
        if rest:
            again = fold_controls([m.control for m in rest if m.control], rest[-1].place)
            state = apply(again, rest, state)
        assert [key for _, key in state] == ["late"]
