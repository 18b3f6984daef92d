"""Errors from the operating system, as SQLite gets to see them.

SQLite calls the operating system through tables of functions, one for the database file and one
for its logs. Some of those functions are replaced here by ones that ask the control file first.
Nothing above is aware of it: not SQLite, which deals with the error codes as with real ones, nor
its Python binding. (A VFS written in Python would not do. The binding raises an exception that
passed through it even where SQLite carries on, as it does when a checkpoint fails.)
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import mmap
import tempfile
import time
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

import apsw

SLOW_READ_S = 0.05
SECTOR_BYTES = 512

Transfer = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
Sync = CFUNCTYPE(c_int, c_void_p, c_int)
Truncate = CFUNCTYPE(c_int, c_void_p, c_int64)


class Methods(ctypes.Structure):
    """The beginning of `sqlite3_io_methods`."""

    _fields_ = (
        ("version", c_int),
        ("close", c_void_p),
        ("read", Transfer),
        ("write", Transfer),
        ("truncate", Truncate),
        ("sync", Sync),
    )


class File(ctypes.Structure):
    """`sqlite3_file`"""

    _fields_ = (("methods", POINTER(Methods)),)


class FailingDisk:
    def __init__(self, control: Path) -> None:
        self._control = control
        self._fault = ""
        self._is_dead = False
        self._kept: list[object] = []

    def fault(self) -> str:
        try:
            self._fault = self._control.read_text()
        except FileNotFoundError:
            self._fault = ""
        except OSError as error:
            # Some tests use up all descriptors. Then the disk is as it was.
            if error.errno != errno.EMFILE:
                raise
        return self._fault

    def patch(self, methods: Methods) -> None:
        _make_writable(methods)
        read, write, sync = (
            prototype(ctypes.cast(getattr(methods, name), c_void_p).value or 0)
            for name, prototype in (("read", Transfer), ("write", Transfer), ("sync", Sync))
        )

        def faulty_read(file: int, buffer: int, amount: int, offset: int) -> Any:
            if self.fault() == "slow-read":
                time.sleep(SLOW_READ_S)
            return read(file, buffer, amount, offset)

        def faulty_write(file: int, data: int, amount: int, offset: int) -> Any:
            fault = self.fault()
            if fault == "disk-full":
                return apsw.SQLITE_FULL
            if fault == "write-fails" or (fault == "dies" and self._is_dead):
                return apsw.SQLITE_IOERR_WRITE
            if fault == "short-write":
                # As many sectors as fit: the start of a page is new, its end is old.
                fits = amount // 2 // SECTOR_BYTES * SECTOR_BYTES
                return (write(file, data, fits, offset) if fits else 0) or apsw.SQLITE_FULL
            return write(file, data, amount, offset)

        def faulty_sync(file: int, flags: int) -> Any:
            fault = self.fault()
            self._is_dead = fault == "dies"
            if fault in ("sync-fails", "dies"):
                return apsw.SQLITE_IOERR_FSYNC
            return sync(file, flags)

        self._replace(methods, "read", Transfer(faulty_read))
        self._replace(methods, "write", Transfer(faulty_write))
        self._replace(methods, "sync", Sync(faulty_sync))

    def _replace(self, methods: Methods, name: str, function: Callable[..., object]) -> None:
        original = getattr(methods, name)
        self._kept += [original, function]
        setattr(methods, name, function)
        # SQLite may outlive the interpreter by a little.
        atexit.register(setattr, methods, name, original)


def _make_writable(methods: Methods) -> None:
    start = ctypes.addressof(methods)
    end = start + ctypes.sizeof(methods)
    start -= start % mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    if libc.mprotect(c_void_p(start), ctypes.c_size_t(end - start), protection) != 0:
        raise OSError(ctypes.get_errno(), "cannot get at SQLite's functions")


def _methods(connection: apsw.Connection, operation: int) -> Methods:
    file = POINTER(File)()
    connection.file_control("main", operation, ctypes.addressof(file))
    found: Methods = file.contents.methods.contents
    return found


def install(control: Path) -> None:
    disk = FailingDisk(control)
    with tempfile.TemporaryDirectory() as directory:
        probe = apsw.Connection(f"{directory}/probe", vfs="unix")
        probe.pragma("journal_mode", "wal")
        probe.execute("CREATE TABLE t (x)")
        for operation in (apsw.SQLITE_FCNTL_FILE_POINTER, apsw.SQLITE_FCNTL_JOURNAL_POINTER):
            disk.patch(_methods(probe, operation))
        probe.close()
