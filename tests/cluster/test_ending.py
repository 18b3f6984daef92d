"""`make nemesis` that is told to end: it takes along everything that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.cluster import until

PATIENCE_S = 480


def family(pid: int) -> dict[int, bytes]:
    """All processes below one, with what they are."""
    found: dict[int, bytes] = {}
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, children.read_text().split()):
                found[child] = _what(child)
                found |= family(child)
    return found


def _what(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
@pytest.mark.crash
@pytest.mark.slow
def test_nothing_is_left_behind() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.cluster", "3", "5"],
        stdout=subprocess.PIPE,
        text=True,
        # A terminal would tell all of them; a supervisor tells only the first.
        start_new_session=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        overdue = threading.Timer(PATIENCE_S, process.kill)
        overdue.start()
        said = process.stdout.readline()
        assert "seed 3" in said
        # The first bad thing happens: three PostgreSQL and three nodes are there.
        said += process.stdout.readline()
        started = {pid: what for pid, what in family(process.pid).items() if what}
        assert sum(b"headwater" in what and b"serve" in what for what in started.values()) >= 2
        assert sum(b"postgres" in what for what in started.values()) >= 3
        process.send_signal(signal.SIGTERM)
        said += process.stdout.read()
        overdue.cancel()
    assert process.returncode == 130, said
    assert "ended early" in said
    assert "Traceback" not in said
    until(lambda: not any(_what(pid) == what for pid, what in started.items()))
