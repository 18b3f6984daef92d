"""Several nodes at one engine: who may write, and who has which shard."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, Protocol

from headwater.core.cluster import ClusterSeen

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
    def clock(self) -> Callable[[], int]:
        """The time of day, in milliseconds, which is one for all nodes."""

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
        """The shard of a new path; at once."""

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
        """Use them after all, as far as it is certain that they were not given away."""

    def give(self, moves: Mapping[int, int]) -> None:
        """Give away what was withheld, once nothing of it is under way. If that raises, they may be
        given away or not. Called where commits are made."""

    def drain(self, node_id: int, *, draining: bool = True) -> bool: ...
    def secret(self, kind: str, fresh: bytes) -> bytes:
        """A secret that all nodes have; the fresh one if there is none of that kind yet."""
