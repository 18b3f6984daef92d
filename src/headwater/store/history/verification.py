"""Verifying history files: does each hold what the database says, as it was written?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw

from headwater.core.errors import DataCorrupt
from headwater.store.checksums import append_checksum
from headwater.store.engine import Problem
from headwater.store.history.extent import Extent
from headwater.store.history.open_segments import DIRECTORY_NAME, OpenSegments
from headwater.store.history.segment import Segment, SegmentRow
from headwater.store.rows import Row
from headwater.store.sql.extents import SEGMENT_COLUMNS, ExtentRow
from headwater.store.sqlite.database import connect


class HistoryCheck:
    def __init__(self, connection: apsw.Connection, database: Path) -> None:
        self._connection = connection
        self._database = database
        self._segments = OpenSegments(database.parent / DIRECTORY_NAME)

    def check_extent(self, where: str, row: ExtentRow) -> Iterator[Problem]:
        """Verify every append of an extent against the database and its own checksum."""
        try:
            segment = self._segment(row.segment_id)
            if segment is None:
                if not self._is_elsewhere(row.segment_id):
                    yield Problem(where, f"the database knows no segment {row.segment_id}")
            else:
                yield from self._check_index(where, row, segment.extent(row.index_offset))
        except FileNotFoundError:
            yield from self._missing(where, row.segment_id)
        except DataCorrupt as error:
            yield Problem(where, error.where)

    def _check_index(self, where: str, row: ExtentRow, extent: Extent) -> Iterator[Problem]:
        header = extent.header
        ends = extent.start_of(row.appends), extent.first_message(row.appends)
        said = row.until, row.first_message + row.messages
        if (header.run, header.start, *ends) != (row.run, row.start, *said):
            yield Problem(where, "the file and the database disagree about what it holds")
            return
        position = row.start
        for number in range(row.appends):
            append, end = extent.append(number), extent.start_of(number + 1)
            body = extent.body(position, end)
            if append.checksum != append_checksum(row.run, position, body):
                yield Problem(where, f"the append at {position} does not match its checksum")
            position = end

    def check_blocks(self) -> Iterator[Problem | str]:
        """Every block of every file, including those that no stream reads any more."""
        found = self._connection.execute(
            "SELECT id FROM segments WHERE local = 1 ORDER BY id"
        ).fetchall()
        for (segment_id,) in found:
            where = f"segment {segment_id}"
            try:
                segment = self._segment(int(segment_id or 0))
                if segment is not None:
                    segment.check_all()
            except FileNotFoundError:
                yield from self._missing(where, int(segment_id or 0))
            except DataCorrupt as error:
                yield Problem(where, error.where)
        if found:
            yield f"{len(found)} files of history"
        elsewhere = self._connection.execute("SELECT count(*) FROM segments WHERE local = 0")
        count = int(elsewhere.fetchall()[0][0] or 0)
        if count:
            yield f"{count} more are only in object storage and were not looked at"

    def _segment(self, segment_id: int) -> Segment | None:
        """A local file, if the database lists it as one."""
        found: list[Row] = self._connection.execute(
            f"SELECT {SEGMENT_COLUMNS} FROM segments WHERE id = ? AND local = 1", (segment_id,)
        ).fetchall()
        return self._segments.segment(SegmentRow(*found[0])) if found else None

    def _is_elsewhere(self, segment_id: int) -> bool:
        return bool(
            self._connection.execute(
                "SELECT 1 FROM segments WHERE id = ? AND local = 0", (segment_id,)
            ).fetchall()
        )

    def _missing(self, where: str, segment_id: int) -> Iterator[Problem]:
        """A missing file. A running server may have removed it as unneeded."""
        with closing(connect(self._database, read_only=True)) as now:
            needed = now.execute(
                "SELECT 1 FROM segments s JOIN extents ON segment_id = s.id"
                " WHERE s.id = ? AND s.local = 1 LIMIT 1",
                (segment_id,),
            ).fetchall()
        if needed:
            yield Problem(where, "its file of history is missing")
