"""Streams: which ones exist, and in what state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from headwater.core.live.profile import kind_of
from headwater.core.producers import ProducerState
from headwater.core.stream import StreamConfig, StreamState
from headwater.core.subscriptions.state import StreamTail


@dataclass(frozen=True, slots=True)
class LoadedStream:
    state: StreamState
    producers_complete: bool
    """False if the stream has more producers than were loaded with it."""
    shard: int = field(default=0, compare=False)
    """Its shard, in a shared engine."""


class Summarized(Protocol):
    """A stream's state, or its committed side."""

    config: StreamConfig
    tail: int
    messages: int
    closed: bool


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """One line of a listing."""

    path: str
    content_type: str
    tail: str
    closed: bool
    created_at_ms: int
    size_bytes: int
    messages: int
    ttl_s: int | None
    expires_at_ms: int | None
    profile: str

    @classmethod
    def of(cls, stream: Summarized) -> StreamSummary:
        config = stream.config
        return cls(
            path=config.path,
            content_type=config.content_type,
            tail=config.lineage.token_at(stream.tail),
            closed=stream.closed,
            created_at_ms=config.created_at_ms,
            size_bytes=stream.tail,
            messages=stream.messages,
            ttl_s=config.lifetime.ttl_s,
            expires_at_ms=config.lifetime.expires_at_ms,
            profile=kind_of(config.profile),
        )


@dataclass(frozen=True, slots=True)
class DeletedStream:
    """A stream that can be undeleted."""

    summary: StreamSummary
    deleted_at_ms: int
    kept_until_ms: int

    @property
    def path(self) -> str:
        return self.summary.path


class SoftDeletedStream(NamedTuple):
    id: int
    path: str
    has_forks: bool


class IdleProducer(NamedTuple):
    path: str
    stream_id: int
    producer_id: str


class Streams(Protocol):
    """Which streams exist, and in what state."""

    def next_id(self) -> int:
        """The smallest id never given out."""

    def load(self, path: str) -> LoadedStream | None:
        """The stream at a path, including soft-deleted ones.

        Raises OwnedElsewhere if another node owns it, like everything that loads a stream.
        """

    def look(self, path: str) -> StreamState | None:
        """The stored stream at a path, whichever node owns it, without its producers."""

    def load_id(self, stream_id: int) -> LoadedStream | None:
        """A stream by id."""

    def load_deleted(self, path: str) -> LoadedStream | None:
        """The most recent of the kept deleted streams at a path."""

    def deleted(self, prefix: str, after: str, limit: int) -> list[DeletedStream]:
        """Those whose path is free, selected as in `summaries`."""

    def purgeable(self, now_ms: int, limit: int) -> list[tuple[int, str]]:
        """Deleted streams that need not be kept any longer, by id and path."""

    def kept_beyond(self, most: int, limit: int) -> list[tuple[int, str]]:
        """Deleted streams that are kept although there are `most` younger ones."""

    def path_of(self, stream_id: int) -> str | None:
        """The path of a stream, including soft-deleted ones."""

    def producer(self, stream_id: int, producer_id: str) -> ProducerState | None: ...

    def idle_producers(self, before_ms: int, limit: int) -> list[IdleProducer]:
        """Producers last used before a time, the longest idle first, with their streams."""

    def idle_producers_of(self, stream_id: int, before_ms: int, limit: int) -> list[str]:
        """The same for one stream, ids only."""

    def summaries(self, prefix: str, after: str, limit: int) -> list[StreamSummary]:
        """Streams whose path starts with the prefix and sorts after `after`, in order."""

    def tails(self, prefix: str, after: str, limit: int) -> list[StreamTail]:
        """Where streams end, selected as in `summaries` but many at a time."""

    def expired(self, now_ms: int, limit: int) -> list[str]:
        """Paths that have expired as far as the engine knows."""

    def next_deadline_ms(self) -> int | None:
        """When `expired` will next return something."""

    def trimmable(self, now_ms: int, limit: int) -> list[str]:
        """Paths that are due for a check whether they keep more than they have to."""

    def soft_deleted(self, after_id: int, limit: int) -> list[SoftDeletedStream]:
        """Streams kept only for their forks, in order of id, after a given id."""
