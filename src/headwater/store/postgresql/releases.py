"""Releases in the PostgreSQL database, and the rows that go with them; see `store.garbage`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from headwater.core.limits import MIB
from headwater.core.stream import StreamConfig
from headwater.store.garbage import Release
from headwater.store.postgresql.values import Statement, bigints, insert
from headwater.store.reachability import END, Interval, Member
from headwater.store.rows import LIVE, Query, Row

_MEMBER: Final = f"SELECT id, source_id, base, kept_from, status = {LIVE} FROM streams"
_BYTES_PER_STEP: Final = 4 * MIB
_STREAMS_PER_STEP: Final = 32
_COLUMNS: Final = "stream_id, start, until"
_GROW: Final = (
    " ON CONFLICT (stream_id) DO UPDATE SET start = least(releases.start, excluded.start),"
    " until = greatest(releases.until, excluded.until)"
)

# ── Noting ───────────────────────────────────────────────────────────────────────────────────


def trimmed_releases(kept_from: Mapping[int, int]) -> Statement:
    ids, untils = bigints(list(kept_from)), bigints(list(kept_from.values()))
    return (
        f"INSERT INTO releases ({_COLUMNS}) SELECT s.id, s.kept_from, v.until FROM streams s"
        f" JOIN unnest(%s, %s) AS v (id, until) ON s.id = v.id WHERE s.status < 2{_GROW}",
        (ids, untils),
    )


def soft_deleted_releases(ids: Sequence[int]) -> Statement:
    return (
        f"INSERT INTO releases ({_COLUMNS}) SELECT id, kept_from, {END} FROM streams"
        f" WHERE id = ANY(%s) AND status < 2{_GROW}",
        (bigints(ids),),
    )


def deleted_releases(ids: Sequence[int]) -> Statement:
    """The runs of these go with them; what they inherited, their sources may drop."""
    return (
        f"INSERT INTO releases ({_COLUMNS}) SELECT source_id, min(kept_from), max(base)"
        " FROM streams WHERE id = ANY(%s) AND status < 2 AND source_id IS NOT NULL"
        f" AND kept_from < base GROUP BY source_id{_GROW}",
        (bigints(ids),),
    )


def own_releases(configs: Sequence[StreamConfig]) -> Statement:
    """Of streams that were created within the same transaction, and keep less already.

    What they inherited was needed by their sources up to then, and if not any more, that is a
    release of its own.
    """
    return insert("releases", _COLUMNS, [(c.id, c.kept_from, END) for c in configs], _GROW)


def releases_of(found: Sequence[Row]) -> Statement:
    return insert("releases", _COLUMNS, found, _GROW)


# ── Working off ──────────────────────────────────────────────────────────────────────────────


class PostgresqlReleases:
    """Within one transaction."""

    def __init__(self, write: Query) -> None:
        self._write = write

    def member(self, stream_id: int) -> Member | None:
        found = self._write(f"{_MEMBER} WHERE id = %s AND status < 2", (stream_id,))
        return Member(*found[0]) if found else None

    def forks(self, stream_id: int, before: tuple[int, int], limit: int) -> Sequence[Member]:
        found = self._write(
            f"{_MEMBER} WHERE source_id = %s AND status < 2 AND (base, id) < (%s, %s)"
            " ORDER BY base DESC, id DESC LIMIT %s",
            (stream_id, *before, limit),
        )
        return [Member(*row) for row in found]

    def next_release(self) -> Release | None:
        found = self._write(f"SELECT {_COLUMNS} FROM releases LIMIT 1", ())
        return Release(*found[0]) if found else None

    def release(self, release: Release) -> None:
        sql, values = insert("releases", _COLUMNS, [release], _GROW)
        self._write(sql, values)

    def settle(self, release: Release) -> None:
        self._write(
            "DELETE FROM releases WHERE stream_id = %s AND start = %s AND until = %s", release
        )

    def last_start(self, run: int) -> int:
        sql = "SELECT coalesce(max(start), 0) FROM ops WHERE stream_id = %s"
        return int(self._write(sql, (run,))[0][0])

    def drop(self, run: int, interval: Interval, most: int) -> int:
        start, end = interval
        found = self._write(
            "SELECT start, octet_length(body) FROM ops"
            " WHERE stream_id = %s AND start >= %s AND start < %s ORDER BY start LIMIT %s",
            (run, start, end, most),
        )
        chosen = _within(found, end)
        if chosen:
            sql = "DELETE FROM ops WHERE stream_id = %s AND start = ANY(%s)"
            self._write(sql, (run, bigints(chosen)))
        return len(chosen)


def _within(found: Sequence[Row], end: int) -> list[int]:
    """Of appends in order, the first that lie before a position and are not too much at once."""
    chosen: list[int] = []
    size = 0
    for start, length in found:
        if start + length > end or (chosen and size + length > _BYTES_PER_STEP):
            break
        chosen.append(start)
        size += length
    return chosen


# What a deleted stream leaves besides its appends, and how the rows of each are told apart.
_BELONGINGS: Final = (
    ("message_ids", "stream_id = %s", "stream_id, message_id"),
    ("producers", "stream_id = %s", "stream_id, producer_id"),
    (
        "deliveries",
        "group_id IN (SELECT id FROM groups WHERE stream_id = %s)",
        "group_id, number",
    ),
    ("groups", "stream_id = %s", "id"),
    ("live_templates", "stream_id = %s", "stream_id, template_id"),
    ("snapshots", "stream_id = %s", "stream_id, position"),
)


def drop_deleted(releases: PostgresqlReleases, write: Query, most: int) -> bool:
    """Remove some of what deleted streams left; False when there was nothing."""
    found = write("SELECT id FROM streams WHERE status = 2 LIMIT %s", (_STREAMS_PER_STEP,))
    left = most
    for (stream_id,) in found:
        left -= 1 + releases.drop(stream_id, (0, END), left)
        for table, condition, key in _BELONGINGS:
            if left <= 0:
                return True
            removed = write(
                f"DELETE FROM {table} WHERE ({key}) IN"
                f" (SELECT {key} FROM {table} WHERE {condition} LIMIT %s) RETURNING 1",
                (stream_id, left),
            )
            left -= len(removed)
        if left <= 0:
            return True
        if not releases.drop(stream_id, (0, END), left):
            write("DELETE FROM streams WHERE id = %s", (stream_id,))
    return bool(found)
