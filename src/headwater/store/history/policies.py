"""The settings of history."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.core.limits import MIB


@dataclass(frozen=True, slots=True)
class SealPolicy:
    """When rows become history."""

    after_bytes: int = 32 * MIB
    """A stream with this much in rows."""
    after_ms: int = 3_600_000
    """A stream whose oldest row is this old."""
    database_bytes_max: int = 512 * MIB
    """All streams together: beyond this, the largest are sealed until half of it is left."""
    segment_bytes: int = 64 * MIB
    """The approximate size of a file."""
    compact_bytes_per_second: int = 4 * MIB
    """How fast small and mostly unneeded files are merged; 0 disables it."""


@dataclass(frozen=True, slots=True)
class ArchivePolicy:
    """Where history goes, and how much of it stays on this machine."""

    url: str
    local_bytes_max: int = 10 * 1024 * MIB
    cache_bytes_max: int = 1024 * MIB
    unused_kept_ms: int = 600_000
    """If several nodes share it: how long a segment without extents stays."""
