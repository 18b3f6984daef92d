"""What an engine reports for monitoring."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.core.histograms import Histogram


@dataclass(frozen=True, slots=True)
class HistoryFigures:
    """History files: those on this machine, those in object storage, those in both."""

    local_files: int = 0
    local_bytes: int = 0
    remote_files: int = 0
    remote_bytes: int = 0
    waiting_bytes: int = 0
    """Of those on this machine, what object storage does not have."""


@dataclass(frozen=True, slots=True)
class ReplicationFigures:
    """Which replicas have what is committed, if the engine's database is replicated."""

    replicas: int = 0
    """Replicas that a commit waits for, all or some of them."""
    lag_bytes: int = 0
    """How much the slowest replica does not have on disk yet."""


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """What an engine reports for monitoring."""

    sync_seconds: Histogram
    """How long making a batch durable took, once everything was written."""
    disk_bytes: dict[str, int]
    """Disk usage by part; empty without files."""
    history: HistoryFigures = HistoryFigures()
    replication: ReplicationFigures = ReplicationFigures()
