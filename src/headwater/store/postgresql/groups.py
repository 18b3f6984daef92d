"""Groups in the PostgreSQL database: a row per group, and one per message that is not settled."""

from __future__ import annotations

from collections.abc import Iterator

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
from headwater.store.postgresql.ids import next_id, used_ids
from headwater.store.postgresql.values import Statement, bigints, delete, insert, update, upsert
from headwater.store.rows import (
    DELIVERY_COLUMNS,
    GROUP_COLUMNS,
    Query,
    Row,
    delivery_row,
    group_row,
    read_delivery,
    read_group,
)


class GroupChanges:
    """The changes to groups within one transaction, brought together.

    A message is often taken, leased and settled within one batch. Only what is left of that in the
    end is written.
    """

    def __init__(self) -> None:
        self._created: dict[int, Row] = {}
        self._changed: dict[int, Row] = {}
        self._deleted: set[int] = set()
        self._emptied: set[int] = set()
        """Of these, everything that was outstanding before is forgotten."""
        self._cursors: dict[int, MessageRef] = {}
        self._settled: set[tuple[int, int]] = set()
        self._marks: dict[int, dict[int, Outstanding]] = {}

    def add(self, mutation: GroupMutation) -> None:
        match mutation:
            case (
                MessagesMarked(group_id=group_id, messages=messages)
                | MessagesLeased(group_id=group_id, messages=messages)
            ):
                marks = self._marks.setdefault(group_id, {})
                for message in messages:
                    marks[message.ref.number] = message
                if isinstance(mutation, MessagesLeased) and mutation.cursor is not None:
                    self._cursors[group_id] = mutation.cursor
            case MessagesSettled(group_id, numbers):
                marks = self._marks.get(group_id, {})
                for number in numbers:
                    marks.pop(number, None)
                    self._settled.add((group_id, number))
            case GroupAdvanced(group_id, cursor, reset):
                self._cursors[group_id] = cursor
                if reset:
                    self._forget_messages(group_id)
            case GroupCreated(record, config, cursor):
                self._created[record.id] = group_row(record, config, cursor)
            case GroupChanged(group_id, config, paused):
                settings = msgspec.json.encode(config).decode()
                self._changed[group_id] = (settings, int(paused))
            case GroupDeleted(group_id):
                self._forget_messages(group_id)
                self._deleted.add(group_id)

    def _forget_messages(self, group_id: int) -> None:
        self._marks.pop(group_id, None)
        self._emptied.add(group_id)

    def statements(self) -> Iterator[Statement]:
        if self._emptied:
            ids = bigints(list(self._emptied))
            yield "DELETE FROM deliveries WHERE group_id = ANY(%s)", (ids,)
        if self._settled:
            yield delete("deliveries", "group_id, number", list(self._settled))
        if self._deleted:
            yield "DELETE FROM groups WHERE id = ANY(%s)", (bigints(list(self._deleted)),)
        if self._created:
            yield used_ids("groups", max(self._created))
        created = [row for i, row in self._created.items() if i not in self._deleted]
        if created:
            yield insert("groups", GROUP_COLUMNS, created)
        if self._changed:
            changed = [(i, *row) for i, row in self._changed.items()]
            yield update("groups", "id", "config, paused", changed)
        if self._cursors:
            columns = "cursor_number, cursor_start, cursor_place"
            yield update("groups", "id", columns, [(i, *ref) for i, ref in self._cursors.items()])
        marks = [delivery_row(i, m) for i, found in self._marks.items() for m in found.values()]
        if marks:
            kept = "start, place, key"
            yield upsert("deliveries", "group_id, number", DELIVERY_COLUMNS, marks, kept)


class Groups:
    def __init__(self, query: Query) -> None:
        self._query = query

    def next_id(self) -> int:
        return next_id(self._query, "groups")

    def of_stream(self, stream_id: int) -> list[GroupState]:
        found = self._query(
            f"SELECT {GROUP_COLUMNS} FROM groups WHERE stream_id = %s ORDER BY name", (stream_id,)
        )
        states = [read_group(row) for row in found]
        for state in states:
            messages = self._query(
                f"SELECT {DELIVERY_COLUMNS} FROM deliveries WHERE group_id = %s",
                (state.record.id,),
            )
            restore(state, [read_delivery(row) for row in messages])
        return states

    def streams(self, after: int, limit: int) -> list[int]:
        found = self._query(
            "SELECT DISTINCT stream_id FROM groups WHERE stream_id > %s"
            " ORDER BY stream_id LIMIT %s",
            (after, limit),
        )
        return [row[0] for row in found]

    def unsettled_from(self, stream_id: int) -> int | None:
        found = self._query(
            "SELECT min(least(cursor_start, (SELECT min(start) FROM deliveries"
            " WHERE group_id = g.id))) FROM groups g WHERE stream_id = %s",
            (stream_id,),
        )
        first: int | None = found[0][0]
        return first
