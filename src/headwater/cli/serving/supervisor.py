"""A process that runs alongside the server: stopped with it, and restarted if it dies.

The process reports on its stdout, one object per line (`{"is": "progress", …}`), and exits when its
stdin closes. So it exits cleanly when the server does, and by itself if the server is killed. Its
stderr goes to a file. It has its own session: a Ctrl-C at the terminal is for the server, which
then stops both in the right order.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

FIRST_PAUSE_S: Final = 1.0
PAUSE_S_MAX: Final = 60.0
GRACE_S: Final = 30.0
_LINE_BYTES_MAX: Final = 1024 * 1024
_WORDS_OF_LOG_BYTES: Final = 2_000

Report = dict[str, Any]


class Supervisor:
    """One process, from its first start to its last exit.

    Args:
        name: its name for people.
        command: what to run.
        environment: its environment variables.
        log: the file for its stderr; each start truncates it.
        heed: called with each report.
        say: called with each line for people.
        tell: called with the reason if it dies, and with None once it works again.
        first_pause_s: how long to wait before it is restarted; doubled each time.
        grace_s: how long it may take to exit.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        heed: Callable[[Report], None],
        say: Callable[[str], None],
        tell: Callable[[str | None], None] = lambda why: None,
        *,
        first_pause_s: float = FIRST_PAUSE_S,
        grace_s: float = GRACE_S,
    ) -> None:
        self._name = name
        self._command = command
        self._environment = dict(environment)
        self._log = log
        self._heed = heed
        self._say = say
        self._tell = tell
        self._first_pause_s = first_pause_s
        self._grace_s = grace_s
        self._process: asyncio.subprocess.Process | None = None
        self._why: str | None = None
        self._is_final = False
        self._does_well = False
        self._has_died = False

    async def keep_running(self) -> None:
        """Start it, and restart it whenever it dies, until it says that this would not help."""
        next_pause_s = self._first_pause_s
        while True:
            status = await self._run_once()
            self._has_died = True
            if self._is_final:
                self._say(
                    f"{self._name} do not run: {self._why}; the server continues without them"
                )
                self._tell(self._why)
                return
            pause_s = self._first_pause_s if self._does_well else next_pause_s
            next_pause_s = min(pause_s * 2, PAUSE_S_MAX)
            ended = f"have ended ({_status(status)}): {self._why or self._last_words()}"
            self._say(f"{self._name} {ended}; again in {pause_s:.0f} s, more in {self._log}")
            self._tell(ended)
            await asyncio.sleep(pause_s)

    async def stop(self, hurry: asyncio.Event) -> None:
        """Stop it cleanly; at once if `hurry` is set, or if it takes too long."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        ended = asyncio.create_task(process.wait())
        hurried = asyncio.create_task(hurry.wait())
        await asyncio.wait(
            (ended, hurried), timeout=self._grace_s, return_when=asyncio.FIRST_COMPLETED
        )
        hurried.cancel()
        self._kill_group(process)
        await ended

    async def _run_once(self) -> int:
        """Run it until it exits; returns its exit status."""
        self._why, self._is_final, self._does_well = None, False, False
        with self._log.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env=self._environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                limit=_LINE_BYTES_MAX,
            )
        self._process = process
        assert process.stdout is not None
        async for line in process.stdout:
            self._take(line)
        status = await process.wait()
        self._kill_group(process)
        self._process = None
        return status

    def _take(self, line: bytes) -> None:
        try:
            report = msgspec.json.decode(line, type=Report)
        except msgspec.DecodeError:
            # Output of some library; ignore it.
            return
        if report.get("is") == "failed":
            self._why, self._is_final = str(report.get("why")), bool(report.get("final"))
            return
        if report.get("is") == "progress" and not self._does_well:
            self._does_well = True
            if self._has_died:
                self._tell(None)
        self._heed(report)

    def _kill_group(self, process: asyncio.subprocess.Process) -> None:
        """Kill it together with the processes it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)

    def _last_words(self) -> str:
        with suppress(OSError):
            lines = self._log.read_bytes()[-_WORDS_OF_LOG_BYTES:].decode(errors="replace")
            if words := lines.strip():
                return words.splitlines()[-1].strip()
        return "without a word"


def _status(status: int) -> str:
    return f"by signal {-status}" if status < 0 else f"exit {status}"
