"""The published AI transports, end to end, with drops and resumes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import node_packages
from tests.support.server import ServerProcess

HERE = Path(__file__).parent
TIMEOUT_S = 120


@pytest.mark.conformance
def test_the_published_ai_transports_lose_and_repeat_nothing(tmp_path: Path) -> None:
    node_packages.install(HERE, needed_by="AI transports")
    arguments = ("--sse-lifetime-ms", "100", "--long-poll-timeout-ms", "200")
    with ServerProcess("--data", str(tmp_path / "data"), *arguments) as server:
        done = subprocess.run(
            ["node", str(HERE / "transports.mjs"), server.url],
            cwd=HERE,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == "ok\n"
        assert "Traceback" not in server.stderr
