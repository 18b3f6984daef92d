"""What an engine promises.

An engine keeps what `core` decided. It commits a batch of mutations over any number of streams as
one transaction: all of it is durable when `commit` returns, none of it when it raises. It decides
nothing, and it knows the mutations of `core.stream` and nothing of HTTP.

`commit` and `reap` are called from one thread at a time. Everything else may be called from any
thread, at any time, and sees only what is committed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from headwater.core.errors import DataCorrupt
from headwater.core.groups.state import GroupState
from headwater.core.lineage import Span
from headwater.core.live.templates import TemplateRecord
from headwater.core.mutations import AnyMutation
from headwater.core.producers import ProducerState
from headwater.core.snapshots import SnapshotInfo, SnapshotTaken
from headwater.core.stream import Appended, StreamState

if TYPE_CHECKING:
    from headwater.store.history.sealing import History


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


@dataclass(frozen=True, slots=True)
class SealedPart:
    """A part of a run that lies in a file: which one, and where its index is in it."""

    start: int
    end: int
    file: str
    size_bytes: int
    checksum: str
    index_offset: int


def cut_last(appends: list[Appended], end: int) -> list[Appended]:
    """Cut the last of some appends where a fork parts from its source, if that is inside of it."""
    if appends and appends[-1].end > end:
        last = appends[-1]
        body = last.body[: end - last.start]
        # How many of its messages are inherited is for whoever knows what a message is.
        appends[-1] = msgspec.structs.replace(last, body=body)
    return appends


Piece = bytes | FileRange
SeekBy = Literal["first_message", "at_ms"]


class Engine(Protocol):
    name: str

    @property
    def history(self) -> History | None:
        """Where older appends can be moved to, if the engine has such a place."""

    def commit(self, mutations: Sequence[AnyMutation]) -> None:
        """Make all of it durable, or raise StorageUnavailable and change nothing."""

    def next_stream_id(self) -> int:
        """The smallest id that was never given out."""

    def next_group_id(self) -> int:
        """The same for groups."""

    def groups(self, stream_id: int) -> list[GroupState]:
        """The groups of a stream by name, each with its outstanding messages."""

    def templates(self, stream_id: int) -> list[TemplateRecord]:
        """The live templates of a stream, by id."""

    def snapshots(self, stream_id: int) -> list[SnapshotInfo]:
        """The snapshots of a stream, the newest first."""

    def snapshot(self, stream_id: int, position: int) -> SnapshotTaken | None:
        """One snapshot with its bytes. Raises DataCorrupt when they are not what was committed."""

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

    def read_pieces(self, span: Span, max_bytes: int) -> list[Piece]:
        """The very bytes of `read`, but cut anywhere: what is history, as parts of files."""

    def appends(self, span: Span, max_bytes: int) -> list[Appended]:
        """The appends of `read`, with all that is known of them."""

    def sealed_parts(self, span: Span) -> list[SealedPart]:
        """Which parts of a span lie in files of history, in order."""

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

    def close(self) -> None: ...
