"""What the memory engine holds: a log for each stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import RLock

from headwater.core.live.templates import TemplateRecord
from headwater.core.snapshots import SnapshotTaken
from headwater.core.stream import Appended, StreamState


@dataclass(slots=True)
class Log:
    state: StreamState
    appends: list[Appended] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)
    templates: dict[int, TemplateRecord] = field(default_factory=dict)
    snapshots: dict[int, SnapshotTaken] = field(default_factory=dict)


class Tables:
    def __init__(self) -> None:
        self.lock = RLock()
        self.logs: dict[int, Log] = {}
        self.ids: dict[str, int] = {}
        self.next_id = 1
