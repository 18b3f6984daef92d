"""Making sure that what was written survives a power cut."""

from __future__ import annotations

import os
from pathlib import Path

from headwater.store.permissions import make_directory


def sync(path: Path) -> None:
    """Sync the content of a file, or the names in a directory."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def ensure_directory(path: Path) -> None:
    """Make a directory that survives a power cut, unless it is there."""
    if not path.is_dir():
        make_directory(path)
        sync(path.parent)
