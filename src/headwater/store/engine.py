"""What an engine promises.

An engine keeps what `core` decided. It commits a batch of mutations over any number of streams as
one transaction: all of it is durable when `commit` returns, none of it when it raises. It decides
nothing, and it knows the mutations of `core.stream` and nothing of HTTP.

`commit` and `reap` are called from one thread at a time. Everything else may be called from any
thread, at any time, and sees only what is committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from headwater.core.groups.state import GroupState
from headwater.core.histograms import Histogram
from headwater.core.lineage import Span
from headwater.core.mutations import AnyMutation
from headwater.core.producers import ProducerState
from headwater.core.stream import Appended, StreamState


@dataclass(frozen=True, slots=True)
class LoadedStream:
    state: StreamState
    producers_complete: bool
    """False when the stream has more producers than were loaded with it."""


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """A line of a listing."""

    path: str
    content_type: str
    tail: str
    closed: bool
    created_at_ms: int
    size_bytes: int
    messages: int
    ttl_s: int | None
    expires_at_ms: int | None

    @classmethod
    def of(cls, state: StreamState) -> StreamSummary:
        config = state.config
        return cls(
            path=config.path,
            content_type=config.content_type,
            tail=state.tail_token,
            closed=state.closed,
            created_at_ms=config.created_at_ms,
            size_bytes=state.tail,
            messages=state.messages,
            ttl_s=config.lifetime.ttl_s,
            expires_at_ms=config.lifetime.expires_at_ms,
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that `verify` found."""

    where: str
    what: str


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """What an engine tells those who watch it."""

    sync_seconds: Histogram
    """How long it took to make a batch durable, once everything was written."""
    disk_bytes: dict[str, int]
    """What it occupies on disk, by part; empty when it has no files."""


SeekBy = Literal["first_message", "at_ms"]


class Engine(Protocol):
    name: str

    def commit(self, mutations: Sequence[AnyMutation]) -> None:
        """Make all of it durable, or raise StorageUnavailable and change nothing."""

    def next_stream_id(self) -> int:
        """The smallest id that was never given out."""

    def next_group_id(self) -> int:
        """The same for groups."""

    def groups(self, stream_id: int) -> list[GroupState]:
        """The groups of a stream by name, each with its outstanding messages."""

    def load(self, path: str) -> LoadedStream | None:
        """The stream at a path, soft-deleted ones included."""

    def load_id(self, stream_id: int) -> LoadedStream | None:
        """A stream by id, to follow a fork to its source."""

    def producer(self, stream_id: int, producer_id: str) -> ProducerState | None: ...

    def known_ids(self, spans: Sequence[Span], ids: Sequence[str]) -> set[str]:
        """Which of the message ids are held within the spans."""

    def read(self, span: Span, max_bytes: int) -> list[bytes]:
        """Stored appends from the start of the span on, the last one cut at its end.

        Stops before `max_bytes` is passed, but gives at least one append. Raises DataCorrupt when
        what is stored is not what was committed, UnknownOffset when no append starts there.
        """

    def append_at(self, run: int, position: int) -> Appended | None:
        """The append of a run that holds the byte behind the position."""

    def seek(self, span: Span, by: SeekBy, value: int) -> Appended | None:
        """The last append of a span that starts at or before a message number or a time."""

    def list_streams(self, prefix: str, after: str, limit: int) -> list[StreamSummary]:
        """Streams whose path starts with the prefix and sorts behind `after`, in order."""

    def expired(self, now_ms: int, limit: int) -> list[str]:
        """Paths whose time is over as far as the engine knows."""

    def next_deadline_ms(self) -> int | None:
        """When `expired` will next have something to say."""

    def reap(self, max_appends: int) -> bool:
        """Remove some data of deleted streams; True when there is more to remove."""

    def verify(self) -> Iterator[Problem | str]:
        """Walk everything: problems, and lines of progress between them."""

    def figures(self) -> EngineFigures:
        """For monitoring. Reads no data, so that it answers when data cannot be read."""

    def close(self) -> None: ...
