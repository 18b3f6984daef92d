"""Verifying the PostgreSQL database: is everything as committed?

Of history, only the rows are checked. The files are in object storage, and each of their blocks is
verified against its checksum whenever it is fetched.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headwater.core.errors import StreamError
from headwater.store import rows
from headwater.store.engine import Problem
from headwater.store.history.segment import PRESENT
from headwater.store.rows import CONFIG_COLUMNS, DELETED, OP_COLUMNS, SOFT_DELETED, Query
from headwater.store.sql.snapshots import damaged_snapshots

_STREAMS_AT_ONCE: Final = 500
_APPENDS_AT_ONCE: Final = 200


def verify(query: Query) -> Iterator[Problem | str]:
    """Check all streams: yields problems, and lines of progress between them."""
    last_id = appends = streams = 0
    while True:
        found = query(
            f"SELECT {CONFIG_COLUMNS}, status FROM streams WHERE id > ? AND status <> {DELETED}"
            " ORDER BY id LIMIT ?",
            (last_id, _STREAMS_AT_ONCE),
        )
        for row in found:
            last_id, streams = row[0], streams + 1
            config = rows.read_config(row[:-1])
            # Data of a soft-deleted stream that its forks do not need may be gone, and so may
            # trimmed data that they do not need.
            whole = row[-1] != SOFT_DELETED
            start = max(config.lineage.base, config.kept_from) if whole else None
            for line in _verify_run(query, config.id, start):
                if isinstance(line, Problem):
                    yield line
                else:
                    appends += line
        if len(found) < _STREAMS_AT_ONCE:
            break
        yield f"{streams:,} streams, {appends:,} appends"
    for where in damaged_snapshots(query):
        yield Problem(where, "the body is not what was committed")
    yield f"{streams:,} streams, {appends:,} appends"


def _verify_run(query: Query, run: int, start: int | None) -> Iterator[Problem | int]:
    """The appends of one stream, without a gap from `start` on: problems, and their number."""
    position, after = start, -1
    try:
        sealed = query(
            "SELECT e.start, e.until, s.remote FROM extents e LEFT JOIN segments s"
            " ON s.id = e.segment_id WHERE e.run = ? ORDER BY e.start",
            (run,),
        )
    except StreamError as error:
        yield Problem(f"stream {run}", error.message)
        return
    for first, until, remote in sealed:
        if remote != PRESENT:
            yield Problem(f"stream {run} at {first}", "its history is not in object storage")
        if position is not None and first > position:
            yield Problem(f"stream {run} at {position}", f"nothing until {first}")
        position = until if position is not None else None
    while True:
        try:
            found = query(
                f"SELECT {OP_COLUMNS} FROM ops WHERE stream_id = ? AND start > ?"
                " ORDER BY start LIMIT ?",
                (run, after, _APPENDS_AT_ONCE),
            )
        except StreamError as error:
            yield Problem(f"stream {run} after {after}", error.message)
            return
        for row in found:
            after = row[1]
            if not rows.op_is_intact(row):
                yield Problem(f"stream {run} at {after}", "the body is not what was committed")
            if position is not None:
                if after > position:
                    yield Problem(f"stream {run} at {position}", f"nothing until {after}")
                position = max(position, after + len(row[-1]))
        yield len(found)
        if len(found) < _APPENDS_AT_ONCE:
            return
