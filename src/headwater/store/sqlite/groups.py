"""Groups in the SQLite database: a row per group, and one per message that is not settled."""

from __future__ import annotations

from typing import Final

import apsw
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
    Query,
    delivery_row,
    group_row,
    read_delivery,
    read_group,
)
from headwater.store.sqlite.ids import next_id
from headwater.store.sqlite.inserts import insert_rows

_REPLACE: Final = (
    " ON CONFLICT DO UPDATE SET phase = excluded.phase, until = excluded.until,"
    " deliveries = excluded.deliveries, token = excluded.token, consumer = excluded.consumer"
)
_KEYS_PER_DELETE: Final = 256
_RUN_WORTHWHILE: Final = 16


class GroupWrites:
    """The changes to groups within one transaction, brought together.

    A message is often taken, leased and settled within one batch. Only what is left of that in the
    end is written.
    """

    def __init__(self) -> None:
        self._marks: dict[int, dict[int, Outstanding]] = {}
        """By group and number."""
        self._settled: dict[int, set[int]] = {}
        self._cursors: dict[int, MessageRef] = {}

    def add(self, write: apsw.Connection, mutation: GroupMutation) -> None:
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
                self._settled.setdefault(group_id, set()).update(numbers)
            case GroupAdvanced(group_id, cursor, reset):
                self._cursors[group_id] = cursor
                if reset:
                    self._forget_messages(write, group_id)
            case GroupCreated(record, config, cursor):
                insert_rows(write, "groups", GROUP_COLUMNS, [group_row(record, config, cursor)])
            case GroupChanged(group_id, config, paused):
                write.execute(
                    "UPDATE groups SET config = ?, paused = ? WHERE id = ?",
                    (msgspec.json.encode(config).decode(), int(paused), group_id),
                )
            case GroupDeleted(group_id):
                self._forget_messages(write, group_id)
                write.execute("DELETE FROM groups WHERE id = ?", (group_id,))

    def _forget_messages(self, write: apsw.Connection, group_id: int) -> None:
        self._marks.pop(group_id, None)
        write.execute("DELETE FROM deliveries WHERE group_id = ?", (group_id,))

    def flush(self, write: apsw.Connection) -> None:
        for group_id, settled in self._settled.items():
            _delete_settled(write, group_id, settled)
        for group_id, marks in self._marks.items():
            found = [delivery_row(group_id, message) for message in marks.values()]
            insert_rows(write, "deliveries", DELIVERY_COLUMNS, found, _REPLACE)
        for group_id, cursor in self._cursors.items():
            write.execute(
                "UPDATE groups SET cursor_number = ?, cursor_start = ?, cursor_place = ?"
                " WHERE id = ?",
                (*cursor, group_id),
            )


def _delete_settled(write: apsw.Connection, group_id: int, numbers: set[int]) -> None:
    """Members settle what they were given together, so many numbers are neighbours."""
    single: list[int] = []
    for first, last in _runs(sorted(numbers)):
        if last - first < _RUN_WORTHWHILE:
            single += range(first, last + 1)
            continue
        write.execute(
            "DELETE FROM deliveries WHERE group_id = ? AND number BETWEEN ? AND ?",
            (group_id, first, last),
        )
    for at in range(0, len(single), _KEYS_PER_DELETE):
        part = single[at : at + _KEYS_PER_DELETE]
        marks = ",".join("?" * len(part))
        write.execute(
            f"DELETE FROM deliveries WHERE group_id = ? AND number IN ({marks})", (group_id, *part)
        )


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Ascending numbers as runs without a gap: the first and the last of each."""
    gaps = [i for i in range(1, len(numbers)) if numbers[i] - numbers[i - 1] != 1]
    firsts, lasts = [0, *gaps], [*gaps, len(numbers)]
    return [(numbers[a], numbers[b - 1]) for a, b in zip(firsts, lasts, strict=True)]


class Groups:
    def __init__(self, query: Query) -> None:
        self._query = query

    def next_id(self) -> int:
        return next_id(self._query, "groups")

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
        found = self._query(
            "SELECT min(cursor_start, ifnull((SELECT min(start) FROM deliveries"
            " WHERE group_id = g.id), cursor_start)) FROM groups g WHERE stream_id = ?",
            (stream_id,),
        )
        return min((row[0] for row in found), default=None)
