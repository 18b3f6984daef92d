"""Several nodes that share an engine: who may write, and who owns which shard."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, Protocol

from headwater.core.cluster import ClusterSeen

IdKind = Literal["streams", "groups", "subscriptions"]


class Lease(Protocol):
    """Until when it is certain that no other process writes."""

    @property
    def is_good(self) -> bool: ...

    def renew(self) -> None:
        """Renew it, or raise StorageUnavailable. Not on the event loop."""


class Membership(Lease, Protocol):
    """This node among those that share the engine; see `headwater.core.cluster`.

    Properties return immediately. Everything else waits for the database.
    """

    on_look: Callable[[], None]
    """Called after every look at the cluster, on any thread."""
    taken_over: int

    @property
    def clock(self) -> Callable[[], int]:
        """The time in milliseconds, the same for all nodes."""

    @property
    def node_id(self) -> int: ...
    @property
    def lease_s(self) -> float: ...
    @property
    def seen(self) -> ClusterSeen:
        """The cluster when this node last looked."""

    @property
    def shards(self) -> frozenset[int]:
        """The shards this node owns and uses."""

    def excess(self) -> dict[int, int]:
        """Shards beyond its share, and the node that should own each."""

    def home(self, name: str) -> int:
        """The shard of a new path; returns immediately."""

    def demand(self, shard: int) -> None:
        """Raise OwnedElsewhere unless this node owns a shard; returns immediately."""

    def new_id(self, kind: IdKind) -> int:
        """An id that no other node gets, larger than those assigned before."""

    def holdings(self, account: str) -> tuple[int, int, int, int]:
        """Totals of the streams at and below a path, or of all streams for the empty one: streams,
        bytes, producers, and bytes of deleted streams that can be undeleted.
        """

    def shards_of(self, paths: Sequence[str]) -> list[int]:
        """The shards of some streams: where they are, or would be."""

    def look(self) -> None: ...
    def withhold(self, shards: Collection[int]) -> None:
        """Stop using shards, because they are about to be given away."""

    def keep(self, shards: Collection[int]) -> None:
        """Use them again, as far as it is certain that they were not given away."""

    def give(self, moves: Mapping[int, int]) -> None:
        """Give away withheld shards, once nothing in them is in flight. If this raises, they may be
        given away or not. Called on the thread that commits.
        """

    def drain(self, node_id: int, *, draining: bool = True) -> bool: ...
    def secret(self, kind: str, fresh: bytes) -> bytes:
        """A secret shared by all nodes; the fresh one if there is none of that kind yet."""
