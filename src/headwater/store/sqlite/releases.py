"""Releases in the SQLite database; dropped data may be in rows or in extents."""

from __future__ import annotations

import apsw

from headwater.store.reachability import Interval
from headwater.store.rows import Row
from headwater.store.sql.releases import StoredReleases
from headwater.store.sqlite.segments import drop_extents_within


class SqliteReleases(StoredReleases):
    def __init__(self, write: apsw.Connection) -> None:
        def execute(sql: str, values: tuple[object, ...]) -> list[Row]:
            return write.execute(sql, values).fetchall()

        super().__init__(execute)
        self._connection = write
        self.extents_dropped = 0

    def last_start(self, run: int) -> int:
        sealed = self._write("SELECT max(start) FROM extents WHERE run = ?", (run,))[0][0]
        return max(super().last_start(run), int(sealed or 0))

    def drop(self, run: int, interval: Interval, most: int) -> int:
        extents = drop_extents_within(self._connection, run, interval, most)
        self.extents_dropped += extents
        return extents + super().drop(run, interval, most)
