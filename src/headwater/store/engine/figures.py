"""What an engine tells those who watch it."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.core.histograms import Histogram


@dataclass(frozen=True, slots=True)
class HistoryFigures:
    """The files of history: those of this machine, those in object storage, those in both."""

    local_files: int = 0
    local_bytes: int = 0
    remote_files: int = 0
    remote_bytes: int = 0
    waiting_bytes: int = 0
    """Of those on this machine, what object storage does not have."""


@dataclass(frozen=True, slots=True)
class ReplicationFigures:
    """Who has a copy of what is committed, where the engine's database is replicated."""

    replicas: int = 0
    """Those that a commit waits for, or for some of them."""
    lag_bytes: int = 0
    """How much the slowest replica has not on its disk yet."""


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """What an engine tells those who watch it."""

    sync_seconds: Histogram
    """How long it took to make a batch durable, once everything was written."""
    disk_bytes: dict[str, int]
    """What it occupies on disk, by part; empty when it has no files."""
    history: HistoryFigures = HistoryFigures()
    replication: ReplicationFigures = ReplicationFigures()
