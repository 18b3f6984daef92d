"""Compaction of the history of a PostgreSQL database; see `headwater.store.history.compaction`.

The extents of a segment may belong to several nodes. Each node rewrites its own, and the segment is
removed when all of them have. The data is downloaded from object storage into unlinked files, which
disappear with the process. As in sealing, the new segment is announced, uploaded and compared
before any extent points to it, so a killed node leaves nothing that sealing would not leave.

An extent is moved in a transaction that locks the row of its shard. So no other node can drop or
move it at the same time, and this node drops extents on the same thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from headwater.core.errors import DataCorrupt
from headwater.store.history.cold_segments import ColdSegment
from headwater.store.history.compaction_choice import FileUse
from headwater.store.history.remote import RemoteRewriting
from headwater.store.history.segment import PRESENT, SegmentRow
from headwater.store.history.segment_format import MAGIC
from headwater.store.postgresql.segments import begin_recording, let_go
from headwater.store.postgresql.tables import unnest
from headwater.store.postgresql.values import bigints
from headwater.store.rows import DELETED, Query
from headwater.store.sql.extents import EXTENT_COLUMNS, SEGMENT_COLUMNS, ExtentRow, extent_row

if TYPE_CHECKING:
    from headwater.store.postgresql.history import PostgresqlHistory

_OWN: Final = f"h.node_id = ? AND t.status <> {DELETED}"
_OWNERS: Final = "streams t ON t.id = e.run LEFT JOIN shards h ON h.id = t.shard"


def uses(history: PostgresqlHistory) -> list[FileUse]:
    """How much of each complete segment belongs to this node.

    Whether too little of a segment is needed depends on all nodes: bytes that others need count
    twice against rewriting it, like those that this one needs.
    """
    columns = ", ".join(f"s.{name}" for name in SEGMENT_COLUMNS.split(", "))
    found = history.query(
        f"SELECT {columns}, count(*) FILTER (WHERE {_OWN}),"
        f" (sum(e.until - e.start) FILTER (WHERE {_OWN}))::bigint,"
        " sum(e.until - e.start)::bigint, min(e.index_offset)"
        f" FROM segments s JOIN extents e ON e.segment_id = s.id LEFT JOIN {_OWNERS}"
        f" WHERE s.maker IS NULL AND s.remote = {PRESENT} GROUP BY s.id ORDER BY s.id",
        (history.node_id, history.node_id),
    )
    return [
        FileUse(SegmentRow(*row), extents, own, index_offset - len(MAGIC) - 2 * (needed - own))
        for *row, extents, own, needed, index_offset in found
        if extents and row[0] not in history.damaged
    ]


def _own_extents(history: PostgresqlHistory, segments: Iterable[int]) -> list[ExtentRow]:
    columns = ", ".join(f"e.{name}" for name in EXTENT_COLUMNS.split(", "))
    found = history.query(
        f"SELECT {columns} FROM extents e JOIN {_OWNERS}"
        f" WHERE e.segment_id = ANY(?) AND {_OWN} ORDER BY e.run, e.start",
        (bigints(list(segments)), history.node_id),
    )
    return [ExtentRow(*row) for row in found]


class PostgresqlRewriting(RemoteRewriting):
    """A new segment made of this node's extents in some old ones."""

    _history: PostgresqlHistory

    def __init__(self, history: PostgresqlHistory, files: Sequence[SegmentRow]) -> None:
        """Raises FileNotFoundError if this node has no extents left in them."""
        extents = _own_extents(history, [row.id for row in files])
        if not extents:
            raise FileNotFoundError("somebody else has it, or nobody needs it any more")
        super().__init__(history, {row.id: _borrowed(history, row) for row in files}, extents)

    def record(self) -> bool:
        """Move some extents to the new segment; True if there are more. On the commit thread."""
        history, stop = self._history, self.next_slice()
        if stop == self._recorded:
            history.finish(self.draft.id)
            return False
        old = sorted(self._segments)
        with history.transaction() as write:
            # All at once and in order, like everywhere else: this avoids deadlocks.
            held = "SELECT 1 FROM segments WHERE id = ANY(?) ORDER BY id FOR UPDATE"
            write(held, (bigints([*old, self.draft.id]),))
            begun = begin_recording(write, self.draft.id, history.node_id)
            if begun:
                self._move(write, range(self._recorded, stop))
                let_go(write, "id = ANY(?)", (bigints(old),), " AND maker IS NULL")
            history.step("before moving")
        # If that failed, the same is tried again: extents already moved are then left as they are.
        self._recorded = stop
        history.step("moved")
        return begun

    def _move(self, write: Query, numbers: range) -> None:
        runs = bigints([self._joined[number][0].run for number in numbers])
        # Lock first: what is read after that cannot change.
        own = write(
            "SELECT t.id FROM streams t JOIN shards h ON h.id = t.shard"
            f" WHERE t.id = ANY(?) AND {_OWN} FOR SHARE OF h",
            (runs, self._history.node_id),
        )
        found = write(
            f"SELECT {EXTENT_COLUMNS} FROM extents WHERE run = ANY(?) AND segment_id = ANY(?)",
            (bigints([row[0] for row in own]), bigints(list(self._segments))),
        )
        left = {ExtentRow(*row) for row in found}
        sound = [number for number in numbers if left.issuperset(self._joined[number])]
        if not sound:
            return
        gone = [(row.run, row.start) for number in sound for row in self._joined[number]]
        source, values = unnest(("run", "start"), gone)
        write(
            f"DELETE FROM extents USING {source} WHERE extents.run = v.run"
            " AND extents.start = v.start",
            values,
        )
        drafts = [self.draft.extents[number] for number in sound]
        rows = [extent_row(self.draft.id, extent, extent.marks[-1]) for extent in drafts]
        source, values = unnest(EXTENT_COLUMNS.split(", "), rows)
        write(f"INSERT INTO extents ({EXTENT_COLUMNS}) SELECT * FROM {source}", values)


def _borrowed(history: PostgresqlHistory, row: SegmentRow) -> ColdSegment:
    """A segment to read to the end, not through the cache: no reader needs all of it."""
    history.ensure_directory()
    path = history.directory / f"{row.name}.old"
    try:
        segment = ColdSegment.begin(path, row, history.remote)
    except DataCorrupt:
        # It stays as it is; reads and `verify` will report it.
        history.damaged.add(row.id)
        raise
    path.unlink()
    return segment
