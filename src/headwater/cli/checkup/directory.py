"""The data directory: who may use it, who does, where it is, and what is in it."""

from __future__ import annotations

import fcntl
import os
import stat
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import apsw

from headwater.cli.checkup.findings import Finding, hint, ok, problem
from headwater.cli.output import size
from headwater.core.limits import MIB
from headwater.store.history.open_segments import DIRECTORY_NAME
from headwater.store.restoring import SCRATCH_NAME
from headwater.store.sqlite.database import (
    DATABASE_NAME,
    LOCK_NAME,
    DataDirectoryError,
    disk_bytes,
    open_reader,
)
from headwater.store.sqlite.schema import SCHEMA_VERSION
from headwater.store.verify import missing_files, newest_append_ms, sample_appends

_SPACE_MIN: Final = 256 * MIB
_LOG_BYTES_MAX: Final = 1024 * MIB
_SLOW_SYNC_S: Final = 0.025
_UNBELIEVABLE_SYNC_S: Final = 0.00002
_SYNCS: Final = 15
_SAMPLE: Final = 2_000
_SHOWN_MAX: Final = 10
_AHEAD_MS: Final = 60_000
_REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs"})
_VOLATILE: Final = frozenset({"tmpfs", "ramfs"})


class Use(NamedTuple):
    """Whether a process uses the directory."""

    held: bool
    holder: str


def use_of(directory: Path) -> Use:
    """Look at the lock without taking it."""
    try:
        file = os.open(directory / LOCK_NAME, os.O_RDONLY)
    except OSError:
        return Use(False, "")
    holder = os.read(file, 32).decode(errors="replace").strip() or "unknown"
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return Use(True, holder)
    finally:
        os.close(file)
    return Use(False, holder)


def check(directory: Path, use: Use) -> Iterator[Finding]:
    if not directory.exists():
        yield _missing(directory)
        return
    if not directory.is_dir():
        advice = "name a directory, with DIR or --data"
        yield problem("directory", f"{directory} is not a directory", advice)
        return
    yield from _permissions(directory)
    yield _lock(directory, use)
    yield from _space(directory)
    yield from _filesystem(directory)
    if os.access(directory, os.W_OK):
        yield from _sync_speed(directory)
    yield from _leftovers(directory)
    yield from _database(directory)


def _missing(directory: Path) -> Finding:
    parent = next(parent for parent in directory.absolute().parents if parent.exists())
    if os.access(parent, os.W_OK | os.X_OK):
        return ok("directory", f"{directory} does not exist yet; a server would create it")
    advice = f"make it, and give it to the user that runs the server; {parent} is not writable"
    return problem("directory", f"{directory} does not exist", advice)


def _permissions(directory: Path) -> Iterator[Finding]:
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        yield problem(
            "permissions",
            f"this user cannot read and write {directory}",
            "run this as the user of the server, or give the directory to that user",
        )
    about = directory.stat()
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield hint("permissions", f"others may write to {directory}", f"chmod go-w {directory}")
    for name in (DATABASE_NAME, f"{DATABASE_NAME}-wal", LOCK_NAME):
        path = directory / name
        if path.exists() and path.stat().st_uid != about.st_uid:
            yield problem(
                "permissions",
                f"{path} belongs to user {path.stat().st_uid}, its directory to {about.st_uid}",
                f"chown -R --reference={directory} {directory}",
            )


def _lock(directory: Path, use: Use) -> Finding:
    if not use.held:
        return ok("lock", f"{directory} is not in use")
    return ok("lock", f"process {use.holder} uses {directory}; another server could not start here")


def _space(directory: Path) -> Iterator[Finding]:
    about = os.statvfs(directory)
    free = about.f_bavail * about.f_frsize
    used = sum(disk_bytes(directory / DATABASE_NAME).values()) + _history_bytes(directory)
    if free < _SPACE_MIN:
        advice = "make room: without it, appends are answered 503; streams can still be deleted"
        yield problem("space", f"{size(free)} left on this disk", advice)
    elif free < used:
        advice = "a backup would not fit on the same disk; put backups elsewhere"
        yield hint("space", f"{size(free)} left, and the data takes {size(used)}", advice)
    else:
        yield ok("space", f"{size(free)} left, {size(used)} in use")
    if about.f_files and not about.f_favail:
        yield problem("space", "no more files can be created on this disk", "remove some (inodes)")


def _history_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in (directory / DIRECTORY_NAME).glob("*.seg"))


def _filesystem(directory: Path) -> Iterator[Finding]:
    kind = _kind_of(directory)
    if kind in _REMOTE or kind.startswith("fuse."):
        yield problem(
            "file system",
            f"{directory} is on {kind}, which does not keep locks and memory maps consistent",
            "use a local disk",
        )
    elif kind in _VOLATILE:
        advice = "use a disk; or serve with --memory, if that is meant"
        yield hint("file system", f"{directory} is on {kind}: a reboot empties it", advice)
    elif kind == "overlay":
        advice = "mount a volume there"
        yield hint("file system", f"{directory} is deleted with its container", advice)
    elif kind:
        yield ok("file system", kind)


def _kind_of(directory: Path) -> str:
    """The file system of a directory, as far as the kernel tells."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    device = directory.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        if fields.split()[2] == number:
            return rest.split()[0]
    return ""


def _sync_speed(directory: Path) -> Iterator[Finding]:
    try:
        typical_s = _time_syncs(directory)
    except OSError as error:
        advice = "look at the disk and at the system's log"
        yield problem("disk", f"a test file could not be written: {error.strerror}", advice)
        return
    if typical_s > _SLOW_SYNC_S:
        yield hint(
            "disk",
            f"making data durable takes {typical_s * 1000:.0f} ms (fsync)",
            "every append waits at least this long; a faster disk helps, more writers cost nothing",
        )
    elif typical_s < _UNBELIEVABLE_SYNC_S:
        yield hint(
            "disk",
            f"making data durable takes {typical_s * 1e6:.0f} µs, which no disk can do",
            "find out what survives a power cut: a cache without a battery may be lying",
        )
    else:
        yield ok("disk", f"making data durable takes {typical_s * 1000:.2f} ms (fsync)")


def _time_syncs(directory: Path) -> float:
    times = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(_SYNCS):
            file.write(b"\0" * 4096)
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def _leftovers(directory: Path) -> Iterator[Finding]:
    path = directory / SCRATCH_NAME
    if path.exists():
        advice = f"remove {path}, then restore again"
        yield hint("directory", f"{path.name} is left over from an interrupted restore", advice)


def _database(directory: Path) -> Iterator[Finding]:
    path = directory / DATABASE_NAME
    if not path.exists():
        lost = Path(f"{path}-wal").exists()
        if lost:
            advice = "restore it from a backup"
            yield problem("database", f"{path} is gone, but its log is there", advice)
        else:
            yield ok("database", "none yet; a server would create it")
        return
    try:
        with closing(open_reader(path)) as connection:
            yield from _content(connection, path)
    except DataDirectoryError as error:
        yield problem("database", str(error), "run `headwater verify`; restore from a backup")
    except apsw.Error as error:
        advice = "run `headwater verify`; restore from a backup"
        yield problem("database", f"{path} cannot be read: {error}", advice)


def _content(connection: apsw.Connection, path: Path) -> Iterator[Finding]:
    version = connection.pragma("user_version")
    if version < SCHEMA_VERSION:
        yield hint(
            "database",
            f"written by an older headwater (schema {version}, now {SCHEMA_VERSION})",
            "the next start migrates it, and older versions cannot read it then: back it up first",
        )
    else:
        yield ok("database", f"schema {version}, its log is intact")
    log_bytes = disk_bytes(path)["wal"]
    if log_bytes > _LOG_BYTES_MAX:
        advice = "someone reads for very long: a backup, a verify, or a process that hangs"
        yield hint("database", f"the write-ahead log has grown to {size(log_bytes)}", advice)
    # The two halves of the sample may overlap.
    problems = dict.fromkeys(
        [*sample_appends(connection, _SAMPLE), *missing_files(connection, path.parent)]
    )
    for found in islice(problems, _SHOWN_MAX):
        advice = "run `headwater verify` for all of it; restore from a backup"
        yield problem("data", f"{found.where}: {found.what}", advice)
    if not problems:
        yield ok("data", "a sample is intact; `headwater verify` checks everything")
    newest = newest_append_ms(connection)
    ahead_ms = newest - time.time() * 1000
    if ahead_ms > _AHEAD_MS:
        yield hint(
            "clock",
            f"the newest append is {ahead_ms / 1000:,.0f} s in the future",
            "the clock was set back, or the data comes from a machine with another time; TTLs, "
            "expiry and leases go by the clock",
        )
