"""When a document is compacted, and which updates may be dropped then.

A document is due when the bytes written since its snapshot pass a threshold. A snapshot is made
from the previous one, so they must also be a share of its size: otherwise a large document would be
read and written again for every small addition.

A snapshot holds everything written before it. Updates it covers may be dropped once they are old
enough for every reader to have passed them, if the server is configured with that age. Updates that
no snapshot covers stay.
"""

from __future__ import annotations

from typing import Final

_SHARE: Final = 4


def is_due(tail: int, snapshot_at: int, snapshot_bytes: int, threshold_bytes: int) -> bool:
    """Whether there is enough to compact. `snapshot_at` is 0 if there is no snapshot."""
    written = tail - snapshot_at
    return written >= threshold_bytes and _SHARE * written >= snapshot_bytes


def droppable_to(snapshot_at: int, older_end_at: int) -> int:
    """How far updates may be dropped, given where the old enough ones end."""
    return min(snapshot_at, older_end_at)
