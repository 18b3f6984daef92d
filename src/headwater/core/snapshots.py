"""Snapshots: the folded state of a stream at an offset.

A client that folds a stream into a state can store that state here, so that the next reader starts
with it and reads on from its offset instead of from the beginning. Writers and readers agree on
what a snapshot contains; the server stores its bytes and its content type.

- A snapshot belongs to an offset of the stream that lies between two appends.
- A stream keeps its newest snapshots, by offset. A newer one drops the oldest; one older than all
  of a full set is refused, because it would be dropped at once.
- Another snapshot for the same offset replaces the first.
- Snapshots are deleted with their stream. A fork starts without any.
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
    """A snapshot; the stream then keeps only the newest `keep` of them."""

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
    """Refuse a snapshot that would be dropped at once."""
    if len(kept) >= SNAPSHOTS_KEPT and position < min(one.position for one in kept):
        raise SnapshotOutdated(SNAPSHOTS_KEPT)
