"""State Protocol streams: a table of entities folded out of a stream of changes. No IO.

A change names an entity by type and key and says what happened to it. `insert`, `update` and
`upsert` all store the value: the stream is the truth, so a missing or an extra entity on our side
is no reason to refuse what it says. `delete` removes the entity.

Control messages speak about the state as a whole:

* `snapshot-start` … `snapshot-end` enclose a complete picture. It is collected aside and replaces
  the state at once when it ends, so nobody sees half of it; whatever it does not contain is gone.
* `reset` empties the state and drops an unfinished snapshot. If it names an offset ahead of us,
  what lies before that offset no longer counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from headwater.client.batch import Batch, Position
from headwater.client.errors import InvalidMessage

Kind = Literal["insert", "update", "delete"]
Listener = Callable[["Change"], None]


@dataclass(frozen=True, slots=True)
class Change:
    """One entity that is different now.

    Attributes:
        kind: what happened from this state's point of view.
        type: the entity's type.
        key: the entity's key.
        value: the value now; None after a delete.
        old_value: the value before; None before an insert.
        headers: the headers of the message; empty if a snapshot or reset caused the change.
    """

    kind: Kind
    type: str
    key: str
    value: Any = None
    old_value: Any = None
    headers: Mapping[str, Any] = field(default_factory=dict)


class MaterializedState:
    """The entities of a State Protocol stream.

    >>> state = MaterializedState()
    >>> headers = {"operation": "insert"}
    >>> state.apply_messages([{"type": "user", "key": "1", "value": "Ada", "headers": headers}])
    [Change(kind='insert', type='user', key='1', value='Ada', old_value=None, headers=...)]
    >>> state.get("user", "1")
    'Ada'

    To keep it current, apply what a reader yields:

        async with stream.follow() as reader:
            async for batch in reader:
                state.apply(batch)
    """

    def __init__(self) -> None:
        self.position = Position()
        self._entities: _Entities = {}
        self._snapshot: _Entities | None = None
        self._restart_offset: str | None = None
        self._listeners: list[tuple[Listener, str | None]] = []

    # --- Looking ---------------------------------------------------------------------------------

    def get(self, type: str, key: str, default: Any = None) -> Any:
        """The value of one entity."""
        return self._entities.get(type, {}).get(key, default)

    def of_type(self, type: str) -> Mapping[str, Any]:
        """All entities of a type by key, as they are now."""
        return dict(self._entities.get(type, {}))

    def types(self) -> list[str]:
        """The types that have entities now."""
        return [type for type, entities in self._entities.items() if entities]

    def __len__(self) -> int:
        return sum(map(len, self._entities.values()))

    def __contains__(self, entity: tuple[str, str]) -> bool:
        type, key = entity
        return key in self._entities.get(type, {})

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """All entities as (type, key)."""
        return ((type, key) for type, entities in self._entities.items() for key in entities)

    def on_change(self, listener: Listener, *, type: str | None = None) -> Callable[[], None]:
        """Call `listener` with every change (of one type); returns a function that ends it."""
        entry = (listener, type)
        self._listeners.append(entry)

        def unsubscribe() -> None:
            if entry in self._listeners:
                self._listeners.remove(entry)

        return unsubscribe

    # --- Changing --------------------------------------------------------------------------------

    def apply(self, batch: Batch) -> list[Change]:
        """Apply a batch of the stream and return what changed.

        All messages are checked before the first is applied, so a batch counts whole or not at all.
        """
        messages = [] if self._is_outdated(batch) or not batch else batch.messages()
        changes = self._fold(messages)
        self.position = batch.position
        self._notify(changes)
        return changes

    def apply_messages(self, messages: Iterable[Any]) -> list[Change]:
        """Apply decoded messages in order and return what changed."""
        changes = self._fold(messages)
        self._notify(changes)
        return changes

    def _notify(self, changes: list[Change]) -> None:
        for change in changes:
            for listener, type in tuple(self._listeners):
                if type is None or type == change.type:
                    listener(change)

    def _is_outdated(self, batch: Batch) -> bool:
        """Whether the batch lies before the offset that the last reset named."""
        restart = self._restart_offset
        # Offsets of one server sort as text and are equally long. Anything else in a reset is not
        # an offset of this stream and must not make us deaf.
        return (
            restart is not None
            and len(restart) == len(batch.next_offset)
            and batch.next_offset <= restart
        )

    def _fold(self, messages: Iterable[Any]) -> list[Change]:
        checked = [_checked(message) for message in messages]
        return [change for message in checked for change in self._apply_one(message)]

    def _apply_one(self, message: _Message) -> list[Change]:
        if message.headers.control is not None:
            return self._control(message.headers)
        if self._snapshot is not None:
            _store(self._snapshot, message)
            return []
        return _store(self._entities, message)

    def _control(self, headers: _Headers) -> list[Change]:
        if headers.control == "snapshot-start":
            self._snapshot = {}
            return []
        if headers.control == "reset":
            self._snapshot = None
            self._restart_offset = headers.offset
            return self._replace({})
        if self._snapshot is None:
            # The start of this snapshot lies before the place where we began to read, so we have
            # only a part of it, and that part has been applied change by change.
            return []
        snapshot, self._snapshot = self._snapshot, None
        return self._replace(snapshot)

    def _replace(self, entities: _Entities) -> list[Change]:
        before, self._entities = self._entities, entities
        changes = [
            Change("delete", type, key, old_value=value)
            for type, old in before.items()
            for key, value in old.items()
            if key not in entities.get(type, {})
        ]
        for type, new in entities.items():
            old = before.get(type, {})
            for key, value in new.items():
                if key not in old:
                    changes.append(Change("insert", type, key, value))
                elif old[key] != value:
                    changes.append(Change("update", type, key, value, old[key]))
        return changes


_Entities = dict[str, dict[str, Any]]


class _Headers(msgspec.Struct):
    operation: Literal["insert", "update", "upsert", "delete"] | None = None
    control: Literal["snapshot-start", "snapshot-end", "reset"] | None = None
    offset: str | None = None


class _Message(msgspec.Struct):
    headers: _Headers
    all_headers: dict[str, Any]
    type: str = ""
    key: str = ""
    value: Any = None


def _checked(message: Any) -> _Message:
    """The message as a record, if it is one."""
    try:
        parsed = msgspec.convert({**message, "all_headers": message.get("headers")}, _Message)
    except (msgspec.ValidationError, TypeError, AttributeError) as error:
        raise InvalidMessage(f"not a State Protocol message: {error}") from error
    if parsed.headers.control is not None:
        return parsed
    if parsed.headers.operation is None:
        raise InvalidMessage("a State Protocol message has headers.operation or headers.control")
    if not parsed.type or not parsed.key:
        raise InvalidMessage("a change has a type and a key, both non-empty strings")
    if "value" not in message and parsed.headers.operation != "delete":
        raise InvalidMessage(f"{parsed.headers.operation} of {parsed.key!r} has no value")
    return parsed


def _store(entities: _Entities, message: _Message) -> list[Change]:
    of_type = entities.setdefault(message.type, {})
    known = message.key in of_type
    old_value = of_type.get(message.key)
    headers = MappingProxyType(message.all_headers)
    if message.headers.operation != "delete":
        of_type[message.key] = message.value
        kind: Kind = "update" if known else "insert"
        return [Change(kind, message.type, message.key, message.value, old_value, headers)]
    of_type.pop(message.key, None)
    if not known:
        return []
    return [Change("delete", message.type, message.key, None, old_value, headers)]
