"""What a transaction releases, recorded in the PostgreSQL database; see `store.garbage`.

The rows of stored streams say what they needed so far, so this comes before any change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headwater.core.stream import StreamConfig
from headwater.store.postgresql.tables import StatementTables
from headwater.store.postgresql.values import bigints
from headwater.store.reachability import END
from headwater.store.rows import Row
from headwater.store.sql.releases import GROW, RELEASE_COLUMNS

_INTO = f"INSERT INTO releases ({RELEASE_COLUMNS})"


def release_trimmed(tables: StatementTables, kept_from: Mapping[int, int]) -> None:
    """At least one position each, so that a release in progress grows by it."""
    ids, untils = bigints(list(kept_from)), bigints(list(kept_from.values()))
    tables.execute(
        f"{_INTO} SELECT s.id, s.kept_from, greatest(v.until, s.kept_from + 1) FROM streams s"
        f" JOIN unnest(?, ?) AS v (id, until) ON s.id = v.id WHERE s.status < 2{GROW}",
        (ids, untils),
    )


def release_soft_deleted(tables: StatementTables, ids: Sequence[int]) -> None:
    tables.execute(
        f"{_INTO} SELECT id, kept_from, {END} FROM streams WHERE id = ANY(?) AND status < 2{GROW}",
        (bigints(ids),),
    )


def release_deleted(tables: StatementTables, ids: Sequence[int]) -> None:
    """The runs of these are dropped with them; their sources may drop what they inherited."""
    tables.execute(
        f"{_INTO} SELECT source_id, min(kept_from), max(base)"
        " FROM streams WHERE id = ANY(?) AND status < 2 AND source_id IS NOT NULL"
        f" AND kept_from < base GROUP BY source_id{GROW}",
        (bigints(ids),),
    )


def release_created(tables: StatementTables, configs: Sequence[StreamConfig]) -> None:
    """Streams that were created in the same transaction, and already keep less.

    Their sources needed what they inherited up to then, and if no longer, that is a release of its
    own.
    """
    release(tables, [(config.id, config.kept_from, END) for config in configs])


def release(tables: StatementTables, found: Sequence[Row]) -> None:
    tables.insert("releases", RELEASE_COLUMNS, found, GROW)
