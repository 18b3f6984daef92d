"""Restoring a data directory from object storage: what the newest catalog names, and nothing else.

Streams are restored as far as their segments were uploaded. What a stream wrote after that is lost,
and the stream gets the state it had at that point: producers may send lost data again, a closed
stream whose end is missing is open again, groups are not beyond the end. A fork with missing
inherited data cannot be restored.

Segments stay where they are; the new directory reads them from there.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import apsw

from headwater.core.errors import DataCorrupt
from headwater.core.lineage import Span
from headwater.core.producers import ProducerStamp
from headwater.core.stream import StreamConfig
from headwater.store import rows
from headwater.store.history.catalog import Catalog, decode_catalog
from headwater.store.history.cold_segments import ColdSegment, fetching
from headwater.store.history.object_storage import Remote
from headwater.store.history.segment import ABSENT, PRESENT, SegmentRow
from headwater.store.permissions import make_directory
from headwater.store.rows import CONFIG_COLUMNS, DELETED, KEPT, LIVE, Row
from headwater.store.sql.extents import SEGMENT_COLUMNS
from headwater.store.sqlite.database import (
    DATABASE_NAME,
    DataDirectoryError,
    empty_log,
    open_writer,
)
from headwater.store.sqlite.schema import DERIVED, SCHEMA_VERSION
from headwater.store.sqlite.tables import insert_rows

# Ids assigned after the catalog was made must not be reused either.
_IDS_SKIPPED: Final = 1_000_000
_SCRATCH: Final = "restoring"


class Missing(NamedTuple):
    """What could not be restored of a stream."""

    path: str
    size_bytes: int
    messages: int
    whole_stream: bool = False


class _End(NamedTuple):
    end: int
    messages: int


class Restored(NamedTuple):
    made_at_ms: int
    streams: int
    size_bytes: int
    missing: list[Missing]
    skipped: list[str]
    """Newer catalogs that were damaged."""


def restore(remote: Remote, directory: Path) -> Restored:
    """Create a data directory. Raises DataDirectoryError if that is not possible."""
    if (directory / DATABASE_NAME).exists():
        raise DataDirectoryError(f"{directory} holds streams already; name an empty directory")
    catalog, skipped = _newest(remote)
    scratch = directory / _SCRATCH
    make_directory(directory)
    make_directory(scratch)
    for leftover in scratch.iterdir():
        leftover.unlink()
    with closing(open_writer(scratch / DATABASE_NAME)) as write:
        with write:
            restored = _Restoring(write, remote, scratch, catalog).run(skipped)
        if not empty_log(write):
            raise DataDirectoryError(f"{scratch} is in use by another process; try again")
    # In one step, so that a crash leaves no half-made directory.
    (scratch / DATABASE_NAME).rename(directory / DATABASE_NAME)
    for leftover in scratch.iterdir():
        leftover.unlink()
    scratch.rmdir()
    return restored


def _newest(remote: Remote) -> tuple[Catalog, list[str]]:
    skipped: list[str] = []
    for name in reversed(remote.catalogs()):
        try:
            catalog = decode_catalog(name, remote.get_catalog(name))
        except DataCorrupt as error:
            skipped.append(error.where)
            continue
        if catalog.schema > SCHEMA_VERSION:
            raise DataDirectoryError(f"{name} was made by a newer headwater; upgrade this one")
        return catalog, skipped
    if remote.owner() is not None:
        raise DataDirectoryError(
            f"{remote.url} holds the history of a PostgreSQL database; restore that database with"
            " PostgreSQL's own tools, and its history is there"
        )
    raise DataDirectoryError(f"{remote.url} holds no catalog to restore from")


class _Restoring:
    def __init__(
        self, write: apsw.Connection, remote: Remote, scratch: Path, catalog: Catalog
    ) -> None:
        self._write = write
        self._remote = remote
        self._scratch = scratch
        self._catalog = catalog
        self._in_rows = {one.stream_id: _End(one.end, one.messages) for one in catalog.in_rows}

    def run(self, skipped: list[str]) -> Restored:
        self._insert_tables()
        configs = self._streams()
        known = {config.id: self._reach(config) for config in configs}
        self._keep_uploaded(configs)
        missing: list[Missing] = []
        for config in configs:
            there, was = self._end(config), known[config.id]
            if there.end < was.end:
                self._take_back(config, there)
                messages = was.messages - there.messages
                missing.append(Missing(config.path, was.end - there.end, messages))
        missing += self._drop_forks(configs)
        # It is unknown whether deleted streams are complete, so they cannot be undeleted.
        self._write.execute(f"UPDATE streams SET status = {DELETED} WHERE status = {KEPT}")
        self._write.execute(DERIVED)
        # Other unneeded segments are known to be there, and are removed like all unused ones.
        self._write.execute(f"DELETE FROM segments WHERE remote = {ABSENT}")
        streams = self._one("SELECT count(*) FROM streams WHERE status < 2")
        size = self._one("SELECT sum(until - start) FROM extents")
        return Restored(self._catalog.made_at_ms, streams, size, missing, skipped)

    def _one(self, sql: str, *values: int) -> int:
        return int(self._write.execute(sql, values).fetchall()[0][0] or 0)

    def _insert_tables(self) -> None:
        for name, table in self._catalog.tables.items():
            values = [tuple(row) for row in table.rows]
            insert_rows(self._write, name, ", ".join(table.columns), values)
        for name, seq in self._catalog.sequences.items():
            self._write.execute("DELETE FROM sqlite_sequence WHERE name = ?", (name,))
            self._write.execute(
                "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (name, seq + _IDS_SKIPPED)
            )

    def _streams(self) -> list[StreamConfig]:
        """Streams that exist for everyone. Of others at most what forks need is there."""
        found: list[Row] = self._write.execute(
            f"SELECT {CONFIG_COLUMNS} FROM streams WHERE status = {LIVE} ORDER BY id"
        ).fetchall()
        return [rows.read_config(row) for row in found]

    # ── How far streams reach ────────────────────────────────────────────────────────────────

    def _reach(self, config: StreamConfig) -> _End:
        """How far a stream reached when the catalog was made."""
        sealed = self._end(config)
        return max(sealed, self._in_rows.get(config.id, sealed))

    def _end(self, config: StreamConfig) -> _End:
        """Where the available part of a stream ends."""
        found = self._write.execute(
            "SELECT until, first_message + messages FROM extents WHERE run = ?"
            " ORDER BY start DESC LIMIT 1",
            (config.id,),
        ).fetchall()
        if not found:
            return _End(config.lineage.base, config.base_messages)
        return _End(int(found[0][0] or 0), int(found[0][1] or 0))

    def _keep_uploaded(self, configs: list[StreamConfig]) -> None:
        """Forget extents whose segment is not in object storage, and everything after a gap."""
        self._write.execute("UPDATE segments SET local = 0")
        self._write.execute(
            "DELETE FROM extents WHERE segment_id NOT IN"
            " (SELECT id FROM segments WHERE remote = ?)",
            (PRESENT,),
        )
        for config in configs:
            end = config.lineage.base
            found = self._write.execute(
                "SELECT start, until FROM extents WHERE run = ? ORDER BY start", (config.id,)
            ).fetchall()
            for start, until in found:
                if int(start or 0) > max(end, config.kept_from):
                    self._write.execute(
                        "DELETE FROM extents WHERE run = ? AND start >= ?", (config.id, start)
                    )
                    break
                end = int(until or 0)

    # ── Restoring the state ──────────────────────────────────────────────────────────────────

    def _take_back(self, config: StreamConfig, there: _End) -> None:
        """Return a stream to the state it had when it ended here."""
        run, end = config.id, there.end
        write = self._write.execute
        write(
            "UPDATE streams SET closed_at = NULL, closed_by_id = NULL, closed_by_epoch = NULL,"
            " closed_by_seq = NULL, last_stream_seq = NULL, kept_from = min(kept_from, ?)"
            " WHERE id = ?",
            (end, run),
        )
        write("DELETE FROM message_ids WHERE stream_id = ? AND position >= ?", (run, end))
        write(
            "DELETE FROM deliveries WHERE start >= ? AND group_id IN"
            " (SELECT id FROM groups WHERE stream_id = ?)",
            (end, run),
        )
        write(
            "UPDATE groups SET cursor_number = ?, cursor_start = ?, cursor_place = 0"
            " WHERE stream_id = ? AND cursor_start > ?",
            (there.messages, end, run, end),
        )
        write("DELETE FROM producers WHERE stream_id = ?", (run,))
        stamps = self._stamps(run)
        insert_rows(
            self._write,
            "producers",
            "stream_id, producer_id, epoch, seq",
            [(run, stamp.id, stamp.epoch, stamp.seq) for stamp in stamps.values()],
        )

    def _stamps(self, run: int) -> dict[str, ProducerStamp]:
        """The last stamp of each producer in the available part of a run."""
        found: list[Row] = self._write.execute(
            f"SELECT index_offset, {SEGMENT_COLUMNS} FROM extents JOIN segments ON id = segment_id"
            " WHERE run = ? ORDER BY start",
            (run,),
        ).fetchall()
        stamps: dict[str, ProducerStamp] = {}
        for index_offset, *row in found:
            segment = ColdSegment.begin(self._scratch / "segment", SegmentRow(*row), self._remote)
            extent = fetching(partial(segment.extent, index_offset))
            everything = partial(extent.stamps, 0, extent.header.appends)
            stamps |= {stamp.id: stamp for stamp in fetching(everything).values()}
        return stamps

    # ── Forks ────────────────────────────────────────────────────────────────────────────────

    def _drop_forks(self, configs: list[StreamConfig]) -> list[Missing]:
        """Forks with missing inherited data, and sources that nobody needs then."""
        missing: list[Missing] = []
        for config in configs:
            spans = config.lineage.spans(config.kept_from, config.lineage.base)
            lacking = sum(span.end - span.start - self._covered(span) for span in spans)
            if lacking:
                self._write.execute("UPDATE streams SET status = 2 WHERE id = ?", (config.id,))
                missing.append(Missing(config.path, lacking, 0, whole_stream=True))
        while True:
            self._write.execute(
                "UPDATE streams SET status = 2 WHERE status = 1 AND id NOT IN (SELECT source_id"
                " FROM streams WHERE status < 2 AND source_id IS NOT NULL)"
            )
            if not self._write.changes():
                return missing

    def _covered(self, span: Span) -> int:
        run, start, end = span
        return self._one(
            "SELECT sum(min(until, ?3) - max(start, ?2)) FROM extents"
            " WHERE run = ?1 AND start < ?3 AND until > ?2",
            *(run, start, end),
        )
