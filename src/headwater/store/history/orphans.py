"""Segments in object storage that nobody knows of.

The database notes an upload before it is begun, and forgets a segment after it was removed. So a
server that crashes leaves nothing there that its database does not know. But what a machine that is
lost had uploaded after its last catalog is unknown to the one that was restored from it, and so is
an upload that was given up for lost and came to its end after all. A PostgreSQL database that was
set back to an earlier moment does not know what was uploaded since. It has no catalogs; instead,
object storage says whose it is.

Lists of objects may be old. One that is too old names segments that have been removed since, and
removing them again does no harm, for names are never used twice. It may also lack new ones, and
those stay. What is in it was noted before, so the database is asked after the list was made.
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

    That is when there is no catalog, or one that names segments of which the database knows none.
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
    """The same where object storage says whose it is, and there are no catalogs."""
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
        # One that is not there has just been removed, and a damaged one is of no use to anybody.
        with suppress(DataCorrupt):
            segments = decode_catalog(name, remote.get_catalog(name)).tables["segments"]
            rows = [dict(zip(segments.columns, row, strict=True)) for row in segments.rows]
            yield {str(row["name"]) for row in rows if row["remote"] != ABSENT}
