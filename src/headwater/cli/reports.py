"""What the pipelines report, as a line now and then for whoever watches the terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from headwater.cli.supervisor import Report

QUIET_S: Final = 10.0


@dataclass(slots=True)
class _Standing:
    """How one pipeline is doing."""

    rows: int = 0
    behind: int = 0
    behind_s: float = 0.0

    def line(self, name: str) -> str:
        late = f" ({self.behind_s:.0f} s)" if self.behind_s >= 1 else ""
        behind = f", {self.behind:,} behind{late}" if self.behind else ""
        return f"{name} +{self.rows:,} rows{behind}"


class Bulletin:
    """Takes reports; speaks when something is new, but not all the time."""

    def __init__(
        self, names: Sequence[str], say: Callable[[str], None], quiet_s: float = QUIET_S
    ) -> None:
        self._say = say
        self._quiet_s = quiet_s
        self._silent = set(names)
        self._news: dict[str, _Standing] = {}
        self._timer: asyncio.TimerHandle | None = None

    def take(self, report: Report) -> None:
        match report:
            case {"is": "running"}:
                self._say("Spark has started; all JSON streams are being taken in")
            case {"is": "progress", "pipeline": str(name), "rows": int(rows)}:
                standing = self._news.setdefault(name, _Standing())
                standing.rows += rows
                standing.behind = report.get("lag_messages") or 0
                standing.behind_s = report.get("lag_s") or 0.0
                self._first_of(name)
                if self._timer is None:
                    self._speak()
            case {"is": "left out", "stream": str(stream), "why": str(why)}:
                self._say(f"the table of {stream} ends here: {why}")

    def _first_of(self, name: str) -> None:
        if name in self._silent:
            self._silent.remove(name)
            if not self._silent:
                self._say("all tables are there: try the commands above")

    def _speak(self) -> None:
        """Tell what is new, and then nothing for a while."""
        self._timer = None
        if self._news:
            lines = [self._news[name].line(name) for name in sorted(self._news)]
            self._say("; ".join(lines))
            self._news.clear()
            self._timer = asyncio.get_running_loop().call_later(self._quiet_s, self._speak)
