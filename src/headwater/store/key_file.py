"""API keys, and the file that holds them, next to the streams.

A separate file instead of a table: the database belongs to one process, and keys are created and
revoked while a server runs. The file is replaced atomically, so a reader sees the old keys or the
new ones; a lock serialises writers. Only its owner can read it, although it holds no keys, only
digests.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import msgspec

from headwater.core.access import signed
from headwater.core.access.grants import grants_from
from headwater.core.access.keys import KeyBook
from headwater.core.errors import InvalidRequest
from headwater.store.permissions import make_directory
from headwater.store.syncing import sync

KEYS_NAME: Final = "keys.json"
SECRET_NAME: Final = "signing.secret"
FILE_BYTES_MAX: Final = 256 * 1024 * 1024


class KeyFileError(Exception):
    """The keys cannot be used; the message is one line that says why."""


class KeyPlace(Protocol):
    """Where the keys of a server are stored."""

    name: str
    """For people to read."""

    def stamp(self) -> object:
        """Changes whenever the keys change."""

    def load(self) -> KeyBook | None:
        """The keys; None if there have never been any. Raises KeyFileError."""

    def change(self, change: Callable[[KeyBook], KeyBook]) -> None:
        """Read, change and replace them under a lock. Raises KeyFileError."""

    def close(self) -> None: ...


class KeyFile:
    """Implements `KeyPlace`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = str(path)

    def stamp(self) -> object:
        return file_stamp(self._path)

    def load(self) -> KeyBook | None:
        return load_keys(self._path)

    def change(self, change: Callable[[KeyBook], KeyBook]) -> None:
        change_keys(self._path, change)

    def close(self) -> None:
        pass


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def load_keys(path: Path) -> KeyBook | None:
    """The verified content of the file; None if there is none."""
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KeyFileError(f"cannot read {path}: {error.strerror}") from None
    if len(raw) > FILE_BYTES_MAX:
        raise KeyFileError(f"{path} is too large for a file of keys")
    return parse_keys(raw, f"{path}")


def parse_keys(raw: bytes, place: str) -> KeyBook:
    try:
        book = msgspec.json.decode(raw, type=KeyBook).current()
        for record in book.keys:
            grants_from(record.grants)
    except (msgspec.DecodeError, UnicodeDecodeError, InvalidRequest) as error:
        raise KeyFileError(f"{place} is not a file of keys: {error}") from None
    return book


def change_keys(path: Path, change: Callable[[KeyBook], KeyBook]) -> None:
    """Read, change and replace the file under a lock."""
    try:
        make_directory(path.parent)
        with _turn(path):
            _replace(path, msgspec.json.encode(change(load_keys(path) or KeyBook())))
    except OSError as error:
        raise KeyFileError(f"cannot write {path}: {error.strerror}") from None


def load_secret(path: Path) -> bytes:
    """The secret that signs addresses; created on first use."""
    try:
        if not path.exists():
            with _turn(path):
                if not path.exists():
                    _replace(path, secrets.token_hex(signed.SECRET_BYTES).encode() + b"\n")
        # It may exist where this process cannot write.
        text = path.read_bytes().strip()
    except OSError as error:
        raise KeyFileError(f"cannot use {path}: {error.strerror}") from None
    if len(text) < signed.SECRET_BYTES:
        raise KeyFileError(
            f"{path} holds less than {signed.SECRET_BYTES} bytes, too little for a secret; remove "
            "it, and the server makes a new one"
        )
    return text


@contextmanager
def _turn(path: Path) -> Iterator[None]:
    lock = path.with_name(f".{path.name}.lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _give_to_owner(descriptor, path.parent)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _give_to_owner(descriptor: int, directory: Path) -> None:
    """A file created by an administrator must be readable by the directory's owner, the server."""
    if os.geteuid() == 0:
        owner = directory.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _replace(path: Path, content: bytes) -> None:
    # Temporary files have mode 0600.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            _give_to_owner(file.fileno(), path.parent)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    sync(path.parent)
