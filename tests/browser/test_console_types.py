"""The scripts of the console are typed in their comments, and a checker reads them."""

from __future__ import annotations

import subprocess

from tests.support import node_packages
from tests.support.browser import HARNESS


def test_the_scripts_of_the_console_are_well_typed() -> None:
    packages = node_packages.install(HARNESS, needed_by="types of the console")
    checked = subprocess.run(
        [packages / ".bin" / "tsc", "--project", HARNESS / "console.tsconfig.json"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert checked.returncode == 0, checked.stdout
