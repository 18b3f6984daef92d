"""Data on stdout: bytes as they are, records as lines of JSON, tables for people."""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import select
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Annotated, Final, Protocol, Self, TypeVar

import msgspec
import typer

from headwater.cli.exits import one_line
from headwater.cli.shell import say

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import TaskID
    from rich.table import Table

T = TypeVar("T")
_POLL_S: Final = 0.25
_PIPE_COLUMNS: Final = 400

Json = Annotated[
    bool, typer.Option("--json", help="Write JSON for scripts; the fields are documented.")
]


# The characters that terminals obey, except tabs and line ends.
_OBEYED: Final = re.compile(r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


class Output(Protocol):
    def write(self, data: bytes, /) -> object: ...
    def flush(self) -> None: ...


def stdout() -> Output:
    """Where data goes. Data written by others must not control the terminal that shows it."""
    return _SCREEN if is_terminal() else sys.stdout.buffer


def harmless(data: bytes) -> bytes:
    """Data made safe for a terminal.

    >>> harmless(b"a\\tb\\x1b[31m\\xff")
    b'a\\tb\\\\u001b[31m\\\\xff'
    """
    return _without_controls(data.decode(errors="backslashreplace"))


def _without_controls(text: str) -> bytes:
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


class _Screen:
    """Stdout on a terminal. Pieces may end anywhere, even within a character."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def write(self, data: bytes) -> None:
        sys.stdout.buffer.write(_without_controls(self._decoder.decode(data)))

    def flush(self) -> None:
        sys.stdout.buffer.flush()


_SCREEN: Final = _Screen()


def is_terminal() -> bool:
    return sys.stdout.isatty()


def has_colours() -> bool:
    """Whether stdout is a terminal with colours, without $NO_COLOR (https://no-color.org)."""
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def console() -> Console:
    """For tables; pipes have no width to wrap at. Names are shown verbatim, even `:tea:`."""
    from rich.console import Console

    width = None if is_terminal() else _PIPE_COLUMNS
    return Console(highlight=False, markup=False, emoji=False, width=width)


def new_table(*columns: str, folding: int = 1) -> Table:
    """A table without lines. A name with a # is a numeric column; the first columns may fold."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        if index < folding:
            table.add_column(name, overflow="fold")
        else:
            right = name.startswith("#")
            table.add_column(name.lstrip("#"), justify="right" if right else "left", no_wrap=True)
    return table


def write_json(record: msgspec.Struct) -> None:
    """Write one record on one line, at once."""
    stdout().write(msgspec.json.encode(record) + b"\n")
    stdout().flush()


def write_list(
    found: Iterable[T],
    *,
    json: bool,
    record: Callable[[T], msgspec.Struct],
    line: Callable[[T], str],
    table: Callable[[list[T]], Table],
    nothing: str,
) -> None:
    """Write records for scripts, a table on a terminal, and otherwise one line each."""
    if json:
        for one in found:
            write_json(record(one))
    elif not is_terminal():
        for one in found:
            write_line(line(one))
    elif listed := list(found):
        console().print(table(listed))
    else:
        say(nothing)


def report(record: msgspec.Struct, done: str, *, json: bool) -> None:
    """Report a change: a record for scripts, a message on a terminal."""
    if json:
        write_json(record)
    else:
        tell(done)


def tell(done: str) -> None:
    """Write a message on a terminal; scripts use the exit code."""
    if sys.stderr.isatty():
        say(done)


def write_line(text: str) -> None:
    stdout().write(text.encode() + b"\n")


def write_facts(facts: dict[str, object]) -> None:
    """Names and values, one pair per line; unknown values are left out."""
    width = max(map(len, facts))
    for name, value in facts.items():
        if value is not None:
            write_line(f"{name:<{width}}  {one_line(_shown(value))}")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def instant(at_ms: int | None) -> str | None:
    """Milliseconds since 1970 as RFC 3339 in UTC; None also for times outside the calendar.

    >>> instant(1_767_225_600_000)
    '2026-01-01T00:00:00Z'
    """
    if at_ms is None:
        return None
    precision = "seconds" if at_ms % 1000 == 0 else "milliseconds"
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")


def on_one_line(message: bytes) -> bytes:
    """JSON text without line breaks, otherwise as it was appended; line feeds in it are layout.

    >>> on_one_line(b'{"large": 1.0,\\n "n": 100000000000000000000}')
    b'{"large":1.0,"n":100000000000000000000}'
    """
    if b"\n" in message or b"\r" in message:
        return msgspec.json.format(message, indent=-1)
    return message


def size(count: float) -> str:
    """A number of bytes for people.

    >>> size(999), size(2048), size(5 << 20)
    ('999 B', '2.0 KiB', '5.0 MiB')
    """
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} TiB"


@contextmanager
def watched_pipe() -> Iterator[None]:
    """Notice when the reader of our output goes away, even while there is nothing to write.

    A write would notice, but a command that follows a quiet stream may not write for hours. Inside
    this block the main thread gets the `BrokenPipeError` anyway.
    """
    descriptor = _pipe_descriptor()
    if descriptor is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    done = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(descriptor, done), name="headwater-pipe", daemon=True
    )
    previous = signal.signal(signal.SIGUSR1, _raise_broken_pipe)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        signal.signal(signal.SIGUSR1, previous)


def _pipe_descriptor() -> int | None:
    """The descriptor of stdout, if its reader can go away."""
    try:
        descriptor = sys.stdout.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):
        return None
    return descriptor if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None


async def output_closed() -> None:
    """Wait until the reader of our output is gone, in a command that runs on asyncio."""
    descriptor = _pipe_descriptor()
    if descriptor is None:
        await asyncio.Event().wait()
        return
    while not _has_no_reader(descriptor):  # noqa: ASYNC110 - nobody would set an event
        await asyncio.sleep(_POLL_S)


def _has_no_reader(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, 0)  # errors are always reported
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _watch(descriptor: int, done: threading.Event) -> None:
    while not done.wait(_POLL_S):
        if _has_no_reader(descriptor):
            # A signal interrupts the main thread, whatever it waits for.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            return


def _raise_broken_pipe(number: int, frame: FrameType | None) -> None:
    raise BrokenPipeError


# --- How far something is, on stderr --------------------------------------------------------------


# Work that takes less than this needs no progress bar.
_DELAY_S: Final = 0.4


class Progress:
    """A progress bar. Costs next to nothing if it is not shown.

    It is shown on a terminal only, and not if the data goes to the terminal, which the caller says.
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
        """Whether anyone can see it."""
        return self._wanted

    def expect(self, total: int | None) -> None:
        """Set the expected number of bytes."""
        self._total = total

    def update(self, done: int, note: str = "", *, in_bytes: bool = True) -> None:
        """Update the amount done: bytes by default, with a note for people."""
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
