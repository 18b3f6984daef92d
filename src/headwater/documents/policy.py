"""The settings of the document layer, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.core.limits import MIB


@dataclass(frozen=True, slots=True)
class Policy:
    compact_bytes: int = MIB
    """How much is written after a snapshot before the next one is made."""
    retention_s: int = 0
    """How old updates must be to be dropped once a snapshot covers them; 0 keeps them."""
    workers: int = 1
    """Documents that are loaded at a time, for compaction or for their content."""
    worker_memory_bytes: int = 1024 * MIB
    worker_timeout_s: float = 120.0
    waiting_max: int = 1000
    """Jobs that wait for a worker."""
