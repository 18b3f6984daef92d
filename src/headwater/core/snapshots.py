"""Snapshots: what a stream amounts to at an offset.

Whoever folds a stream into a state can leave that state here, so that the next reader begins with
it and reads on at its offset instead of from the beginning. What is in a snapshot is between those
who write and those who read it; the server keeps its bytes and its content type.

- A snapshot belongs to an offset of the stream that lies between two appends.
- A stream keeps its newest snapshots, by offset. A newer one drops the oldest; one that is older
  than all of a full set is refused, because it would be dropped at once.
- Another snapshot for the same offset takes the place of the first.
- Snapshots go with their stream. A fork begins without any.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headwater.core.errors import SnapshotOutdated

SNAPSHOTS_KEPT = 3


class SnapshotInfo(msgspec.Struct, frozen=True):
    """A snapshot without its bytes."""

    position: int
    content_type: str
    size_bytes: int
    at_ms: int


class SnapshotTaken(msgspec.Struct, frozen=True):
    """A snapshot, after which a stream keeps no more than the newest `keep` of them."""

    stream_id: int
    at_ms: int
    position: int
    content_type: str
    body: bytes
    keep: int = SNAPSHOTS_KEPT

    @property
    def info(self) -> SnapshotInfo:
        return SnapshotInfo(self.position, self.content_type, len(self.body), self.at_ms)


class SnapshotDropped(msgspec.Struct, frozen=True):
    stream_id: int
    position: int


SnapshotMutation = SnapshotTaken | SnapshotDropped


def check_is_kept(position: int, kept: Sequence[SnapshotInfo]) -> None:
    """Refuse a snapshot that would not stay."""
    if len(kept) >= SNAPSHOTS_KEPT and position < min(one.position for one in kept):
        raise SnapshotOutdated(SNAPSHOTS_KEPT)
