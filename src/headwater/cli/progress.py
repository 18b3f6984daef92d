"""A progress bar on stderr, for what takes longer than a moment on a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from headwater.cli.output import size

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

# What is done sooner than this needs no bar.
_DELAY_S: Final = 0.4


class Progress:
    """How far something is. Costs next to nothing when it is not shown.

    It is shown on a terminal only, and the caller says if the terminal is taken by the data.
    """

    def __init__(self, label: str, *, total: int | None = None, visible: bool = True) -> None:
        self._label = label
        self._total = total
        self._wanted = visible and sys.stderr.isatty()
        self._show_at = time.monotonic() + _DELAY_S
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    @property
    def wanted(self) -> bool:
        """Whether there is anyone to see it."""
        return self._wanted

    def expect(self, total: int | None) -> None:
        """The number of bytes that there will be."""
        self._total = total

    def update(self, done: int, note: str = "", *, in_bytes: bool = True) -> None:
        """Say how much is done: bytes, unless told otherwise, and something for people."""
        if not self._wanted or (self._bar is None and time.monotonic() < self._show_at):
            return
        if self._bar is None:
            self._start()
        assert self._bar is not None
        assert self._task is not None
        shown = f"{size(done)}  {note}" if in_bytes else note
        self._bar.update(self._task, completed=done, note=shown)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task(self._label, total=self._total, note="")
        self._bar.start()
