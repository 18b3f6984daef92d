"""Segments and extents in the SQLite database; see `headwater.store.history`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import apsw

from headwater.store.engine.figures import HistoryFigures
from headwater.store.history.compaction_choice import FileUse
from headwater.store.history.interleaving import Share
from headwater.store.history.segment import ABSENT, PRESENT, SegmentRow
from headwater.store.history.segment_format import MAGIC
from headwater.store.history.segment_writer import Beginning, ExtentDraft, Mark, SegmentDraft
from headwater.store.rows import Query
from headwater.store.sql.extents import (
    EXTENT_COLUMNS,
    SEGMENT_COLUMNS,
    ExtentRow,
    extent_row,
    find_segments,
)
from headwater.store.sqlite.tables import insert_rows

# A longer part of the same extent replaces a shorter one.
_GROW: Final = (
    " ON CONFLICT DO UPDATE SET until = excluded.until, appends = excluded.appends,"
    " messages = excluded.messages, last_at = excluded.last_at"
    " WHERE segment_id = excluded.segment_id AND index_offset = excluded.index_offset"
)


def insert_segment(write: apsw.Connection, draft: SegmentDraft, now_ms: int) -> None:
    row = (draft.id, draft.name, draft.size_bytes, draft.root, 1, ABSENT, now_ms)
    insert_rows(write, "segments", f"{SEGMENT_COLUMNS}, created_at", [row])


def move_extents(
    write: apsw.Connection, old: Sequence[ExtentRow], segment_id: int, new: ExtentDraft
) -> bool:
    """Move a span of a run elsewhere; False if it is no longer where it was."""
    run, start, until = old[0].run, old[0].start, old[-1].until
    condition = "run = ? AND start >= ? AND start < ?"
    place = (run, start, until)
    found = write.execute(
        f"SELECT {EXTENT_COLUMNS} FROM extents WHERE {condition} ORDER BY start", place
    ).fetchall()
    if found != [tuple(row) for row in old]:
        return False
    write.execute(f"DELETE FROM extents WHERE {condition}", place)
    insert_extents(write, segment_id, [(new, new.marks[-1])])
    return True


def has_segment(write: apsw.Connection, segment_id: int) -> bool:
    return bool(write.execute("SELECT 1 FROM segments WHERE id = ?", (segment_id,)).fetchall())


def drop_rows(write: apsw.Connection, extent: ExtentDraft, since: Mark | None, to: Mark) -> bool:
    """Drop the rows that a part of an extent holds; False if they are not all there."""
    start = since.end if since else extent.start
    rows = to.appends - (since.appends if since else 0)
    place = (extent.run, start, to.end)
    condition = "stream_id = ?1 AND start >= ?2 AND start < ?3"
    found = write.execute(
        "SELECT count(*), EXISTS (SELECT 1 FROM streams WHERE id = ?1 AND status < 2)"
        f" FROM ops WHERE {condition}",
        place,
    ).fetchall()
    if found != [(rows, 1)]:
        return False
    write.execute(f"DELETE FROM ops WHERE {condition}", place)
    return True


def find_share(query: Query, run: int, room_bytes: int) -> Share | None:
    """What fits of a run, at least one append; None if it has no rows, or its stream is gone."""
    found = query(
        "SELECT start, first_message, id FROM ops WHERE stream_id = ?1 AND EXISTS"
        " (SELECT 1 FROM streams WHERE id = ?1 AND status < 2) ORDER BY start LIMIT 1",
        (run,),
    )
    if not found:
        return None
    start, first_message, first_id = found[0]
    # The last one that begins within the room fits, or what is before it does.
    found = query(
        "SELECT start, start + length(body), id FROM ops WHERE stream_id = ? AND start <= ?"
        " ORDER BY start DESC LIMIT 1",
        (run, start + room_bytes),
    )
    if not found:
        return None
    last_start, end, last_id = found[0]
    until = last_start if end > start + room_bytes and last_start > start else end
    found = query(
        "SELECT count(*), EXISTS (SELECT 1 FROM ops WHERE stream_id = ?1 AND start >= ?3)"
        " FROM ops WHERE stream_id = ?1 AND start >= ?2 AND start < ?3",
        (run, start, until),
    )
    appends, is_cut = found[0]
    return Share(
        Beginning(run, start, first_message, until - start),
        appends,
        first_id,
        last_id,
        bool(is_cut),
    )


def insert_extents(
    write: apsw.Connection, segment_id: int, parts: Iterable[tuple[ExtentDraft, Mark]]
) -> None:
    """Record extents, each up to a mark."""
    rows = [extent_row(segment_id, extent, to) for extent, to in parts]
    insert_rows(write, "extents", EXTENT_COLUMNS, rows, _GROW)


def drop_extents_within(
    write: apsw.Connection, run: int, interval: tuple[int, int], most: int
) -> int:
    """Drop some extents in an interval of a run; returns how many."""
    write.execute(
        "DELETE FROM extents WHERE run = ?1 AND start IN (SELECT start FROM extents"
        " WHERE run = ?1 AND start >= ?2 AND start < ?3 AND until <= ?3 LIMIT ?4)",
        (run, *interval, most),
    )
    return write.changes()


_EMPTY: Final = "NOT EXISTS (SELECT 1 FROM extents WHERE segment_id = s.id)"


def _is_unused(making: Collection[int]) -> str:
    """The condition that a segment has no extents, and never will."""
    return f"({_EMPTY} AND s.id NOT IN ({', '.join(map(str, tuple(making)))}))"


def unused_segments(query: Query, making: Collection[int], *, local: bool) -> list[SegmentRow]:
    """Unneeded segments, either those on this machine or the others."""
    here = f"(local = 1 OR remote = {ABSENT})"
    return find_segments(query, f"{_is_unused(making)} AND {here if local else f'NOT {here}'}")


def not_uploaded(query: Query, making: Collection[int]) -> list[SegmentRow]:
    condition = f"remote <> {PRESENT} AND local = 1 AND NOT {_is_unused(making)}"
    return find_segments(query, condition)


def evictable(query: Query, total: int, local_bytes_max: int) -> list[SegmentRow]:
    """The oldest files that object storage also has, enough to get below the limit."""
    chosen: list[SegmentRow] = []
    if total > local_bytes_max:
        for row in find_segments(query, f"local = 1 AND remote = {PRESENT}"):
            if total <= local_bytes_max:
                break
            chosen.append(row)
            total -= row.size_bytes
    return chosen


def note_remote(
    write: apsw.Connection, segment_id: int, remote: int, making: Collection[int]
) -> bool:
    """Record whether a segment is in object storage; False if it is no longer needed."""
    write.execute(
        f"UPDATE segments AS s SET remote = ? WHERE id = ? AND NOT {_is_unused(making)}",
        (remote, segment_id),
    )
    return write.changes() > 0


def note_not_local(write: apsw.Connection, segment_id: int) -> None:
    write.execute("UPDATE segments SET local = 0 WHERE id = ?", (segment_id,))


def delete_segment(write: apsw.Connection, segment_id: int) -> None:
    write.execute("DELETE FROM segments WHERE id = ?", (segment_id,))


def extents_of(query: Query, segments: Collection[int]) -> list[ExtentRow]:
    """The extents in some segments, by run and position."""
    places = ", ".join("?" * len(segments))
    found = query(
        f"SELECT {EXTENT_COLUMNS} FROM extents WHERE segment_id IN ({places}) ORDER BY run, start",
        tuple(segments),
    )
    return [ExtentRow(*row) for row in found]


def are_elsewhere(query: Query, segments: Collection[int]) -> bool:
    """Whether any of these segments is, or may be, in object storage."""
    places = ", ".join("?" * len(segments))
    sql = f"SELECT 1 FROM segments WHERE id IN ({places}) AND remote <> {ABSENT} LIMIT 1"
    return bool(query(sql, tuple(segments)))


def uses(query: Query) -> list[FileUse]:
    """How much of each file on this machine is needed."""
    columns = ", ".join(f"s.{name}" for name in SEGMENT_COLUMNS.split(", "))
    found = query(
        f"SELECT {columns}, count(*), sum(e.until - e.start), min(e.index_offset)"
        " FROM segments s JOIN extents e ON e.segment_id = s.id WHERE s.local = 1"
        " GROUP BY s.id ORDER BY s.id",
        (),
    )
    return [
        FileUse(SegmentRow(*row), extents, needed, index_offset - len(MAGIC))
        for *row, extents, needed, index_offset in found
    ]


def history_figures(query: Query) -> HistoryFigures:
    found = query(
        "SELECT sum(local), sum(size * local), sum(remote = ?1), sum(size * (remote = ?1)),"
        " sum(size * (local = 1 AND remote <> ?1)) FROM segments",
        (PRESENT,),
    )
    return HistoryFigures(*(int(value or 0) for value in found[0]))


def segment_names(query: Query) -> set[str]:
    """The files that belong on this machine."""
    return {row[0] for row in query("SELECT name FROM segments WHERE local = 1", ())}
