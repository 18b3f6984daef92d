"""Node packages that tests use, installed next to their lock file.

`make test` has installed them already; this is for running pytest directly.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

INSTALL_TIMEOUT_S = 300


def install(directory: Path, *, needed_by: str) -> Path:
    """Install what the lock file of `directory` says; return where. Skips without node."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip(f"{needed_by} need node 20.19 or newer, with npm")
    packages = directory / "node_modules"
    stamp, lock = packages / ".package-lock.json", directory / "package-lock.json"
    if not stamp.exists() or stamp.stat().st_mtime < lock.stat().st_mtime:
        subprocess.run(["npm", "ci"], cwd=directory, check=True, timeout=INSTALL_TIMEOUT_S)
        stamp.touch()
    return packages
