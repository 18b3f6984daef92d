"""The test that the guide shows passes. Its commands are run by tests/docs/test_howtos.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.test_testing import INI, plugin_arguments

pytest_plugins = ["pytester"]

GUIDE = Path(__file__).parent.parent.parent / "docs" / "howto" / "cli.md"


def snippets(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def test_the_python_snippet(pytester: pytest.Pytester) -> None:
    pytester.makeini(INI)
    pytester.makepyfile(*snippets("python"))
    pytester.runpytest_subprocess(*plugin_arguments(), "-q").assert_outcomes(passed=1)
