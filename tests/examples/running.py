"""An example, run as its README says, for as long as a block lasts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from tests.docs.markdown import ROOT
from tests.support.server import free_port

PATIENCE_S = 60.0


@contextmanager
def running(*command: str) -> Iterator[str]:
    """Start it with `{port}` filled in, wait until its page answers, and end it as Ctrl-C does."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, *(part.format(port=port) for part in command)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={k: v for k, v in os.environ.items() if not k.startswith("HEADWATER_")},
        )
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not _answers(url):
                output.seek(0)
                assert process.poll() is None, output.read().decode(errors="replace")
                assert time.monotonic() < deadline, "its page does not answer"
                time.sleep(0.05)
            yield url
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
