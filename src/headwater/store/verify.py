"""Walking a database from end to end: is everything there, and is it what was committed?

Checked: every page's checksum and the database's own structure; every append's checksum, in rows
and in files of history; that the appends of a stream follow each other without gap or overlap, in
bytes and in messages; that what forks inherit is still there; every block of every file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import apsw

from headwater.core.stream import StreamConfig
from headwater.store import rows
from headwater.store.database import connect
from headwater.store.engine import Problem
from headwater.store.history.check import HistoryCheck
from headwater.store.history_tables import EXTENT_COLUMNS, ExtentRow
from headwater.store.rows import CONFIG_COLUMNS, OP_COLUMNS
from headwater.store.snapshot_tables import damaged_snapshots
from headwater.store.wal import find_damage

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
        for where in damaged_snapshots(connection):
            yield Problem(where, "is not what was committed")
    except apsw.Error as error:
        yield Problem("database", f"cannot be read further: {error}")
    finally:
        connection.close()


def _check_log(connection: apsw.Connection, path: Path) -> Iterator[Problem]:
    page_bytes = connection.pragma("page_size")
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    damage = find_damage(path, page_bytes)
    if damage is not None:
        yield Problem("write-ahead log", damage)


def _check_structure(connection: apsw.Connection) -> Iterator[Problem | str]:
    yield "checking pages and indexes"
    for (line,) in connection.execute("PRAGMA integrity_check"):
        if line != "ok":
            yield Problem("database", str(line))


def _check_streams(connection: apsw.Connection, files: HistoryCheck) -> Iterator[Problem | str]:
    streams = appends = 0
    for row in connection.execute(f"SELECT {CONFIG_COLUMNS} FROM streams WHERE status < 2"):
        config = rows.read_config(row)
        # One moment for all of it: a running server moves appends from rows into files.
        with connection:
            found = [*_check_appends(connection, config, files)]
            inherited = [*_check_inherited(connection, config)]
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


def _check_appends(
    connection: apsw.Connection, config: StreamConfig, files: HistoryCheck
) -> Iterator[Problem | int]:
    position, messages = config.lineage.base, config.base_messages
    for row in connection.execute(
        f"SELECT {EXTENT_COLUMNS} FROM extents WHERE run = ? ORDER BY start", (config.id,)
    ):
        extent = ExtentRow(*row)
        where = f"stream {config.path} at {extent.start}"
        if extent.start != position:
            yield Problem(where, f"expected the next extent at {position}")
        elif extent.first_message != messages:
            yield Problem(where, f"expected message number {messages}")
        yield from files.check_extent(where, extent)
        position, messages = extent.until, extent.first_message + extent.messages
        yield extent.appends
    for row in connection.execute(
        f"SELECT {OP_COLUMNS} FROM ops WHERE stream_id = ? ORDER BY start", (config.id,)
    ):
        where = f"stream {config.path} at {row[1]}"
        append = rows.read_op(row)
        if not rows.op_is_intact(row):
            yield Problem(where, "the append does not match its checksum")
        if append.start != position:
            yield Problem(where, f"expected the next append at {position}")
        elif append.first_message != messages:
            yield Problem(where, f"expected message number {messages}")
        position, messages = append.end, append.first_message + append.messages
        yield 1


def _check_inherited(connection: apsw.Connection, config: StreamConfig) -> Iterator[Problem]:
    for run, end in config.lineage.inherited:
        found = connection.execute(
            "SELECT max(ifnull((SELECT max(start + length(body)) FROM ops WHERE stream_id = ?1),0),"
            " ifnull((SELECT max(until) FROM extents WHERE run = ?1), 0))",
            (run,),
        ).fetchall()
        if int(found[0][0] or 0) < end:
            yield Problem(f"stream {config.path}", f"inherited data of stream {run} is missing")
