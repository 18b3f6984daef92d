"""Figures of this layer. A server without documents has them too, and they stay at 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headwater.core.histograms import SECONDS, Histogram

REASONS: Final = ("malformed", "too_large", "timed_out")


class Figures:
    def __init__(self) -> None:
        self.compactions = 0
        self.read_bytes = 0
        self.written_bytes = 0
        self.stopped = dict.fromkeys(REASONS, 0)
        """Documents that no worker can load, by reason."""
        self.seconds = Histogram(SECONDS)
        self.running: Callable[[], tuple[int, int]] = lambda: (0, 0)
        """How many documents are being compacted, and how many workers run."""
