"""History of a PostgreSQL database, in object storage; see `headwater.store.history.remote`.

A node seals what belongs to its own shards. The transaction that records an extent checks that this
is still so, and locks the shard's row until its end: the shard cannot be given away in between. So
a byte of a run is in the rows or in one extent, whoever sealed it.

The extents in a segment may come to belong to several nodes. A node that removes the last extent
locks the segment's row, so that of two nodes that do so at the same time one sees the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from headwater.core.errors import DataCorrupt
from headwater.store.engine.figures import HistoryFigures
from headwater.store.history.compaction_choice import FileUse
from headwater.store.history.gathering import SLICE_BYTES
from headwater.store.history.remote import RemoteHistory, RemoteRewriting
from headwater.store.history.sealing import Part, Recording
from headwater.store.history.segment import PERHAPS, PRESENT, SegmentRow
from headwater.store.history.segment_writer import ExtentDraft, Mark, Step, nothing
from headwater.store.postgresql.clock import NOW_MS
from headwater.store.postgresql.compaction import PostgresqlRewriting, uses
from headwater.store.postgresql.ownership import Ownership
from headwater.store.postgresql.segments import begin_recording, let_go
from headwater.store.postgresql.tables import new_id, unnest
from headwater.store.postgresql.values import bigints
from headwater.store.reachability import Interval
from headwater.store.rows import OP_COLUMNS, Query, Row
from headwater.store.sql.extents import EXTENT_COLUMNS, SEGMENT_COLUMNS, ExtentRow, extent_row
from headwater.store.sql.releases import StoredReleases

_SURVEY_STREAMS: Final = 1_000
_PAGE_APPENDS: Final = 500
_REMOVED_AT_ONCE: Final = 100
# A longer part of the same extent replaces a shorter one.
_GROW: Final = (
    " ON CONFLICT (run, start) DO UPDATE SET until = excluded.until, appends = excluded.appends,"
    " messages = excluded.messages, last_at = excluded.last_at"
    " WHERE extents.segment_id = excluded.segment_id"
    " AND extents.index_offset = excluded.index_offset"
)
# What a run has in rows is contiguous, so its ends give the size.
_IN_ROWS: Final = (
    "SELECT s.id, last.until - first.start, first.created_at FROM streams s"
    " JOIN shards h ON h.id = s.shard"
    " JOIN LATERAL (SELECT start, created_at FROM ops WHERE stream_id = s.id"
    " ORDER BY start LIMIT 1) AS first ON true"
    " JOIN LATERAL (SELECT start + octet_length(body) AS until FROM ops WHERE stream_id = s.id"
    " ORDER BY start DESC LIMIT 1) AS last ON true"
    " WHERE s.status < 2 AND h.node_id = ?"
)
_ABANDONED: Final = "maker IS NOT NULL AND maker NOT IN (SELECT id FROM nodes)"

Transaction = Callable[[], AbstractContextManager[Query]]


class PostgresqlHistory(RemoteHistory):
    def __init__(
        self,
        directory: Path,
        transaction: Transaction,
        query: Query,
        ownership: Ownership,
        owner: str,
        step: Step = nothing,
    ) -> None:
        super().__init__(directory, query, owner, step)
        self.transaction = transaction
        self._ownership = ownership
        self._surveyed: frozenset[tuple[int, int]] = frozenset()
        """Shards whose rows are in the ledger, each with the epoch in which this node got it."""

    @property
    def node_id(self) -> int:
        return self._ownership.id

    # ── What is in rows ──────────────────────────────────────────────────────────────────────

    def _owned(self) -> frozenset[tuple[int, int]]:
        own = self._ownership.id
        return frozenset((s.id, s.epoch) for s in self._ownership.seen.shards if s.node_id == own)

    @property
    def needs_survey(self) -> bool:
        return not self._owned() <= self._surveyed

    def keep_ledger(self) -> None:
        self.ledger.keep()

    def survey(self) -> None:
        owned = self._owned()
        new = [shard for shard, _ in owned - self._surveyed]
        after = 0
        while not self.stopping:
            found = self.query(
                f"{_IN_ROWS} AND s.shard = ANY(?) AND s.id > ? ORDER BY s.id LIMIT ?",
                (self._ownership.id, bigints(new), after, _SURVEY_STREAMS),
            )
            self.ledger.survey((run, size, oldest_ms) for run, size, oldest_ms in found)
            if len(found) < _SURVEY_STREAMS:
                self._surveyed = owned
                return
            after = found[-1][0]

    def look_again(self, *runs: int) -> None:
        self.ledger.look(runs)
        found = self.query(f"{_IN_ROWS} AND s.id = ANY(?)", (self._ownership.id, bigints(runs)))
        left = {run: (size, oldest_ms) for run, size, oldest_ms in found}
        for run in runs:
            self.ledger.settle(run, left.get(run))

    # ── Making a segment ─────────────────────────────────────────────────────────────────────

    def new_id(self) -> int:
        return new_id(self.query, "segments")

    @contextmanager
    def _rows_of(self, run: int) -> Iterator[Iterator[Row]]:
        yield self._pages(run)

    def _pages(self, run: int) -> Iterator[Row]:
        """Up to a gap left by data that only forks needed: the rest is for next time."""
        if not self.query(f"{_IN_ROWS} AND s.id = ?", (self._ownership.id, run)):
            return
        sql = "SELECT min(start) FROM ops WHERE stream_id = ?"
        position: int | None = self.query(sql, (run,))[0][0]
        while position is not None and (page := self._page(run, position)):
            yield from page
            position = page[-1][1] + len(page[-1][-1])

    def _page(self, run: int, start: int) -> list[Row]:
        """Rows from one on; at least that one, because it can be of any size."""
        limit = start + SLICE_BYTES
        found = self.query(
            f"SELECT {OP_COLUMNS} FROM ops WHERE stream_id = ? AND start >= ? AND start < ?"
            " AND (start = ? OR start + octet_length(body) <= ?) ORDER BY start LIMIT ?",
            (run, start, limit, start, limit, _PAGE_APPENDS),
        )
        return found if found and found[0][1] == start else []

    def announce(self, recording: Recording, now_ms: int) -> None:
        draft = recording.draft
        with self.transaction() as write:
            # The outcome of an earlier attempt may be unknown.
            write(
                f"INSERT INTO segments ({SEGMENT_COLUMNS}, created_at, maker)"
                " VALUES (?, ?, ?, ?, 0, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
                (*draft[:4], PERHAPS, now_ms, self._ownership.id),
            )
            self.step("before announcing")
        self.step("announced")

    def record(self, recording: Recording, now_ms: int) -> bool:
        parts, segment_id = recording.slice(), recording.draft.id
        if not parts:
            self.finish(segment_id)
            return False
        skipped = set(recording.skipped)
        with self.transaction() as write:
            begun = begin_recording(write, segment_id, self._ownership.id)
            if begun:
                joined = _joined(part for part in parts if part[0].run not in skipped)
                sound = self._sound(write, joined)
                skipped |= joined.keys() - sound.keys()
                _move(write, segment_id, sound)
            self.step("before commit")
        recording.done(skipped, begun=begun)
        self.step("committed")
        return begun

    def _sound(self, write: Query, joined: _Joined) -> _Joined:
        """The parts whose rows are unchanged, of existing streams that belong to this node."""
        places = [(run, _start(one), one[2].end) for run, one in joined.items()]
        if not places:
            return {}
        source, values = unnest(("run", "start", "until"), places)
        found = write(
            "SELECT s.id, (SELECT count(*) FROM ops WHERE stream_id = s.id AND ops.start >= v.start"
            f" AND ops.start < v.until) FROM {source} JOIN streams s ON s.id = v.run"
            " JOIN shards h ON h.id = s.shard WHERE s.status < 2 AND h.node_id = ?"
            " FOR SHARE OF h",
            (*values, self._ownership.id),
        )
        return {run: joined[run] for run, appends in found if appends == _appends(joined[run])}

    def finish(self, segment_id: int) -> None:
        """Nothing more will be recorded."""
        with self.transaction() as write:
            let_go(write, "id = ? AND maker = ?", (segment_id, self._ownership.id))
        self.step("finished")

    # ── Rewriting segments ───────────────────────────────────────────────────────────────────

    def uses(self) -> list[FileUse]:
        return uses(self)

    def rewriting(self, files: Sequence[SegmentRow]) -> RemoteRewriting:
        return PostgresqlRewriting(self, files)

    # ── Removing segments ────────────────────────────────────────────────────────────────────

    def look(self) -> bool:
        found = self.query(
            "SELECT count(*), coalesce(sum(size), 0)::bigint FROM segments WHERE remote = ?",
            (PRESENT,),
        )
        self.figures = HistoryFigures(remote_files=found[0][0], remote_bytes=found[0][1])
        return bool(self.query(f"SELECT 1 FROM segments WHERE {_ABANDONED} LIMIT 1", ()))

    def adopt(self) -> None:
        with self.transaction() as write:
            let_go(write, _ABANDONED, ())
        self.step("adopted")

    def to_remove(self, kept_ms: int) -> list[SegmentRow]:
        found = self.query(
            f"SELECT {SEGMENT_COLUMNS} FROM segments WHERE unused_at <= {NOW_MS} - ?"
            " ORDER BY unused_at LIMIT ?",
            (kept_ms, _REMOVED_AT_ONCE),
        )
        return [SegmentRow(*row) for row in found]

    def note_removed(self, row: SegmentRow) -> None:
        with self.transaction() as write:
            write("DELETE FROM segments WHERE id = ? AND unused_at IS NOT NULL", (row.id,))
        self.open_segments.drop(row.id)


_Joined = dict[int, tuple[ExtentDraft, Mark | None, Mark]]


def _joined(parts: Iterable[Part]) -> _Joined:
    """Consecutive parts of an extent, joined."""
    joined: _Joined = {}
    for extent, since, to in parts:
        first = joined[extent.run][1] if extent.run in joined else since
        joined[extent.run] = extent, first, to
    return joined


def _start(part: Part) -> int:
    extent, since, _ = part
    return since.end if since else extent.start


def _appends(part: Part) -> int:
    _, since, to = part
    return to.appends - (since.appends if since else 0)


def _move(write: Query, segment_id: int, parts: _Joined) -> None:
    """From rows to extents."""
    if not parts:
        return
    places = [(run, _start(part), part[2].end) for run, part in parts.items()]
    source, values = unnest(("run", "start", "until"), places)
    dropped = write(
        f"DELETE FROM ops USING {source} WHERE stream_id = v.run AND ops.start >= v.start"
        " AND ops.start < v.until RETURNING 1",
        values,
    )
    if len(dropped) != sum(map(_appends, parts.values())):
        raise DataCorrupt("rows have changed while they were sealed")
    rows: list[ExtentRow] = [extent_row(segment_id, extent, to) for extent, _, to in parts.values()]
    source, values = unnest(EXTENT_COLUMNS.split(", "), rows)
    insert = f"INSERT INTO extents ({EXTENT_COLUMNS}) SELECT * FROM {source}{_GROW} RETURNING 1"
    if len(write(insert, values)) != len(rows):
        raise DataCorrupt("something else lies where rows were sealed")


class PostgresqlReleases(StoredReleases):
    """Releases in the PostgreSQL database; dropped data may be in rows or in extents."""

    def __init__(self, write: Query, own: str) -> None:
        super().__init__(write, own)
        self._shrunk: set[int] = set()

    def last_start(self, run: int) -> int:
        sealed = self._write("SELECT max(start) FROM extents WHERE run = ?", (run,))[0][0]
        return max(super().last_start(run), int(sealed or 0))

    def drop(self, run: int, interval: Interval, most: int) -> int:
        dropped = self._write(
            "DELETE FROM extents WHERE run = ? AND start IN (SELECT start FROM extents"
            " WHERE run = ? AND start >= ? AND start < ? AND until <= ? LIMIT ?)"
            " RETURNING segment_id",
            (run, run, *interval, interval[1], most),
        )
        self._shrunk.update(row[0] for row in dropped)
        return len(dropped) + super().drop(run, interval, most)

    def note_unused(self) -> None:
        """Mark segments without extents. At the end of the transaction."""
        if self._shrunk:
            ids = bigints(sorted(self._shrunk))
            let_go(self._write, "id = ANY(?)", (ids,), " AND maker IS NULL")
