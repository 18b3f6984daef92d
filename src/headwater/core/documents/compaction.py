"""When a document is compacted, and what it may then let go of.

A document is due when what was written since its snapshot has passed a threshold. Since a snapshot
is made from the one before it, that must also be a share of its size: or a large document would be
read and written again and again for every little that is added.

A snapshot holds all that was written before it. Updates that it covers may be dropped once they
are old enough for every reader to have passed them, if the server is told how old that is. What
no snapshot covers stays.
"""

from __future__ import annotations

from typing import Final

_SHARE: Final = 4


def is_due(tail: int, snapshot_at: int, snapshot_bytes: int, threshold_bytes: int) -> bool:
    """Whether there is enough to compact, given where the snapshot is (0 if there is none)."""
    written = tail - snapshot_at
    return written >= threshold_bytes and _SHARE * written >= snapshot_bytes


def droppable_to(snapshot_at: int, older_end_at: int) -> int:
    """How far updates may be dropped, given where those end that are old enough."""
    return min(snapshot_at, older_end_at)
