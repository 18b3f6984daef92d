"""The segment files that are open, least recently used first."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Final

from headwater.store.history.segment import Segment, SegmentRow

DIRECTORY_NAME: Final = "segments"
_OPEN_MAX: Final = 512


class Shelf:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._open: OrderedDict[int, Segment] = OrderedDict()
        self._lock = Lock()

    def segment(self, row: SegmentRow) -> Segment:
        """A segment to read from. Raises FileNotFoundError when the file is gone."""
        with self._lock:
            held = self._open.get(row.id)
            if held is not None:
                self._open.move_to_end(row.id)
                return held
        opened = Segment(self.directory / row.name, row)
        with self._lock:
            # Someone else may have opened it meanwhile and have looked at its blocks already.
            kept = self._open.setdefault(row.id, opened)
            while len(self._open) > _OPEN_MAX:
                self._open.popitem(last=False)
        return kept

    def drop(self, segment_id: int) -> None:
        """Nobody shall come across this one any more; who has it may finish with it."""
        with self._lock:
            self._open.pop(segment_id, None)

    def close(self) -> None:
        with self._lock:
            self._open.clear()
