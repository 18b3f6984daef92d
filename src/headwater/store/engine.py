"""What an engine promises.

An engine keeps what `core` decided. It commits a batch of mutations over any number of streams as
one transaction: all of it is durable when `commit` returns, none of it when it raises. It decides
nothing, and it knows the mutations of `core` and nothing of HTTP.

What can be read back is split by aggregate: streams, their appends, groups, subscriptions, live
templates, snapshots. Each is a small protocol, and an engine is composed of one object for each, so
a new engine can be written and held against the contract suite one aggregate at a time.

`commit` and `reap` are called from one thread at a time. Everything else may be called from any
thread, at any time, and sees only what is committed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from headwater.core.cluster import ClusterSeen
from headwater.core.errors import DataCorrupt
from headwater.core.frames import Frame
from headwater.core.groups.state import GroupState
from headwater.core.histograms import Histogram
from headwater.core.lineage import Span
from headwater.core.live.templates import TemplateRecord
from headwater.core.mutations import AnyMutation
from headwater.core.producers import ProducerState
from headwater.core.snapshots import SnapshotInfo, SnapshotTaken
from headwater.core.stream import Appended, StreamState
from headwater.core.subscriptions.state import SecretStored, StoredSubscription, StreamTail

if TYPE_CHECKING:
    from headwater.store.history.sealing import History


class CannotOpen(Exception):
    """What the engine keeps its data in cannot be used; the message is one line that says why."""


@dataclass(frozen=True, slots=True)
class LoadedStream:
    state: StreamState
    producers_complete: bool
    """False when the stream has more producers than were loaded with it."""
    shard: int = field(default=0, compare=False)
    """Where a shared engine has it."""


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
class DeletedStream:
    """A stream that can be undeleted."""

    summary: StreamSummary
    deleted_at_ms: int
    kept_until_ms: int

    @property
    def path(self) -> str:
        return self.summary.path


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that `verify` found."""

    where: str
    what: str


@dataclass(frozen=True, slots=True)
class HistoryFigures:
    """The files of history: those of this machine, those in object storage, those in both."""

    local_files: int = 0
    local_bytes: int = 0
    remote_files: int = 0
    remote_bytes: int = 0
    waiting_bytes: int = 0
    """Of those on this machine, what object storage does not have."""


@dataclass(frozen=True, slots=True)
class ReplicationFigures:
    """Who has a copy of what is committed, where the engine's database is replicated."""

    replicas: int = 0
    """Those that a commit waits for, or for some of them."""
    lag_bytes: int = 0
    """How much the slowest replica has not on its disk yet."""


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """What an engine tells those who watch it."""

    sync_seconds: Histogram
    """How long it took to make a batch durable, once everything was written."""
    disk_bytes: dict[str, int]
    """What it occupies on disk, by part; empty when it has no files."""
    history: HistoryFigures = HistoryFigures()
    replication: ReplicationFigures = ReplicationFigures()


@dataclass(frozen=True, slots=True)
class FileRange:
    """Stored bytes that lie in a file, never change, and were found to be what was written.

    Whoever can have the kernel send them need not read them.
    """

    holder: object
    """Keeps the file open."""
    file: int
    offset: int
    length: int

    def __len__(self) -> int:
        return self.length

    def without_last(self) -> FileRange:
        return FileRange(self.holder, self.file, self.offset, self.length - 1)

    def read(self) -> bytes:
        data = os.pread(self.file, self.length, self.offset)
        if len(data) != self.length:
            raise DataCorrupt(f"a file ends {self.length - len(data)} bytes early")
        return data


class Outline(NamedTuple):
    """An append without its body."""

    start: int
    end: int
    first_message: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class SealedExtent:
    """An extent, or as much of it as was asked for: which file it is in, and where its index is."""

    start: int
    end: int
    file: str
    size_bytes: int
    checksum: str
    index_offset: int
    url: str | None = None
    """Where object storage has it."""
    path: Path | None = None
    """Where it is on this machine."""


class SoftDeletedStream(NamedTuple):
    id: int
    path: str
    has_forks: bool


class IdleProducer(NamedTuple):
    path: str
    stream_id: int
    producer_id: str


Piece = bytes | FileRange
SeekBy = Literal["first_message", "at_ms"]
IdKind = Literal["streams", "groups", "subscriptions"]


class Lease(Protocol):
    """Until when it is certain that nobody else writes."""

    @property
    def is_good(self) -> bool: ...

    def renew(self) -> None:
        """Make it good again, or raise StorageUnavailable. Not on the event loop."""


class Membership(Lease, Protocol):
    """This node among those that share the engine; see `headwater.core.cluster`.

    What is a property can be asked at any time. Everything else waits for the database."""

    on_look: Callable[[], None]
    """Called after every look, on some thread."""
    taken_over: int

    @property
    def node_id(self) -> int: ...
    @property
    def lease_s(self) -> float: ...
    @property
    def seen(self) -> ClusterSeen:
        """The cluster when this node last looked."""

    @property
    def shards(self) -> frozenset[int]:
        """What this node owns and uses."""

    def excess(self) -> dict[int, int]:
        """Shards that it has beyond its due, and the node that should have each."""

    def home(self, name: str) -> int:
        """The shard of a new path, or of a new subscription; at once."""

    def demand(self, shard: int) -> None:
        """Raise OwnedElsewhere unless this node owns a shard; at once."""

    def new_id(self, kind: IdKind) -> int:
        """An id that no other node gets, and larger than those given out before."""

    def holdings(self, account: str) -> tuple[int, int, int, int]:
        """What the streams at and below a path come to, or all of them for none: streams, bytes,
        producers, and bytes of those that were deleted and can be undeleted."""

    def shards_of(self, paths: Sequence[str]) -> list[int]:
        """The shards of some streams: where they are, or would be."""

    def look(self) -> None: ...
    def withhold(self, shards: Collection[int]) -> None:
        """Use shards no longer, because they are about to be given away."""

    def keep(self, shards: Collection[int]) -> None:
        """Use them after all."""

    def give(self, moves: Mapping[int, int]) -> None:
        """Give away what was withheld, once nothing of it is under way."""

    def drain(self, node_id: int, *, draining: bool = True) -> bool: ...
    def secret(self, fresh: bytes) -> bytes:
        """What nodes know each other by; the fresh one if there is none yet."""


class Streams(Protocol):
    """What streams there are, and in what state."""

    def next_id(self) -> int:
        """The smallest id that was never given out."""

    def load(self, path: str) -> LoadedStream | None:
        """The stream at a path, soft-deleted ones included.

        Raises OwnedElsewhere if another node owns it, as everything does that loads a stream."""

    def load_id(self, stream_id: int) -> LoadedStream | None:
        """A stream by id."""

    def load_deleted(self, path: str) -> LoadedStream | None:
        """Of the deleted streams that are kept, the last one that was at a path."""

    def deleted(self, prefix: str, after: str, limit: int) -> list[DeletedStream]:
        """Those whose path is free, chosen as in `summaries`."""

    def purgeable(self, now_ms: int, limit: int) -> list[tuple[int, str]]:
        """Deleted streams that need not be kept any more, by id and path."""

    def kept_beyond(self, most: int, limit: int) -> list[tuple[int, str]]:
        """Deleted streams that are kept although there are so many younger ones."""

    def path_of(self, stream_id: int) -> str | None:
        """The path of a stream, soft-deleted ones included."""

    def producer(self, stream_id: int, producer_id: str) -> ProducerState | None: ...

    def idle_producers(self, before_ms: int, limit: int) -> list[IdleProducer]:
        """Producers of streams that were last used before a moment, the longest idle first."""

    def idle_producers_of(self, stream_id: int, before_ms: int, limit: int) -> list[str]:
        """The same of one stream, by their ids alone."""

    def summaries(self, prefix: str, after: str, limit: int) -> list[StreamSummary]:
        """Streams whose path starts with the prefix and sorts after `after`, in order."""

    def tails(self, prefix: str, after: str, limit: int) -> list[StreamTail]:
        """Where streams end, chosen as in `summaries` but for many at a time."""

    def expired(self, now_ms: int, limit: int) -> list[str]:
        """Paths whose time is over as far as the engine knows."""

    def next_deadline_ms(self) -> int | None:
        """When `expired` will next have something to say."""

    def trimmable(self, now_ms: int, limit: int) -> list[str]:
        """Paths of which it is time to look whether they keep more than they have to."""

    def soft_deleted(self, after_id: int, limit: int) -> list[SoftDeletedStream]:
        """Streams that are there only for their forks, by id, those after one of them."""


class Appends(Protocol):
    """What streams hold: the appends of every run."""

    def read(self, span: Span, max_bytes: int) -> list[bytes]:
        """Stored appends from the start of the span on, the last one cut at its end.

        Stops before `max_bytes` is passed, but gives at least one append. Raises DataCorrupt when
        what is stored is not what was committed, UnknownOffset when no append starts there.
        """

    def read_pieces(self, span: Span, max_bytes: int) -> list[Piece]:
        """The very bytes of `read`, but cut anywhere: what is history, as ranges of files."""

    def known_pieces(self, span: Span, max_bytes: int) -> list[Piece] | None:
        """The same at once, if all of it is history that was read before; on any thread."""

    def frames(self, span: Span, max_bytes: int, max_messages: int) -> list[Frame]:
        """The appends of `read`, with all that is known of them.

        No more messages than so many either, but at least one append."""

    def sealed_extents(self, span: Span) -> list[SealedExtent]:
        """What of a span lies in files of history, in order."""

    def append_at(self, run: int, position: int) -> Appended | None:
        """The append of a run that holds the byte after the position."""

    def outline_at(self, run: int, position: int) -> Outline | None:
        """The same without looking at its bytes, which may be many or far away."""

    def seek(self, span: Span, by: SeekBy, value: int) -> Appended | None:
        """The last append of a span that starts at or before a message number or a time."""

    def known_ids(self, spans: Sequence[Span], ids: Sequence[str]) -> set[str]:
        """Which of the message ids are held within the spans."""


class Groups(Protocol):
    """Consumer groups."""

    def next_id(self) -> int:
        """The smallest id that was never given out."""

    def of_stream(self, stream_id: int) -> list[GroupState]:
        """The groups of a stream by name, each with its outstanding messages."""

    def streams(self, after: int, limit: int) -> list[int]:
        """The ids of streams that have groups, in order, from the first one after an id."""

    def unsettled_from(self, stream_id: int) -> int | None:
        """The first position that a group of a stream has not settled."""


class Subscriptions(Protocol):
    """Subscriptions, and what their requests are signed with."""

    def next_id(self) -> int:
        """The smallest id that was never given out."""

    def load(self, subscription_id: int | None = None) -> list[StoredSubscription]:
        """All subscriptions by name, or one of them."""

    def secrets(self) -> list[SecretStored]:
        """What this server signs with, oldest first."""


class Templates(Protocol):
    """Live templates."""

    def of_stream(self, stream_id: int) -> list[TemplateRecord]:
        """The live templates of a stream, by id."""


class Snapshots(Protocol):
    def of_stream(self, stream_id: int) -> list[SnapshotInfo]:
        """The snapshots of a stream, the newest first."""

    def find(self, stream_id: int, position: int) -> SnapshotTaken | None:
        """One snapshot with its bytes. Raises DataCorrupt when they are not what was committed."""


class Engine(Protocol):
    """All of it together: what can be read, by aggregate, and what changes it."""

    name: str

    @property
    def streams(self) -> Streams: ...
    @property
    def appends(self) -> Appends: ...
    @property
    def groups(self) -> Groups: ...
    @property
    def subscriptions(self) -> Subscriptions: ...
    @property
    def templates(self) -> Templates: ...
    @property
    def snapshots(self) -> Snapshots: ...
    @property
    def history(self) -> History | None:
        """Where older appends can be moved to, if the engine has such a place."""

    @property
    def lease(self) -> Lease | None:
        """What reads from memory rest on, if another process could take over."""

    @property
    def membership(self) -> Membership | None:
        """The nodes that share the engine, if it is shared."""

    def commit(self, mutations: Sequence[AnyMutation]) -> None:
        """Make all of it durable, or raise StorageUnavailable and change nothing.

        It is StorageFull if something in it grows and there is no room for that, and
        OutcomeUnknown if all of it may be stored, or nothing; whoever reads is told what holds."""

    def has_room(self) -> bool:
        """Whether what grows can be stored, as far as can be told without trying; at once."""

    def reap(self, max_appends: int) -> bool:
        """Remove some data that nobody needs any more; True when there is more to remove.

        That is the data of deleted streams, and what streams and their forks do not keep."""

    def verify(self) -> Iterator[Problem | str]:
        """Walk everything: problems, and lines of progress between them."""

    def figures(self) -> EngineFigures:
        """For monitoring. Reads no data, so that it answers when data cannot be read."""

    def close(self) -> None: ...
