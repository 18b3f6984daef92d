"""Releases, and the rows dropped with them; see `headwater.store.garbage`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headwater.core.limits import MIB
from headwater.store.garbage import Release
from headwater.store.reachability import END, Interval, Member
from headwater.store.rows import DELETED, LIVE, Query, Row

RELEASE_COLUMNS: Final = "stream_id, start, until"
GROW: Final = (
    " ON CONFLICT (stream_id) DO UPDATE SET"
    " start = CASE WHEN excluded.start < releases.start"
    " THEN excluded.start ELSE releases.start END,"
    " until = CASE WHEN excluded.until > releases.until"
    " THEN excluded.until ELSE releases.until END"
)
_MEMBER: Final = f"SELECT id, source_id, base, kept_from, status = {LIVE} FROM streams"
# Freeing the pages of a large row takes as long as writing them did.
_BYTES_PER_STEP: Final = 4 * MIB
_STREAMS_PER_STEP: Final = 32


class StoredReleases:
    """Releases within one transaction."""

    def __init__(self, write: Query, own: str = "") -> None:
        self._write = write
        self._own = own
        """An additional condition: that a stream belongs to this node."""

    def member(self, stream_id: int) -> Member | None:
        found = self._write(f"{_MEMBER} WHERE id = ? AND status < 2", (stream_id,))
        return _member(found[0]) if found else None

    def forks(self, stream_id: int, before: tuple[int, int], limit: int) -> Sequence[Member]:
        found = self._write(
            f"{_MEMBER} WHERE source_id = ? AND status < 2 AND (base, id) < (?, ?)"
            " ORDER BY base DESC, id DESC LIMIT ?",
            (stream_id, *before, limit),
        )
        return [_member(row) for row in found]

    def next_release(self) -> Release | None:
        foreign = (
            " WHERE NOT EXISTS (SELECT 1 FROM streams WHERE id = releases.stream_id"
            f" AND NOT (true{self._own}))"
        )
        condition = foreign if self._own else ""
        found = self._write(f"SELECT {RELEASE_COLUMNS} FROM releases{condition} LIMIT 1", ())
        return Release(*found[0]) if found else None

    def release(self, release: Release) -> None:
        self._write(f"INSERT INTO releases ({RELEASE_COLUMNS}) VALUES (?, ?, ?){GROW}", release)

    def settle(self, release: Release) -> None:
        self._write("DELETE FROM releases WHERE stream_id = ? AND start = ? AND until = ?", release)

    def last_start(self, run: int) -> int:
        sql = "SELECT coalesce(max(start), 0) FROM ops WHERE stream_id = ?"
        return int(self._write(sql, (run,))[0][0])

    def drop(self, run: int, interval: Interval, most: int) -> int:
        return drop_rows(self._write, run, interval, most)

    def drop_deleted(self, most: int) -> bool:
        """Remove some data of deleted streams; False when there was nothing."""
        write = self._write
        deleted = f"SELECT id FROM streams WHERE status = {DELETED}{self._own} LIMIT ?"
        found = write(deleted, (_STREAMS_PER_STEP,))
        left = most
        for (stream_id,) in found:
            left -= 1 + self.drop(stream_id, (0, END), left)
            for table, condition, key in _BELONGINGS:
                if left <= 0:
                    return True
                removed = write(
                    f"DELETE FROM {table} WHERE ({key}) IN"
                    f" (SELECT {key} FROM {table} WHERE {condition} LIMIT ?) RETURNING 1",
                    (stream_id, left),
                )
                left -= len(removed)
            if left <= 0:
                return True
            if not self.drop(stream_id, (0, END), left):
                write("DELETE FROM streams WHERE id = ?", (stream_id,))
        return bool(found)


def _member(row: Row) -> Member:
    return Member(row[0], row[1], row[2], row[3], bool(row[4]))


def drop_rows(write: Query, run: int, interval: Interval, most: int) -> int:
    """Drop the first appends in an interval, but not too much at once; returns how many."""
    start, end = interval
    found = write(
        "SELECT start, length(body) FROM ops WHERE stream_id = ? AND start >= ? AND start < ?"
        " ORDER BY start LIMIT ?",
        (run, start, end, most),
    )
    dropped = size = last = 0
    for row_start, length in found:
        if row_start + length > end or (dropped and size + length > _BYTES_PER_STEP):
            break
        dropped, size, last = dropped + 1, size + length, row_start
    if dropped:
        sql = "DELETE FROM ops WHERE stream_id = ? AND start >= ? AND start <= ?"
        write(sql, (run, start, last))
    return dropped


# What a deleted stream leaves besides its appends, and the key of each kind of row.
_BELONGINGS: Final = (
    ("message_ids", "stream_id = ?", "stream_id, message_id"),
    ("producers", "stream_id = ?", "stream_id, producer_id"),
    (
        "deliveries",
        "group_id IN (SELECT id FROM groups WHERE stream_id = ?)",
        "group_id, number",
    ),
    ("groups", "stream_id = ?", "id"),
    ("live_templates", "stream_id = ?", "stream_id, template_id"),
    ("snapshots", "stream_id = ?", "stream_id, position"),
)
