"""Removing what no stream and no fork needs any more; see `headwater.store.reachability`.

Which runs to look at is noted when something is committed that can make a part of them
superfluous: a stream that keeps less, a stream that is deleted. After a start it is found out once.

The last piece of a stream that is there stays, needed or not: it tells where the stream ends.
"""

from __future__ import annotations

from collections.abc import Iterable

import apsw

from headwater.core.stream import Deleted, Mutation, SoftDeleted, StreamConfig, Trimmed
from headwater.store import rows
from headwater.store.reachability import END, Interval, is_needed, needs_of
from headwater.store.rows import CONFIG_COLUMNS, LIVE, Row
from headwater.store.sqlite.segments import drop_extent

_FAMILY = (
    "WITH RECURSIVE family (member) AS (SELECT ?1 UNION SELECT s.id FROM streams s"
    " JOIN family ON s.source_id = member WHERE s.status < 2)"
    f" SELECT {CONFIG_COLUMNS} FROM streams JOIN family ON id = member WHERE status = {LIVE}"
)


class Collector:
    def __init__(self) -> None:
        self._runs: set[int] = set()
        self._surveyed = False

    def add(self, runs: Iterable[int]) -> None:
        """Look at these when there is time."""
        self._runs.update(runs)

    def _survey(self, write: apsw.Connection) -> None:
        condition = "kept_from > 0 OR status = 1 OR inherited IS NOT NULL"
        for row in write.execute(f"SELECT {CONFIG_COLUMNS} FROM streams WHERE {condition}"):
            self.add(_runs_of(rows.read_config(row)))
        self._surveyed = True

    def collect(self, write: apsw.Connection, most: int) -> tuple[int, int]:
        """Remove some; says how many rows and how many extents, both 0 when there is no more."""
        if not self._surveyed:
            self._survey(write)
        while self._runs:
            run = next(iter(self._runs))
            removed = self._collect(write, run, most)
            if removed != (0, 0):
                return removed
            self._runs.discard(run)
        return 0, 0

    def _collect(self, write: apsw.Connection, run: int, most: int) -> tuple[int, int]:
        needs = self._needs(write, run)
        if needs is None:
            return 0, 0
        extents = 0
        for row in _all(write, "SELECT start, until FROM extents WHERE run = ?", (run,)):
            if extents < most and not is_needed(row[0], row[1], needs):
                drop_extent(write, run, row[0])
                extents += 1
        low = min((start for start, _ in needs), default=END)
        high = max((end for _, end in needs), default=0)
        write.execute(
            "DELETE FROM ops WHERE id IN (SELECT id FROM ops WHERE stream_id = ?1 AND"
            " ((start < ?2 AND start + length(body) <= ?2) OR start >= ?3) LIMIT ?4)",
            (run, low, high, most),
        )
        return write.changes(), extents

    def _needs(self, write: apsw.Connection, run: int) -> list[Interval] | None:
        """What is needed of a run; None if it is deleted, which is for others to clear away."""
        found = _all(write, "SELECT status FROM streams WHERE id = ? AND status < 2", (run,))
        if not found:
            return None
        needs = needs_of(run, map(rows.read_config, _all(write, _FAMILY, (run,))))
        if found[0][0] == LIVE:
            last = _all(
                write,
                "SELECT max(ifnull((SELECT max(start) FROM ops WHERE stream_id = ?1), 0),"
                " ifnull((SELECT max(start) FROM extents WHERE run = ?1), 0))",
                (run,),
            )
            needs.append((last[0][0], END))
        return needs


def runs_concerned(write: apsw.Connection, mutation: Mutation) -> set[int]:
    """Runs of which a part may be superfluous once this is committed."""
    if isinstance(mutation, Trimmed):
        return {*_runs_of(mutation.config)}
    if isinstance(mutation, SoftDeleted | Deleted):
        sql = f"SELECT {CONFIG_COLUMNS} FROM streams WHERE id = ?"
        found = _all(write, sql, (mutation.stream_id,))
        return {run for row in found for run in _runs_of(rows.read_config(row))}
    return set()


def _runs_of(config: StreamConfig) -> list[int]:
    return [config.id, *(run for run, _ in config.lineage.inherited)]


def _all(write: apsw.Connection, sql: str, values: tuple[object, ...]) -> list[Row]:
    found: list[Row] = write.execute(sql, values).fetchall()
    return found
