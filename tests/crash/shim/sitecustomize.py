"""Bad disks and wrong clocks for a server under test.

Python imports this module by itself when this directory is on PYTHONPATH, before the server's own
first line. The server runs unchanged; what changes is what happens to its files below SQLite. See
`tests/crash/faults.py` for the other side. In the environment:

- `FAULTS_CONTROL` names a file that says what fails at this moment: nothing when it is empty or
  missing, otherwise the value of a `Fault`.
- `FAULTS_CLOCK` names a file that says by how much the time of day is off.
- `FAULTS_LOG` names a file that standard error goes to, such as `/dev/full`.
- `FAULTS_POWER_LOSS` names a directory for logs of what was written but not yet synced, so that a
  test can take it away again; see `volatile_disk`.
"""

from __future__ import annotations

import os
from pathlib import Path

if "FAULTS_LOG" in os.environ:
    os.dup2(os.open(os.environ["FAULTS_LOG"], os.O_WRONLY), 2)

if "FAULTS_CLOCK" in os.environ:
    from tests.crash.shim import wrong_clock

    wrong_clock.install(Path(os.environ["FAULTS_CLOCK"]))

if "FAULTS_CONTROL" in os.environ:
    from tests.crash.shim.failing_disk import install

    install(Path(os.environ["FAULTS_CONTROL"]))

if "FAULTS_POWER_LOSS" in os.environ:
    from tests.crash.shim.volatile_disk import VolatileSegments, VolatileVFS

    # Kept alive for as long as the process: SQLite holds on to it.
    VFS = VolatileVFS(Path(os.environ["FAULTS_POWER_LOSS"]))
    VolatileSegments(Path(os.environ["FAULTS_POWER_LOSS"])).install()
