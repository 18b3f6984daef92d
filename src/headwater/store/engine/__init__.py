"""What an engine promises.

An engine stores what `core` decided. It commits a batch of mutations over any number of streams as
one transaction: all of it is durable when `commit` returns, none of it when it raises. It decides
nothing, and it knows the mutations of `core` and nothing of HTTP.

What can be read back is split by aggregate: streams, their appends, groups, subscriptions, live
templates, snapshots. Each is a small protocol, and an engine is composed of one object for each, so
a new engine can be written and tested against the contract suite one aggregate at a time.

`commit` and `reap` are called from one thread at a time. Everything else may be called from any
thread, at any time, and sees only what is committed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headwater.core.groups.state import GroupState
from headwater.core.live.templates import TemplateRecord
from headwater.core.mutations import AnyMutation
from headwater.core.snapshots import SnapshotInfo, SnapshotTaken
from headwater.core.subscriptions.state import SecretStored, StoredSubscription
from headwater.store.engine.appends import Appends
from headwater.store.engine.committer import Committer
from headwater.store.engine.figures import EngineFigures
from headwater.store.engine.membership import Lease, Membership
from headwater.store.engine.streams import Streams

if TYPE_CHECKING:
    from headwater.store.history.sealing import History


class CannotOpen(Exception):
    """The engine's storage cannot be used; the message is one line that says why."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that `verify` found."""

    where: str
    what: str


class Groups(Protocol):
    """Consumer groups."""

    def next_id(self) -> int:
        """The smallest id that was never assigned."""

    def of_stream(self, stream_id: int) -> list[GroupState]:
        """The groups of a stream by name, each with its outstanding messages."""

    def streams(self, after: int, limit: int) -> list[int]:
        """The ids of streams that have groups, in order, after a given id."""

    def unsettled_from(self, stream_id: int) -> int | None:
        """The first position that a group of a stream has not settled."""


class Subscriptions(Protocol):
    """Subscriptions, and the secrets that sign their requests."""

    def next_id(self) -> int:
        """The smallest id that was never assigned."""

    def load(
        self, subscription_id: int | None = None, shards: Collection[int] | None = None
    ) -> list[StoredSubscription]:
        """All subscriptions by name, or one of them; in an engine with shards, those of this node,
        or those of some of its shards.
        """

    def count(self) -> int:
        """How many there are, on all nodes."""

    def secrets(self) -> list[SecretStored]:
        """The server's secrets, oldest first."""


class Templates(Protocol):
    """Live templates."""

    def of_stream(self, stream_id: int) -> list[TemplateRecord]:
        """The live templates of a stream, by id."""


class Snapshots(Protocol):
    def of_stream(self, stream_id: int) -> list[SnapshotInfo]:
        """The snapshots of a stream, the newest first."""

    def find(self, stream_id: int, position: int) -> SnapshotTaken | None:
        """One snapshot with its bytes. Raises DataCorrupt if they are not what was committed."""


class Engine(Protocol):
    """The whole engine: what can be read, by aggregate, and what changes it."""

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
        """Where older appends can be moved to, if the engine has history."""

    @property
    def lease(self) -> Lease | None:
        """What makes reads from memory safe, if another process could take over."""

    @property
    def membership(self) -> Membership | None:
        """The nodes that share the engine, if it is shared."""

    @property
    def committer(self) -> Committer | None:
        """How another process can commit for the engine, if one can."""

    def commit(self, mutations: Sequence[AnyMutation]) -> None:
        """Make all of it durable, or raise StorageUnavailable and change nothing.

        Raises StorageFull if something in it grows and there is no space for that, and
        OutcomeUnknown if all of it may be stored, or nothing; later reads show which.
        """

    def has_room(self) -> bool:
        """Whether growing mutations can probably be stored; returns immediately."""

    def reap(self, max_appends: int) -> bool:
        """Remove some unneeded data; True when there is more to remove.

        That is the data of deleted streams, and what streams and their forks do not keep.
        """

    def verify(self) -> Iterator[Problem | str]:
        """Check everything: yields problems, and lines of progress between them."""

    def figures(self) -> EngineFigures:
        """For monitoring. Reads no data, so it works even if data cannot be read."""

    def close(self) -> None: ...
