"""State Protocol streams: a table of entities, kept current from a stream of changes. No IO.

What a message means says `headwater.core.state_protocol`. A reader sees where a batch ends, not
where each message does, so of the batch that holds the offset of a reset, all messages count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from headwater.client.errors import InvalidMessage
from headwater.client.protocol.batch import Batch, Position
from headwater.core.state_protocol import (
    Change,
    Fold,
    NotARecord,
    Record,
    convert_record,
    is_before,
)

__all__ = ["Change", "MaterializedState"]

Listener = Callable[[Change], None]
_Checked = tuple[Record[Any], Mapping[str, Any]]


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
        self._state = Fold()
        self._listeners: list[tuple[Listener, str | None]] = []

    # --- Looking ---------------------------------------------------------------------------------

    def get(self, type: str, key: str, default: Any = None) -> Any:
        """The value of one entity."""
        return self._state.entities.get(type, {}).get(key, default)

    def of_type(self, type: str) -> Mapping[str, Any]:
        """All entities of a type by key, as they are now."""
        return dict(self._state.entities.get(type, {}))

    def types(self) -> list[str]:
        """The types that have entities now."""
        return [type for type, entities in self._state.entities.items() if entities]

    def __len__(self) -> int:
        return sum(map(len, self._state.entities.values()))

    def __contains__(self, entity: tuple[str, str]) -> bool:
        type, key = entity
        return key in self._state.entities.get(type, {})

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """All entities as (type, key)."""
        return ((type, key) for type, entities in self._state.entities.items() for key in entities)

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
        restart = self._state.restart
        return batch.next_offset == restart or is_before(batch.next_offset, restart)

    def _fold(self, messages: Iterable[Any]) -> list[Change]:
        checked = [_checked(message) for message in messages]
        return [
            change for record, headers in checked for change in self._state.apply(record, headers)
        ]


def _checked(message: Any) -> _Checked:
    """The message as a record, and all of its headers."""
    try:
        record = convert_record(message)
    except NotARecord as error:
        raise InvalidMessage(f"not a State Protocol message: {error}") from None
    return record, MappingProxyType(message["headers"])
