"""A Java for Spark sessions that live for seconds: it starts with half the work.

The compiler that makes long runs fast (C2) and the garbage collector with its own threads cost a
short run more than they gain. Options set by a test come later on the command line, so they win.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

_LAUNCHER: Final = """#!/bin/sh
exec "{java}" -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "$@"
"""


def make_home(directory: Path) -> Path | None:
    """A directory that can be `JAVA_HOME`; None if Java only comes with a Python package."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=os.path.join(home, "bin") if home else None)
    if found is None:
        return None
    launcher = directory / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(_LAUNCHER.format(java=Path(found).resolve()))
    launcher.chmod(0o755)
    return directory
