"""The guide does what it says: every snippet is run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_testing import INI, plugin_arguments
from tests.support.server import ServerProcess

pytest_plugins = ["pytester"]

GUIDE = Path(__file__).parent.parent.parent / "docs" / "howto" / "cli.md"


def snippets(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def test_the_shell_snippets(
    server: ServerProcess, process_environment: dict[str, str], tmp_path: Path
) -> None:
    script = "\n".join(
        [
            "set -e -o pipefail",
            f'headwater() {{ {sys.executable} -m headwater "$@"; }}',
            *snippets("sh"),
        ]
    )
    ran = subprocess.run(
        ["bash", "-c", script],
        env=process_environment | {"STREAM_URL": server.url},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[:3] == ['{"id": 1, "item": "tea"}', '{"id": 2}', '{"id": 3}']
    assert "100000" in lines
    assert "secret-token" not in ran.stdout + ran.stderr
    assert "100 messages had been stored before" in ran.stderr
    assert "20 are new" in ran.stderr
    assert "50,000 messages had been stored before" in ran.stderr


def test_the_python_snippet(pytester: pytest.Pytester) -> None:
    pytester.makeini(INI)
    pytester.makepyfile(*snippets("python"))
    pytester.runpytest_subprocess(*plugin_arguments(), "-q").assert_outcomes(passed=1)
