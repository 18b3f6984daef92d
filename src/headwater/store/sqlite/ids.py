"""Ids that a table of the SQLite database has not given out."""

from __future__ import annotations

from headwater.store.rows import Query


def next_id(query: Query, table: str) -> int:
    """The smallest id that a table has never given out."""
    found = query("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,))
    return int(found[0][0]) + 1 if found else 1
