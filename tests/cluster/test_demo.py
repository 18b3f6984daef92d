"""`make cluster` starts, shows how to kill its parts, survives that, and ends without leftovers,
whenever it is told to."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.cluster import until

PATIENCE_S = 180
AS_MAKE = """
import signal, subprocess, sys
default = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.exit(subprocess.Popen(sys.argv[1:], preexec_fn=default).wait())
"""


def lines_until(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        text = log.read_text()
        if re.search(pattern, text):
            return text
        assert process.poll() is None, text
        assert time.monotonic() < deadline, text
        time.sleep(0.1)


@pytest.mark.late
@pytest.mark.slow
def test_kill_a_node_and_the_primary(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as output:
        demo = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.demo"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        text = lines_until(log, r"PostgreSQL c, a replica", demo)
        pids = [int(pid) for pid in re.findall(r"kill -9 (\d+)", text)]
        assert len(pids) == 6
        os.kill(pids[0], signal.SIGKILL)
        lines_until(log, r"node 1 is back", demo)
        os.kill(pids[3], signal.SIGKILL)
        lines_until(log, r"was promoted", demo)
        lines_until(log, r"is back, as a replica", demo)
        demo.send_signal(signal.SIGINT)
        assert demo.wait(PATIENCE_S) == 0, log.read_text()
    finally:
        if demo.poll() is None:
            demo.kill()
            demo.wait()
    said = re.search(r"([\d,]+) acknowledged, .* lost 0, stored twice 0", log.read_text())
    assert said is not None, log.read_text()
    assert int(said[1].replace(",", "")) > 10
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def of_session(session: int, parent: int | None = None) -> dict[int, bytes]:
    """All processes of a session, or those that one of them has started, with what they are."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, starter, _, its_session = (
                (place / "stat").read_text().rpartition(")")[2].split()[:4]
            )
            is_wanted = int(its_session) == session and parent in (None, int(starter))
            if is_wanted and state != "Z":
                found[int(place.name)] = (place / "cmdline").read_bytes()
    return found


def end_by_supervisor(demo: int) -> None:
    os.kill(demo, signal.SIGTERM)


def end_from_terminal(demo: int) -> None:
    """Ctrl-C tells everything that was started, too."""
    os.killpg(os.getsid(demo), signal.SIGINT)


def end_with_make(demo: int) -> None:
    """Nobody is told anything."""
    os.kill(os.getsid(demo), signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
@pytest.mark.crash
@pytest.mark.parametrize(
    "end, moment",
    [
        pytest.param(end_by_supervisor, b"headwater-postgres-", id="supervisor"),
        pytest.param(end_from_terminal, b"bin/postgres\0-D", id="terminal"),
        pytest.param(end_with_make, b"bin/postgres\0-D", id="make"),
    ],
)
def test_end_while_postgresql_starts(
    end: Callable[[int], None], moment: bytes, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with log.open("wb") as output:
        # In the place of make, and leader of a session of its own.
        parent = subprocess.Popen(
            [sys.executable, "-c", AS_MAKE, sys.executable, "-m", "tests.cluster.demo"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        # With its first program, or when a server runs and is about to be copied.
        until(lambda: any(moment in what for what in of_session(parent.pid).values()))
        # Not whoever has just been forked off it, and looks the same.
        (demo,) = of_session(parent.pid, parent.pid)
        end(demo)
        until(lambda: not of_session(parent.pid), PATIENCE_S)
    finally:
        for pid in of_session(parent.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        parent.wait()
    assert "Traceback" not in log.read_text()
