"""`make cluster` starts, shows how to kill its parts, survives that, and ends without leftovers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PATIENCE_S = 180


def lines_until(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        text = log.read_text()
        if re.search(pattern, text):
            return text
        assert process.poll() is None, text
        assert time.monotonic() < deadline, text
        time.sleep(0.1)


@pytest.mark.alone
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
