"""Releases in the SQLite database, and the rows and extents that go with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import apsw

from headwater.core.limits import MIB
from headwater.store.garbage import Release
from headwater.store.reachability import END, Interval, Member
from headwater.store.rows import LIVE, Row
from headwater.store.sqlite.segments import drop_extents_within

_MEMBER: Final = f"SELECT id, source_id, base, kept_from, status = {LIVE} FROM streams"
# To free the pages of a large row takes as long as to write them did.
_BYTES_PER_STEP: Final = 4 * MIB


class SqliteReleases:
    """Within one transaction."""

    def __init__(self, write: apsw.Connection) -> None:
        self._write = write
        self.extents_dropped = 0

    def member(self, stream_id: int) -> Member | None:
        found = self._all(f"{_MEMBER} WHERE id = ? AND status < 2", (stream_id,))
        return _member(found[0]) if found else None

    def forks(self, stream_id: int, before: tuple[int, int], limit: int) -> Sequence[Member]:
        found = self._all(
            f"{_MEMBER} WHERE source_id = ? AND status < 2 AND (base, id) < (?, ?)"
            " ORDER BY base DESC, id DESC LIMIT ?",
            (stream_id, *before, limit),
        )
        return [_member(row) for row in found]

    def next_release(self) -> Release | None:
        found = self._all("SELECT stream_id, start, until FROM releases LIMIT 1", ())
        return Release(*found[0]) if found else None

    def release(self, release: Release) -> None:
        self._write.execute(
            "INSERT INTO releases VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET"
            " start = min(start, excluded.start), until = max(until, excluded.until)",
            release,
        )

    def settle(self, release: Release) -> None:
        self._write.execute(
            "DELETE FROM releases WHERE stream_id = ? AND start = ? AND until = ?", release
        )

    def last_start(self, run: int) -> int:
        found = self._all(
            "SELECT max(ifnull((SELECT max(start) FROM ops WHERE stream_id = ?1), 0),"
            " ifnull((SELECT max(start) FROM extents WHERE run = ?1), 0))",
            (run,),
        )
        return int(found[0][0])

    def drop(self, run: int, interval: Interval, most: int) -> int:
        extents = drop_extents_within(self._write, run, interval, most)
        self.extents_dropped += extents
        return extents + drop_rows(self._write, run, interval, most)

    def _all(self, sql: str, values: tuple[object, ...]) -> list[Row]:
        found: list[Row] = self._write.execute(sql, values).fetchall()
        return found


def drop_rows(write: apsw.Connection, run: int, interval: Interval, most: int) -> int:
    """Drop some rows that lie in an interval; says how many."""
    start, end = interval
    found: list[Row] = write.execute(
        "SELECT id, start, length(body) FROM ops WHERE stream_id = ? AND start >= ? AND start < ?"
        " ORDER BY start LIMIT ?",
        (run, start, end, most),
    ).fetchall()
    chosen: list[tuple[int]] = []
    size = 0
    for row_id, row_start, length in found:
        if row_start + length > end or (chosen and size + length > _BYTES_PER_STEP):
            break
        chosen.append((row_id,))
        size += length
    write.executemany("DELETE FROM ops WHERE id = ?", chosen)
    return len(chosen)


# What a deleted stream leaves in addition to its appends, and the key of each kind of row.
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
_STREAMS_PER_STEP: Final = 32


def drop_deleted(releases: SqliteReleases, write: apsw.Connection, most: int) -> bool:
    """Remove some of what deleted streams left; False when there was nothing."""
    found: list[Row] = write.execute(
        "SELECT id FROM streams WHERE status = 2 LIMIT ?", (_STREAMS_PER_STEP,)
    ).fetchall()
    left = most
    for (stream_id,) in found:
        left -= 1 + releases.drop(stream_id, (0, END), left)
        for table, condition, key in _BELONGINGS:
            if left <= 0:
                return True
            write.execute(
                f"DELETE FROM {table} WHERE ({key}) IN"
                f" (SELECT {key} FROM {table} WHERE {condition} LIMIT ?)",
                (stream_id, left),
            )
            left -= write.changes()
        if left <= 0:
            return True
        if not releases.drop(stream_id, (0, END), left):
            write.execute("DELETE FROM streams WHERE id = ?", (stream_id,))
    return bool(found)


def _member(row: Row) -> Member:
    return Member(row[0], row[1], row[2], row[3], bool(row[4]))
