"""Verifying a database from end to end: is everything there, and as committed?

Checked are: every page's checksum and the database's own structure; every append's checksum, in
rows and in history files; that the appends of a stream are contiguous, in bytes and in messages;
that what forks inherit is still there; every block of every file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import apsw

from headwater.core.stream import StreamConfig
from headwater.store import rows
from headwater.store.engine import Problem
from headwater.store.history.open_segments import DIRECTORY_NAME
from headwater.store.history.verification import HistoryCheck
from headwater.store.reachability import END
from headwater.store.rows import CONFIG_COLUMNS, DELETED, LIVE, OP_COLUMNS, SOFT_DELETED
from headwater.store.sql.extents import EXTENT_COLUMNS, ExtentRow
from headwater.store.sql.snapshots import damaged_snapshots
from headwater.store.sqlite.database import connect
from headwater.store.sqlite.wal import find_damage

_PROGRESS_EVERY: Final = 1_000


def verify_database(path: Path) -> Iterator[Problem | str]:
    """Problems as they are found, lines of progress in between."""
    connection = connect(path, read_only=True)
    try:
        yield from _check_log(connection, path)
        yield from _check_structure(connection)
        files = HistoryCheck(connection, path)
        yield from _check_streams(connection, files)
        yield from files.check_blocks()
        for where in damaged_snapshots(
            lambda sql, values: connection.execute(sql, values).fetchall()
        ):
            yield Problem(where, "is not what was committed")
    except apsw.Error as error:
        yield Problem("database", f"cannot be read further: {error}")
    finally:
        connection.close()


def _check_log(connection: apsw.Connection, path: Path) -> Iterator[Problem]:
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    damage = find_damage(connection, path)
    if damage is not None:
        yield Problem("write-ahead log", damage)


def _check_structure(connection: apsw.Connection) -> Iterator[Problem | str]:
    yield "checking pages and indexes"
    for (line,) in connection.execute("PRAGMA integrity_check"):
        if line != "ok":
            yield Problem("database", str(line))


def _check_streams(connection: apsw.Connection, files: HistoryCheck) -> Iterator[Problem | str]:
    streams = appends = 0
    columns = f"status, {CONFIG_COLUMNS}"
    there = f"FROM streams WHERE status <> {DELETED}"
    for status, *row in connection.execute(f"SELECT {columns} {there}"):
        config = rows.read_config(tuple(row))
        # A soft-deleted stream need not be complete; what its forks need is checked as theirs.
        kept_from = END if status == SOFT_DELETED else config.kept_from
        # One consistent snapshot: a running server moves appends from rows into files.
        with connection:
            found = [*_check_appends(connection, config, kept_from, files)]
            inherited = [*_check_inherited(connection, config)] if status == LIVE else []
        for result in found:
            if isinstance(result, Problem):
                yield result
            else:
                appends += result
        yield from inherited
        streams += 1
        if streams % _PROGRESS_EVERY == 0:
            yield f"{streams} streams, {appends} appends"
    yield f"{streams} streams, {appends} appends"


class _Chain:
    """Spans of a run that must be contiguous from the first kept one on."""

    def __init__(self, config: StreamConfig, kept_from: int) -> None:
        self._position, self._messages = config.lineage.base, config.base_messages
        self._kept_from = kept_from

    def follow(self, where: str, start: int, first_message: int) -> Iterator[Problem]:
        if start < self._position or (start > self._position and start > self._kept_from):
            yield Problem(where, f"expected the next append at {self._position}")
        elif start == self._position and first_message != self._messages:
            yield Problem(where, f"expected message number {self._messages}")

    def add(self, end: int, messages: int) -> None:
        self._position, self._messages = end, messages


def _check_appends(
    connection: apsw.Connection, config: StreamConfig, kept_from: int, files: HistoryCheck
) -> Iterator[Problem | int]:
    chain = _Chain(config, kept_from)
    for row in connection.execute(
        f"SELECT {EXTENT_COLUMNS} FROM extents WHERE run = ? ORDER BY start", (config.id,)
    ):
        extent = ExtentRow(*row)
        where = f"stream {config.path} at {extent.start}"
        yield from chain.follow(where, extent.start, extent.first_message)
        yield from files.check_extent(where, extent)
        chain.add(extent.until, extent.first_message + extent.messages)
        yield extent.appends
    for row in connection.execute(
        f"SELECT {OP_COLUMNS} FROM ops WHERE stream_id = ? ORDER BY start", (config.id,)
    ):
        where = f"stream {config.path} at {row[1]}"
        append = rows.read_op(row)
        if not rows.op_is_intact(row):
            yield Problem(where, "the append does not match its checksum")
        yield from chain.follow(where, append.start, append.first_message)
        chain.add(append.end, append.first_message + append.messages)
        yield 1


def _check_inherited(connection: apsw.Connection, config: StreamConfig) -> Iterator[Problem]:
    """Whether everything that a fork inherits and keeps is there, in extents and in rows."""
    for run, start, end in config.lineage.spans(config.kept_from, config.lineage.base):
        found = connection.execute(
            "SELECT ifnull((SELECT sum(min(until, ?3) - max(start, ?2)) FROM extents"
            " WHERE run = ?1 AND start < ?3 AND until > ?2), 0) + ifnull("
            "(SELECT sum(min(start + length(body), ?3) - max(start, ?2)) FROM ops"
            " WHERE stream_id = ?1 AND start < ?3 AND start + length(body) > ?2), 0)",
            (run, start, end),
        ).fetchall()
        if int(found[0][0] or 0) != end - start:
            yield Problem(f"stream {config.path}", f"inherited data of stream {run} is missing")


# ── Sampling ─────────────────────────────────────────────────────────────────────────────────


def sample_appends(connection: apsw.Connection, most: int) -> Iterator[Problem]:
    """Check some appends: half of them the newest, the others spread over all."""
    query = f"SELECT {OP_COLUMNS} FROM ops"
    for row in connection.execute(f"{query} ORDER BY id DESC LIMIT ?", (most // 2,)):
        yield from _damage_of(row)
    bounds = connection.execute("SELECT min(id), max(id) FROM ops").fetchall()[0]
    if bounds[0] is None:
        return
    first, last = int(bounds[0]), int(bounds[1] or 0)
    step = max(1, (last - first) // max(1, most // 2))
    for start in range(first, last + 1, step):
        for row in connection.execute(f"{query} WHERE id >= ? ORDER BY id LIMIT 1", (start,)):
            yield from _damage_of(row)


def _damage_of(row: rows.Row) -> Iterator[Problem]:
    if not rows.op_is_intact(row):
        yield Problem(f"stream {row[0]} at {row[1]}", "the append does not match its checksum")


def newest_append_ms(connection: apsw.Connection) -> int:
    """When the newest append was written; 0 if there is none."""
    newest = 0
    for query in (
        "SELECT created_at FROM ops ORDER BY id DESC LIMIT 1",
        *(["SELECT max(last_at) FROM extents"] if _has_history(connection) else []),
    ):
        found = connection.execute(query).fetchall()
        newest = max(newest, int(found[0][0] or 0) if found else 0)
    return newest


def missing_files(connection: apsw.Connection, directory: Path) -> Iterator[Problem]:
    """History files that are missing or have another size."""
    if not _has_history(connection):
        return
    query = "SELECT id, name, size FROM segments WHERE local = 1"
    for segment_id, name, size in connection.execute(query).fetchall():
        path = directory / DIRECTORY_NAME / str(name)
        try:
            if path.stat().st_size != size:
                yield Problem(f"segment {segment_id}", "its file has another size than it had")
        except FileNotFoundError:
            # A running server may have removed it as unneeded.
            needed = "SELECT 1 FROM extents WHERE segment_id = ? LIMIT 1"
            if connection.execute(needed, (segment_id,)).fetchall():
                yield Problem(f"segment {segment_id}", "its file of history is missing")


def _has_history(connection: apsw.Connection) -> bool:
    """Databases of older versions have none."""
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'segments'")
    return bool(found.fetchall())
