"""Reading streams and their producers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from headwater.core.errors import OwnedElsewhere
from headwater.core.lineage import Lineage
from headwater.core.producers import ProducerState
from headwater.core.stream import StreamState
from headwater.core.subscriptions.state import StreamTail
from headwater.store import rows
from headwater.store.engine.streams import (
    DeletedStream,
    IdleProducer,
    LoadedStream,
    SoftDeletedStream,
    StreamSummary,
)
from headwater.store.rows import CONFIG_COLUMNS, KEPT, LIVE, STATE_COLUMNS, NextId, Query, Row

_CONFIG_WIDTH: Final = len(CONFIG_COLUMNS.split(","))
_FORKS: Final = "(SELECT count(*) FROM streams f WHERE f.source_id = s.id AND f.status < 2)"
# The upper bound lets the index on the path stop at the end of the prefix.
_WITHIN: Final = "path >= ? AND path > ? AND path < ?"
_LISTED: Final = f"status < 2 AND status = {LIVE} AND {_WITHIN} ORDER BY path LIMIT ?"
_NEWEST_FIRST: Final = "ORDER BY deleted_at DESC, id DESC LIMIT 1"
# If several streams were deleted at a path, the last one; none if a stream is there again.
_UNDELETABLE: Final = (
    f"status = {KEPT} AND {_WITHIN}"
    f" AND id = (SELECT id FROM streams k WHERE k.status = {KEPT} AND k.path = s.path"
    f" {_NEWEST_FIRST})"
    " AND NOT EXISTS (SELECT 1 FROM streams t WHERE t.status < 2 AND t.path = s.path)"
    " ORDER BY path LIMIT ?"
)


class Words(NamedTuple):
    """The parts of the queries in which databases differ."""

    streams: str
    """The table as `s`, with whatever the next two need."""
    last_byte: str
    """Where a stream's own run ends; NULL if nothing was ever appended to it."""
    last_message: str
    """How many messages come before that."""
    producers: str
    """Producers as `p`, ordered by last use, with their streams as `s`."""
    shard: str = "0"
    """The shard of a stream."""
    own: str = ""
    """Further condition: the stream belongs to this node."""


class Streams:
    def __init__(
        self,
        query: Query,
        next_id: NextId,
        words: Words,
        producers_preloaded_max: int,
        demand: Callable[[int], None] = lambda shard: None,
    ) -> None:
        self._query = query
        self._next_id = next_id
        self._words = words
        self._demand = demand
        """Raises OwnedElsewhere unless this node owns a shard."""
        self._producers_max = producers_preloaded_max
        self._states = (
            f"{CONFIG_COLUMNS}, {STATE_COLUMNS}, {words.last_byte}, {words.last_message}, {_FORKS}"
            f" FROM {words.streams} WHERE "
        )

    def next_id(self) -> int:
        return self._next_id(self._query, "streams")

    # ── One stream ───────────────────────────────────────────────────────────────────────────

    def load(self, path: str) -> LoadedStream | None:
        return self._load("path = ? AND status < 2", path)

    def look(self, path: str) -> StreamState | None:
        found = self._query(f"SELECT {self._states}path = ? AND status < 2", (path,))
        return _read_state(found[0]) if found else None

    def load_id(self, stream_id: int) -> LoadedStream | None:
        return self._load("id = ? AND status < 2", stream_id)

    def load_deleted(self, path: str) -> LoadedStream | None:
        try:
            return self._load(f"status = {KEPT} AND path = ? {_NEWEST_FIRST}", path)
        except OwnedElsewhere:
            if self._query("SELECT 1 FROM streams WHERE path = ? AND status < 2", (path,)):
                # Its path is taken, so it cannot come back, whichever node has it.
                return None
            raise

    def _load(self, condition: str, value: str | int) -> LoadedStream | None:
        found = self._query(f"SELECT {self._words.shard}, {self._states}{condition}", (value,))
        if not found:
            return None
        shard, *row = found[0]
        self._demand(shard)
        state = _read_state(tuple(row))
        stream_id = state.config.id
        producers = self._query(
            "SELECT producer_id, epoch, seq, used_at FROM producers WHERE stream_id = ? LIMIT ?",
            (stream_id, self._producers_max + 1),
        )
        state.producers = {row[0]: ProducerState(*row[1:]) for row in producers}
        state.producer_count = len(producers)
        complete = len(producers) <= self._producers_max
        if not complete:
            # At most as many as a stream may have.
            counted = self._query(
                "SELECT count(*) FROM producers WHERE stream_id = ?", (stream_id,)
            )
            state.producer_count = counted[0][0]
        return LoadedStream(state, complete, shard)

    def path_of(self, stream_id: int) -> str | None:
        found = self._query("SELECT path FROM streams WHERE id = ? AND status < 2", (stream_id,))
        return found[0][0] if found else None

    def producer(self, stream_id: int, producer_id: str) -> ProducerState | None:
        found = self._query(
            "SELECT epoch, seq, used_at FROM producers WHERE stream_id = ? AND producer_id = ?",
            (stream_id, producer_id),
        )
        return ProducerState(*found[0]) if found else None

    # ── Pages of streams ─────────────────────────────────────────────────────────────────────

    def summaries(self, prefix: str, after: str, limit: int) -> list[StreamSummary]:
        found = self._query(f"SELECT {self._states}{_LISTED}", _page(prefix, after, limit))
        return [StreamSummary.of(_read_state(row)) for row in found]

    def deleted(self, prefix: str, after: str, limit: int) -> list[DeletedStream]:
        found = self._query(
            f"SELECT deleted_at, kept_until, {self._states}{_UNDELETABLE}",
            _page(prefix, after, limit),
        )
        return [DeletedStream(StreamSummary.of(_read_state(row[2:])), *row[:2]) for row in found]

    def tails(self, prefix: str, after: str, limit: int) -> list[StreamTail]:
        found = self._query(
            f"SELECT path, id, inherited, {self._words.last_byte} FROM {self._words.streams}"
            f" WHERE {_LISTED}",
            _page(prefix, after, limit),
        )
        tails: list[StreamTail] = []
        for path, stream_id, inherited, last_byte in found:
            lineage = Lineage(stream_id, rows.read_inherited(inherited))
            end = lineage.base if last_byte is None else last_byte
            tails.append(StreamTail(path, lineage, end))
        return tails

    # ── What is due ──────────────────────────────────────────────────────────────────────────

    def idle_producers(self, before_ms: int, limit: int) -> list[IdleProducer]:
        found = self._query(
            f"SELECT s.path, s.id, p.producer_id FROM {self._words.producers}"
            f" WHERE p.used_at < ? AND s.status < 2{self._words.own} ORDER BY p.used_at LIMIT ?",
            (before_ms, limit),
        )
        return [IdleProducer(*row) for row in found]

    def idle_producers_of(self, stream_id: int, before_ms: int, limit: int) -> list[str]:
        found = self._query(
            f"SELECT p.producer_id FROM {self._words.producers}"
            " WHERE p.used_at < ? AND p.stream_id = ? ORDER BY p.used_at LIMIT ?",
            (before_ms, stream_id, limit),
        )
        return [row[0] for row in found]

    def purgeable(self, now_ms: int, limit: int) -> list[tuple[int, str]]:
        found = self._query(
            f"SELECT id, path FROM streams WHERE status = {KEPT} AND kept_until <= ?"
            f"{self._words.own} ORDER BY kept_until LIMIT ?",
            (now_ms, limit),
        )
        return [(row[0], row[1]) for row in found]

    def kept_beyond(self, most: int, limit: int) -> list[tuple[int, str]]:
        found = self._query(
            f"SELECT id, path FROM (SELECT * FROM streams WHERE status = {KEPT}"
            " ORDER BY kept_until DESC LIMIT ? OFFSET ?) AS beyond"
            f" WHERE status = {KEPT}{self._words.own}",
            (limit, most),
        )
        return [(row[0], row[1]) for row in found]

    def soft_deleted(self, after_id: int, limit: int) -> list[SoftDeletedStream]:
        found = self._query(
            "SELECT id, path, EXISTS (SELECT 1 FROM streams f WHERE f.source_id = s.id"
            " AND f.status < 2) FROM streams s"
            f" WHERE status = 1 AND id > ?{self._words.own} ORDER BY id LIMIT ?",
            (after_id, limit),
        )
        return [SoftDeletedStream(one, path, bool(forks)) for one, path, forks in found]

    def trimmable(self, now_ms: int, limit: int) -> list[str]:
        found = self._query(
            "SELECT path FROM streams WHERE trim_due <= ? AND trim_due IS NOT NULL AND status = 0"
            f"{self._words.own} ORDER BY trim_due LIMIT ?",
            (now_ms, limit),
        )
        return [row[0] for row in found]

    def expired(self, now_ms: int, limit: int) -> list[str]:
        found = self._query(
            "SELECT path FROM streams WHERE deadline <= ? AND deadline IS NOT NULL AND status = 0"
            f"{self._words.own} ORDER BY deadline LIMIT ?",
            (now_ms, limit),
        )
        return [row[0] for row in found]

    def next_deadline_ms(self) -> int | None:
        found = self._query(
            "SELECT min(deadline) FROM streams WHERE deadline IS NOT NULL AND status = 0"
            f"{self._words.own}",
            (),
        )
        deadline: int | None = found[0][0]
        return deadline


def _page(prefix: str, after: str, limit: int) -> tuple[object, ...]:
    return prefix, after, prefix + chr(0x10FFFF), limit


def _read_state(row: Row) -> StreamState:
    *state, last_byte, last_message, forks = row[_CONFIG_WIDTH:]
    end = None if last_byte is None else (last_byte, last_message)
    return rows.read_state(rows.read_config(row[:_CONFIG_WIDTH]), tuple(state), end, forks)
