"""Streams as rows of the PostgreSQL database; their appends are written elsewhere, together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headwater.core.lineage import Lineage
from headwater.core.producers import ProducerState
from headwater.core.stream import (
    Appended,
    Closed,
    Created,
    Deleted,
    Mutation,
    ProducersForgotten,
    Purged,
    Reconfigured,
    SoftDeleted,
    StreamConfig,
    StreamState,
    Touched,
    Trimmed,
    TrimPlanned,
    Undeleted,
)
from headwater.core.subscriptions.state import StreamTail
from headwater.store import rows
from headwater.store.engine import (
    DeletedStream,
    IdleProducer,
    LoadedStream,
    SoftDeletedStream,
    StreamSummary,
)
from headwater.store.postgresql.ids import next_id, used_ids
from headwater.store.postgresql.ownership import SHARD
from headwater.store.postgresql.releases import (
    deleted_releases,
    own_releases,
    releases_of,
    soft_deleted_releases,
    trimmed_releases,
)
from headwater.store.postgresql.values import Statement, delete, insert, update
from headwater.store.rows import (
    CONFIG_COLUMNS,
    CREATED_COLUMNS,
    DELETED,
    KEPT,
    LIVE,
    SETTINGS_COLUMNS,
    SOFT_DELETED,
    STATE_COLUMNS,
    Query,
    Row,
)

_CONFIG_WIDTH: Final = len(CONFIG_COLUMNS.split(","))
_LAST: Final = (
    " LEFT JOIN LATERAL (SELECT start + octet_length(body) AS last_byte,"
    " first_message + messages AS last_message FROM ops WHERE stream_id = s.id"
    " ORDER BY start DESC LIMIT 1) AS last ON true"
)
_LOADED: Final = (
    f"SELECT {CONFIG_COLUMNS}, {STATE_COLUMNS}, last_byte, last_message,"
    " (SELECT count(*) FROM streams f WHERE f.source_id = s.id AND f.status < 2)"
    f" FROM streams s{_LAST} "
)
# The upper bound lets the index on the path stop where the prefix does.
_LISTED: Final = (
    f"WHERE status < 2 AND status = {LIVE} AND path >= %s AND path > %s"
    " AND path < %s ORDER BY path LIMIT %s"
)


# Of several that were deleted at a path, the last one; none if there is a stream again.
_UNDELETABLE: Final = (
    f"WHERE status = {KEPT} AND path >= %s AND path > %s AND path < %s"
    f" AND id = (SELECT id FROM streams k WHERE k.status = {KEPT} AND k.path = s.path"
    " ORDER BY k.deleted_at DESC, k.id DESC LIMIT 1)"
    " AND NOT EXISTS (SELECT 1 FROM streams t WHERE t.status < 2 AND t.path = s.path)"
    " ORDER BY path LIMIT %s"
)


class StreamChanges:
    """The changes to streams within one transaction, one statement for each kind.

    Streams that go make room for those that come to the same path; whatever else happens to a
    stream does not concern any other, so the order between streams does not matter.
    """

    def __init__(self) -> None:
        self._created: dict[int, StreamConfig] = {}
        self._status: dict[int, tuple[int, int | None, int | None]] = {}
        """Status, since when it is deleted, until when it is kept."""
        self._undeleted: dict[int, int] = {}
        """Streams that came back, and from where on they keep their data."""
        self._closed: dict[int, Row] = {}
        self._settings: dict[int, Row] = {}
        self._kept_from: dict[int, int] = {}
        self._touched: dict[int, int] = {}
        self._stream_seqs: dict[int, str] = {}
        self._trim_dues: dict[int, int | None] = {}
        self._forgotten: list[tuple[int, str]] = []

    def add(self, mutation: Mutation) -> None:
        match mutation:
            case Appended():
                if mutation.stream_seq is not None:
                    self._stream_seqs[mutation.stream_id] = mutation.stream_seq
                if mutation.trim_due_ms is not None:
                    self._trim_dues[mutation.stream_id] = mutation.trim_due_ms
            case Created(config):
                self._created[config.id] = config
            case Closed(stream_id, at_ms, producer):
                self._closed[stream_id] = (at_ms, *(producer or (None, None, None)))
            case Reconfigured(stream_id, at_ms, config):
                self._settings[stream_id] = rows.settings_row(config, at_ms)
                self._touched.pop(stream_id, None)
                self._trim_dues.pop(stream_id, None)
            case Trimmed(stream_id, _, config):
                self._kept_from[stream_id] = config.kept_from
            case TrimPlanned(stream_id, due_ms):
                self._trim_dues[stream_id] = due_ms
            case Touched(stream_id, at_ms):
                self._touched[stream_id] = at_ms
            case ProducersForgotten(stream_id, ids):
                self._forgotten += [(stream_id, producer_id) for producer_id in ids]
            case SoftDeleted(stream_id, at_ms):
                self._status[stream_id] = (SOFT_DELETED, at_ms, None)
            case Deleted(stream_id, at_ms, kept_until_ms):
                status = DELETED if kept_until_ms is None else KEPT
                self._status[stream_id] = (status, at_ms, kept_until_ms)
            case Undeleted(stream_id, at_ms, state):
                self._status[stream_id] = (LIVE, None, None)
                self._touched[stream_id] = at_ms
                self._undeleted[stream_id] = state.config.kept_from
            case Purged(stream_id):
                self._status[stream_id] = (DELETED, None, None)
            case _:
                pass

    def statements(self) -> Iterator[Statement]:
        yield from self._releases()
        gone = [(i, *status) for i, status in self._status.items() if i not in self._created]
        if gone:
            yield update("streams", "id", "status, deleted_at, kept_until", gone)
        if self._created:
            yield used_ids("streams", max(self._created))
            created = [self._created_row(config) for config in self._created.values()]
            columns = f"{CREATED_COLUMNS}, status, deleted_at, kept_until, shard"
            yield insert("streams", columns, created)
        if self._settings:
            found = [(i, *row) for i, row in self._settings.items()]
            yield update("streams", "id", SETTINGS_COLUMNS, found)
        if self._closed:
            columns = "closed_at, closed_by_id, closed_by_epoch, closed_by_seq"
            found = [(i, *row) for i, row in self._closed.items()]
            yield update("streams", "id", columns, found)
        if self._kept_from:
            yield update("streams", "id", "kept_from", list(self._kept_from.items()))
        if self._touched:
            sql, values = update("streams", "id", "touched_at", list(self._touched.items()))
            moved = "SET deadline = deadline + (v.touched_at - t.touched_at), "
            yield sql.replace("SET ", moved, 1), values
        if self._stream_seqs:
            found = list(self._stream_seqs.items())
            yield update("streams", "id", "last_stream_seq", found)
        if self._trim_dues:
            yield update("streams", "id", "trim_due", list(self._trim_dues.items()))
        if self._forgotten:
            yield delete("producers", "stream_id, producer_id", self._forgotten)

    def _created_row(self, config: StreamConfig) -> Row:
        status = self._status.get(config.id, (LIVE, None, None))
        return (*rows.created_row(config), *status, SHARD)

    def _releases(self) -> Iterator[Statement]:
        """What is not needed any more; see `headwater.store.garbage`.

        Of streams that are stored, the rows say what they needed so far, so this comes first.
        """
        trimmed = {i: at for i, at in self._kept_from.items() if i not in self._created}
        if trimmed:
            yield trimmed_releases(trimmed)
        stored = [(i, status) for i, (status, *_) in self._status.items() if i not in self._created]
        if soft_deleted := [i for i, status in stored if status == SOFT_DELETED]:
            yield soft_deleted_releases(soft_deleted)
        if deleted := [i for i, status in stored if status in (DELETED, KEPT)]:
            yield deleted_releases(deleted)
        if trimmed_before := [(i, 0, at) for i, at in self._undeleted.items() if at]:
            # What it had released before may be forgotten.
            yield releases_of(trimmed_before)
        shrunk = {*self._status, *self._kept_from}
        brief = [config for i, config in self._created.items() if i in shrunk]
        if brief:
            yield own_releases(brief)


class Streams:
    def __init__(self, query: Query, producers_preloaded_max: int) -> None:
        self._query = query
        self._producers_max = producers_preloaded_max

    def next_id(self) -> int:
        return next_id(self._query, "streams")

    def load(self, path: str) -> LoadedStream | None:
        return self._load("WHERE path = %s AND status < 2", path)

    def load_id(self, stream_id: int) -> LoadedStream | None:
        return self._load("WHERE id = %s AND status < 2", stream_id)

    def load_deleted(self, path: str) -> LoadedStream | None:
        newest = f"status = {KEPT} AND path = %s ORDER BY deleted_at DESC, id DESC LIMIT 1"
        return self._load(f"WHERE {newest}", path)

    def deleted(self, prefix: str, after: str, limit: int) -> list[DeletedStream]:
        loaded = _LOADED.replace("SELECT ", "SELECT deleted_at, kept_until, ", 1)
        found = self._query(loaded + _UNDELETABLE, _place(prefix, after, limit))
        return [
            DeletedStream(StreamSummary.of(_read_state(tuple(row))), deleted_at, kept_until)
            for deleted_at, kept_until, *row in found
        ]

    def purgeable(self, now_ms: int, limit: int) -> list[tuple[int, str]]:
        found = self._query(
            f"SELECT id, path FROM streams WHERE status = {KEPT} AND kept_until <= %s"
            " ORDER BY kept_until LIMIT %s",
            (now_ms, limit),
        )
        return [(row[0], row[1]) for row in found]

    def kept_beyond(self, most: int, limit: int) -> list[tuple[int, str]]:
        found = self._query(
            f"SELECT id, path FROM streams WHERE status = {KEPT}"
            " ORDER BY kept_until DESC LIMIT %s OFFSET %s",
            (limit, most),
        )
        return [(row[0], row[1]) for row in found]

    def path_of(self, stream_id: int) -> str | None:
        found = self._query("SELECT path FROM streams WHERE id = %s AND status < 2", (stream_id,))
        return found[0][0] if found else None

    def _load(self, condition: str, value: str | int) -> LoadedStream | None:
        found = self._query(_LOADED + condition, (value,))
        if not found:
            return None
        state = _read_state(found[0])
        stream_id = state.config.id
        producers = self._query(
            "SELECT producer_id, epoch, seq, used_at FROM producers WHERE stream_id = %s LIMIT %s",
            (stream_id, self._producers_max + 1),
        )
        state.producers = {row[0]: ProducerState(*row[1:]) for row in producers}
        state.producer_count = len(producers)
        complete = len(producers) <= self._producers_max
        if not complete:
            # As many as a stream may have, at most.
            counted = self._query(
                "SELECT count(*) FROM producers WHERE stream_id = %s", (stream_id,)
            )
            state.producer_count = counted[0][0]
        return LoadedStream(state, complete)

    def producer(self, stream_id: int, producer_id: str) -> ProducerState | None:
        found = self._query(
            "SELECT epoch, seq, used_at FROM producers WHERE stream_id = %s AND producer_id = %s",
            (stream_id, producer_id),
        )
        return ProducerState(*found[0]) if found else None

    def idle_producers(self, before_ms: int, limit: int) -> list[IdleProducer]:
        found = self._query(
            "SELECT s.path, s.id, p.producer_id FROM producers p JOIN streams s"
            " ON s.id = p.stream_id WHERE p.used_at < %s AND s.status < 2"
            " ORDER BY p.used_at LIMIT %s",
            (before_ms, limit),
        )
        return [IdleProducer(*row) for row in found]

    def summaries(self, prefix: str, after: str, limit: int) -> list[StreamSummary]:
        found = self._query(_LOADED + _LISTED, _place(prefix, after, limit))
        return [StreamSummary.of(_read_state(row)) for row in found]

    def tails(self, prefix: str, after: str, limit: int) -> list[StreamTail]:
        found = self._query(
            f"SELECT path, id, inherited, last_byte FROM streams s{_LAST} {_LISTED}",
            _place(prefix, after, limit),
        )
        tails: list[StreamTail] = []
        for path, stream_id, inherited, last_byte in found:
            lineage = Lineage(stream_id, rows.read_inherited(inherited))
            tails.append(
                StreamTail(path, lineage, lineage.base if last_byte is None else last_byte)
            )
        return tails

    def soft_deleted(self, after_id: int, limit: int) -> list[SoftDeletedStream]:
        found = self._query(
            "SELECT id, path, EXISTS (SELECT 1 FROM streams f WHERE f.source_id = s.id"
            " AND f.status < 2) FROM streams s WHERE status = 1 AND id > %s ORDER BY id LIMIT %s",
            (after_id, limit),
        )
        return [SoftDeletedStream(*row) for row in found]

    def trimmable(self, now_ms: int, limit: int) -> list[str]:
        found = self._query(
            "SELECT path FROM streams WHERE trim_due <= %s AND trim_due IS NOT NULL"
            " AND status = 0 ORDER BY trim_due LIMIT %s",
            (now_ms, limit),
        )
        return [row[0] for row in found]

    def expired(self, now_ms: int, limit: int) -> list[str]:
        found = self._query(
            "SELECT path FROM streams WHERE deadline <= %s AND deadline IS NOT NULL"
            " AND status = 0 ORDER BY deadline LIMIT %s",
            (now_ms, limit),
        )
        return [row[0] for row in found]

    def next_deadline_ms(self) -> int | None:
        found = self._query(
            "SELECT min(deadline) FROM streams WHERE deadline IS NOT NULL AND status = 0", ()
        )
        deadline: int | None = found[0][0]
        return deadline


def _place(prefix: str, after: str, limit: int) -> tuple[object, ...]:
    return prefix, after, prefix + chr(0x10FFFF), limit


def _read_state(row: Row) -> StreamState:
    *state, last_byte, last_message, forks = row[_CONFIG_WIDTH:]
    end = None if last_byte is None else (last_byte, last_message)
    return rows.read_state(rows.read_config(row[:_CONFIG_WIDTH]), tuple(state), end, forks)
