"""Groups: a row for each, and one for each unsettled message."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

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
from headwater.core.groups.state import GroupState, MessageRef, Outstanding
from headwater.store.rows import (
    DELIVERY_COLUMNS,
    GROUP_COLUMNS,
    NextId,
    Query,
    Row,
    delivery_row,
    group_row,
    read_delivery,
    read_group,
)
from headwater.store.sql.tables import Tables


class GroupChanges:
    """The changes to groups within one transaction, merged.

    A message is often taken, leased and settled within one batch. Only the final result is written.
    """

    def __init__(self) -> None:
        self._created: dict[int, Row] = {}
        self._changed: dict[int, Row] = {}
        self._deleted: set[int] = set()
        self._emptied: set[int] = set()
        self._marks: dict[int, dict[int, Outstanding]] = {}
        """By group and number."""
        self._fresh: dict[int, set[int]] = {}
        """Messages that had no row before this batch."""
        self._settled: dict[int, set[int]] = {}
        self._cursors: dict[int, MessageRef] = {}

    def add(self, mutation: GroupMutation) -> None:
        # The two that come with every delivery first.
        if isinstance(mutation, MessagesSettled):
            self._settle(mutation)
        elif isinstance(mutation, MessagesLeased):
            self._mark(mutation.group_id, mutation.messages)
            if mutation.cursor is not None:
                self._cursors[mutation.group_id] = mutation.cursor
                fresh = self._fresh.setdefault(mutation.group_id, set())
                fresh.update([message.ref.number for message in mutation.messages])
        else:
            self._add_other(mutation)

    def _settle(self, mutation: MessagesSettled) -> None:
        group_id, numbers = mutation.group_id, mutation.numbers
        marks = self._marks.get(group_id)
        if marks:
            for number in numbers:
                marks.pop(number, None)
        settled = set(numbers).difference(self._fresh.get(group_id, ()))
        if settled:
            self._settled.setdefault(group_id, set()).update(settled)

    def _mark(self, group_id: int, messages: Sequence[Outstanding]) -> None:
        marks = self._marks.setdefault(group_id, {})
        for message in messages:
            marks[message.ref.number] = message

    def _add_other(self, mutation: GroupMutation) -> None:
        match mutation:
            case MessagesMarked(group_id, messages):
                self._mark(group_id, messages)
            case GroupAdvanced(group_id, cursor, reset):
                self._cursors[group_id] = cursor
                if reset:
                    self._forget_messages(group_id)
            case GroupCreated(record, config, cursor):
                self._created[record.id] = group_row(record, config, cursor)
            case GroupChanged(group_id, config, paused):
                settings = msgspec.json.encode(config).decode()
                self._changed[group_id] = (group_id, settings, int(paused))
            case GroupDeleted(group_id):
                self._forget_messages(group_id)
                self._deleted.add(group_id)

    def _forget_messages(self, group_id: int) -> None:
        self._marks.pop(group_id, None)
        self._emptied.add(group_id)

    def write(self, tables: Tables) -> None:
        if self._emptied:
            tables.delete("deliveries", "group_id", [(group_id,) for group_id in self._emptied])
        if self._settled:
            settled = {group_id: sorted(numbers) for group_id, numbers in self._settled.items()}
            tables.delete_numbers("deliveries", "group_id, number", settled)
        self._write_settings(tables)
        if self._cursors:
            cursors = [(i, *cursor) for i, cursor in self._cursors.items()]
            tables.update("groups", "id", "cursor_number, cursor_start, cursor_place", cursors)
        marks = [delivery_row(i, m) for i, found in self._marks.items() for m in found.values()]
        if marks:
            kept = "start, place, key"
            tables.upsert("deliveries", "group_id, number", DELIVERY_COLUMNS, marks, kept)

    def _write_settings(self, tables: Tables) -> None:
        if self._deleted:
            tables.delete("groups", "id", [(group_id,) for group_id in self._deleted])
        if self._created:
            tables.use_ids("groups", max(self._created))
            created = [row for i, row in self._created.items() if i not in self._deleted]
            tables.insert("groups", GROUP_COLUMNS, created)
        if self._changed:
            tables.update("groups", "id", "config, paused", [*self._changed.values()])


class Groups:
    def __init__(self, query: Query, next_id: NextId) -> None:
        self._query = query
        self._next_id = next_id

    def next_id(self) -> int:
        return self._next_id(self._query, "groups")

    def of_stream(self, stream_id: int) -> list[GroupState]:
        found = self._query(
            f"SELECT {GROUP_COLUMNS} FROM groups WHERE stream_id = ? ORDER BY name", (stream_id,)
        )
        states = [read_group(row) for row in found]
        for state in states:
            messages = self._query(
                f"SELECT {DELIVERY_COLUMNS} FROM deliveries WHERE group_id = ?",
                (state.record.id,),
            )
            restore(state, [read_delivery(row) for row in messages])
        return states

    def streams(self, after: int, limit: int) -> list[int]:
        found = self._query(
            "SELECT DISTINCT stream_id FROM groups WHERE stream_id > ? ORDER BY stream_id LIMIT ?",
            (after, limit),
        )
        return [row[0] for row in found]

    def unsettled_from(self, stream_id: int) -> int | None:
        starts = self._query(
            "SELECT cursor_start FROM groups WHERE stream_id = ? UNION ALL"
            " SELECT min(start) FROM deliveries d JOIN groups g ON g.id = d.group_id"
            " WHERE g.stream_id = ? GROUP BY g.id",
            (stream_id, stream_id),
        )
        return min((row[0] for row in starts), default=None)
