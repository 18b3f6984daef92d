"""Groups in the memory engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import RLock

from headwater.core.groups.config import GroupConfig
from headwater.core.groups.mutations import (
    GroupAdvanced,
    GroupChanged,
    GroupCreated,
    GroupDeleted,
    GroupMutation,
    MessagesLeased,
    MessagesMarked,
    MessagesSettled,
    restore,
)
from headwater.core.groups.state import GroupRecord, GroupState, MessageRef, Outstanding


@dataclass(slots=True)
class _Stored:
    record: GroupRecord
    config: GroupConfig
    cursor: MessageRef
    paused: bool = False
    messages: dict[int, Outstanding] = field(default_factory=dict)


class Groups:
    def __init__(self, lock: RLock) -> None:
        self._lock = lock
        self._groups: dict[int, _Stored] = {}
        self._by_stream: dict[int, dict[int, _Stored]] = {}
        self._next_id = 1

    def apply(self, mutation: GroupMutation) -> None:
        if isinstance(mutation, GroupCreated):
            record = mutation.record
            stored = _Stored(record, mutation.config, mutation.cursor)
            self._groups[record.id] = stored
            self._by_stream.setdefault(record.stream_id, {})[record.id] = stored
            self._next_id = max(self._next_id, record.id + 1)
            return
        found = self._groups.get(mutation.group_id)
        if found is None:
            # Its stream was deleted in the same transaction.
            return
        self._change(found, mutation)

    def _change(self, stored: _Stored, mutation: GroupMutation) -> None:
        match mutation:
            case GroupChanged(_, config, paused):
                stored.config, stored.paused = config, paused
            case GroupAdvanced(_, cursor, reset):
                stored.cursor = cursor
                if reset:
                    stored.messages.clear()
            case MessagesMarked(messages=messages) | MessagesLeased(messages=messages):
                stored.messages.update({message.ref.number: message for message in messages})
                if isinstance(mutation, MessagesLeased):
                    stored.cursor = mutation.cursor or stored.cursor
            case MessagesSettled(_, numbers):
                for number in numbers:
                    stored.messages.pop(number, None)
            case GroupDeleted(group_id):
                del self._groups[group_id]
                del self._by_stream[stored.record.stream_id][group_id]

    def delete_of(self, stream_id: int) -> None:
        for group_id in self._by_stream.pop(stream_id, ()):
            del self._groups[group_id]

    def next_id(self) -> int:
        return self._next_id

    def of_stream(self, stream_id: int) -> list[GroupState]:
        with self._lock:
            found = self._by_stream.get(stream_id, {}).values()
            states: list[GroupState] = []
            for stored in sorted(found, key=lambda group: group.record.name):
                state = GroupState(stored.record, stored.config, stored.cursor, stored.paused)
                restore(state, list(stored.messages.values()))
                states.append(state)
            return states

    def streams(self, after: int, limit: int) -> list[int]:
        with self._lock:
            ids = {group.record.stream_id for group in self._groups.values()}
        return sorted(one for one in ids if one > after)[:limit]

    def unsettled_from(self, stream_id: int) -> int | None:
        groups = self.of_stream(stream_id)
        starts = [group.cursor.start for group in groups]
        starts += [m.ref.start for group in groups for m in group.outstanding.values()]
        return min(starts, default=None)
