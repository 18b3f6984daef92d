"""Walking a database from end to end: is everything there, and is it what was committed?

Checked: every page's checksum and the database's own structure; every append's checksum; that the
appends of a stream follow each other without gap or overlap, in bytes and in messages; that what
forks inherit is still there.
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
from headwater.store.rows import CONFIG_COLUMNS, OP_COLUMNS
from headwater.store.wal import find_damage

_PROGRESS_EVERY: Final = 1_000


def verify_database(path: Path) -> Iterator[Problem | str]:
    """Problems as they are found, lines of progress in between."""
    connection = connect(path, read_only=True)
    try:
        yield from _check_log(connection, path)
        yield from _check_structure(connection)
        yield from _check_streams(connection)
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


def _check_streams(connection: apsw.Connection) -> Iterator[Problem | str]:
    streams = appends = 0
    for row in connection.execute(f"SELECT {CONFIG_COLUMNS} FROM streams WHERE status < 2"):
        config = rows.read_config(row)
        for result in _check_appends(connection, config):
            if isinstance(result, Problem):
                yield result
            else:
                appends += result
        yield from _check_inherited(connection, config)
        streams += 1
        if streams % _PROGRESS_EVERY == 0:
            yield f"{streams} streams, {appends} appends"
    yield f"{streams} streams, {appends} appends"


def _check_appends(connection: apsw.Connection, config: StreamConfig) -> Iterator[Problem | int]:
    position, messages = config.lineage.base, config.base_messages
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
            "SELECT max(start + length(body)) FROM ops WHERE stream_id = ?", (run,)
        ).fetchall()
        if int(found[0][0] or 0) < end:
            yield Problem(f"stream {config.path}", f"inherited data of stream {run} is missing")


# ── A glance ─────────────────────────────────────────────────────────────────────────────────


def sample_appends(connection: apsw.Connection, most: int) -> Iterator[Problem]:
    """Look at some appends, half of them the newest, the others spread over all there are."""
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
    found = connection.execute("SELECT created_at FROM ops ORDER BY id DESC LIMIT 1").fetchall()
    return int(found[0][0] or 0) if found else 0
