"""Segments in object storage that no database knows.

The database records an upload before it begins, and forgets a segment after it was removed. So a
server that crashes leaves nothing there that its database does not know. But segments that a lost
machine uploaded after its last catalog are unknown to the server restored from it, and so is an
abandoned upload that completed after all. A PostgreSQL database that was reset to an earlier time
does not know what was uploaded since. It has no catalogs; instead, an owner is recorded in object
storage.

Object listings may be stale. A stale one names segments that were removed since, and removing them
again does no harm, because names are never reused. It may also lack new ones, and those stay.
Everything in it was recorded before, so the database is queried after the listing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from headwater.core.errors import DataCorrupt
from headwater.store.history.catalog import decode_catalog
from headwater.store.history.object_storage import Remote
from headwater.store.history.segment import ABSENT
from headwater.store.rows import Query


class NotItsOwn(Exception):
    """Object storage holds the history of another server."""


def find_orphans(remote: Remote, query: Query) -> list[str]:
    """Names of segments that neither the database nor any catalog knows; raises NotItsOwn.

    That is raised if there is no catalog, or one that names segments of which the database knows
    none.
    """
    there = set(remote.segments())
    known = _known(query)
    catalogs = [*_read_catalogs(remote)]
    if there and not catalogs:
        raise NotItsOwn
    for named in catalogs:
        if named and not named & known:
            raise NotItsOwn
        there -= named
    return sorted(there - known)


def find_orphans_of(owner: str, remote: Remote, query: Query) -> list[str]:
    """The same if object storage records its owner, and there are no catalogs."""
    there = set(remote.segments())
    require_owner(owner, remote, is_empty=not there)
    return sorted(there - _known(query))


def require_owner(owner: str, remote: Remote, *, is_empty: bool = False) -> None:
    """Raises NotItsOwn unless object storage names this database, or is empty and names none."""
    found = remote.owner()
    if found != owner and not (found is None and is_empty):
        raise NotItsOwn


def _known(query: Query) -> set[str]:
    found = query(f"SELECT name FROM segments WHERE remote <> {ABSENT}", ())
    return {str(row[0]) for row in found}


def _read_catalogs(remote: Remote) -> Iterator[set[str]]:
    """The segments that each catalog names."""
    for name in remote.catalogs():
        # A missing one was just removed, and a damaged one is useless.
        with suppress(DataCorrupt):
            segments = decode_catalog(name, remote.get_catalog(name)).tables["segments"]
            rows = [dict(zip(segments.columns, row, strict=True)) for row in segments.rows]
            yield {str(row["name"]) for row in rows if row["remote"] != ABSENT}
