"""A terminal for a command: what a person would see and type."""

from __future__ import annotations

import os
import pty
import re
import select
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from fcntl import ioctl
from termios import TIOCSWINSZ
from typing import Any

_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|[@-_])")


class Terminal:
    """A process on the far side of a pseudo-terminal."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self._master = master
        self._written = b""

    @property
    def screen(self) -> str:
        """Everything written so far, without what only moves the cursor."""
        text = self._written.decode(errors="replace").replace("\r\n", "\n")
        return _ESCAPES.sub("", text)

    @property
    def written(self) -> bytes:
        """Everything written so far, byte by byte."""
        return self._written

    def wait_for(self, text: str, timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        while text not in self.screen:
            assert self._read(deadline - time.monotonic()), f"no {text!r} in:\n{self.screen}"

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def end(self, timeout_s: float = 60.0) -> int:
        """Wait for the process to end, reading on meanwhile."""
        deadline = time.monotonic() + timeout_s
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still running:\n{self.screen}"
            self._read(0.05)
        while self._read(0):
            pass
        return self.process.returncode

    def interrupt(self) -> int:
        """End it by Ctrl-C. One just before the process begins to wait would be missed."""
        for _ in range(30):
            self.type("\x03")
            with suppress(AssertionError):
                return self.end(2)
        return self.end()

    def _read(self, timeout_s: float) -> bool:
        if not select.select([self._master], [], [], max(0.0, timeout_s))[0]:
            return False
        try:
            data = os.read(self._master, 65_536)
        except OSError:  # the other side has closed it
            return False
        self._written += data
        return bool(data)


@contextmanager
def on_terminal(
    *args: str, env: Mapping[str, str], columns: int = 100, **redirected: Any
) -> Iterator[Terminal]:
    """Run a command on a terminal of 30 lines; single streams can be redirected."""
    master, slave = pty.openpty()
    ioctl(slave, TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    streams = {"stdin": slave, "stdout": slave, "stderr": slave, **redirected}
    process = subprocess.Popen(
        [sys.executable, "-m", "headwater", *args],
        env={k: v for k, v in env.items() if k != "COLUMNS"},
        start_new_session=True,
        preexec_fn=_take_terminal if "stdin" not in redirected else None,
        **streams,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(master)


def _take_terminal() -> None:
    """Make stdin the terminal that sends the interrupt when Ctrl-C is typed."""
    from termios import TIOCSCTTY

    ioctl(0, TIOCSCTTY, 0)
