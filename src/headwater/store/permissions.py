"""Data is private to its owner: directories are 0700 and files 0600, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import structlog

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
_OTHERS: Final = 0o077

log = structlog.get_logger()


def make_directory(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True, mode=DIRECTORY_MODE)


def create_file(path: Path) -> None:
    """An empty file that only its owner may read; related files inherit its mode."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE))


def tighten(directory: Path, own: tuple[str, ...]) -> None:
    """Remove other users' access to a directory from an older version, and to our files in it."""
    changed = 0
    for path in _ours(directory, own):
        try:
            mode = path.stat().st_mode
            if mode & _OTHERS:
                path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
                changed += 1
        except OSError as error:
            log.warning("permissions_not_tightened", path=str(path), error=error.strerror)
    if changed:
        log.info("permissions_tightened", directory=str(directory), changed=changed)


def _ours(directory: Path, own: tuple[str, ...]) -> Iterator[Path]:
    yield directory
    for name in own:
        path = directory / name
        if path.is_dir():
            yield path
            yield from path.iterdir()
        elif path.exists():
            yield path
