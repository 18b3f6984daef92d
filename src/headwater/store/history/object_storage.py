"""Object storage: a second place for segment files, and in the end their only one.

A URL says where: `file:///directory`, `s3://bucket/prefix`, `gs://…`, `az://…` and whatever else
obstore supports. Credentials and endpoints come from the environment, as each provider defines.

Every call may take as long as the network does, so none is made on a thread that others need, and
each can be abandoned: it then continues on its own, and nobody waits for it. A call that fails or
is abandoned raises `HistoryUnavailable`; the caller may retry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit
from urllib.request import url2pathname

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, from_url

from headwater.core.errors import DataCorrupt, HistoryUnavailable
from headwater.store.history import segment_format
from headwater.store.history.abandonable_calls import Calls
from headwater.store.history.segment import SegmentRow, check_blocks, find_trailer
from headwater.store.syncing import sync

R = TypeVar("R")
SEGMENTS: Final = "segments"
CATALOGS: Final = "catalogs"
OWNER: Final = "owner"
_CONNECT: Final = timedelta(seconds=5)
_REQUEST: Final = timedelta(seconds=60)
_RETRY: Final = timedelta(seconds=10)
_PART_BYTES: Final = 8 * 1024 * 1024


class Remote:
    def __init__(self, url: str) -> None:
        """Raises ValueError if the URL is not usable."""
        self.url = url
        self._calls = Calls()
        self._directory: Path | None = None
        try:
            if urlsplit(url).scheme == "file":
                self._directory = Path(url2pathname(urlsplit(url).path))
                if not self._directory.is_absolute():
                    raise ValueError("name a directory from the root on, as in file:///backup")
                self._directory.mkdir(parents=True, exist_ok=True)
                self._store = from_url(url)
            else:
                self._store = from_url(
                    url,
                    client_options={
                        "connect_timeout": _CONNECT,
                        "timeout": _REQUEST,
                        # Only takes effect if the endpoint in the environment uses it.
                        "allow_http": True,
                    },
                    retry_config={"max_retries": 3, "retry_timeout": _RETRY},
                )
        except (BaseError, OSError, ValueError) as error:
            raise ValueError(f"{url} cannot be used as object storage: {_short(error)}") from None

    def location(self, name: str) -> str:
        """Where a segment is, for clients: without anything private."""
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{host}{parts.path.rstrip('/')}/{SEGMENTS}/{name}"

    def close(self) -> None:
        """Abandon calls in progress, and refuse everything from now on."""
        self._calls.end()

    def _ask(self, what: str, call: Callable[[], R]) -> R:
        with self._asking(what):
            return self._calls.make(call)

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise DataCorrupt(f"{what} is missing in {self.url}") from None
        except (BaseError, OSError) as error:
            raise HistoryUnavailable(_short(error)) from None

    # ── Segments ─────────────────────────────────────────────────────────────────────────────

    def upload(self, path: Path) -> None:
        self._ask(path.name, lambda: self._put(f"{SEGMENTS}/{path.name}", path))

    def verify(self, row: SegmentRow) -> None:
        """Read a segment back and verify every block; raises DataCorrupt."""
        trailer = self.trailer(row)
        covered = trailer.sums_offset
        blocks = _PART_BYTES // segment_format.BLOCK_BYTES
        for first in range(0, len(trailer.sums), blocks):
            start = first * segment_format.BLOCK_BYTES
            data = self.read(row, start, min(_PART_BYTES, covered - start))
            check_blocks(row, trailer, first, data)

    def trailer(self, row: SegmentRow) -> segment_format.Trailer:
        """The trailer of a segment, if it is the recorded one."""
        return find_trailer(row, partial(self.read, row))

    def read(self, row: SegmentRow, offset: int, length: int) -> bytes:
        store, key = self._store, f"{SEGMENTS}/{row.name}"
        data = self._ask(
            row.name, lambda: bytes(obstore.get_range(store, key, start=offset, length=length))
        )
        if len(data) != length:
            raise DataCorrupt(f"segment {row.name} in {self.url} is shorter than it was")
        return data

    def segments(self) -> list[str]:
        """The names of all segments."""
        return self._names(SEGMENTS)

    def delete(self, name: str) -> None:
        self._delete(f"{SEGMENTS}/{name}")

    # ── Catalogs ─────────────────────────────────────────────────────────────────────────────

    def put_catalog(self, name: str, content: bytes) -> None:
        self._ask(name, lambda: self._put(f"{CATALOGS}/{name}", content))

    def catalogs(self) -> list[str]:
        """The names of all catalogs, oldest first."""
        return sorted(self._names(CATALOGS))

    def get_catalog(self, name: str) -> bytes:
        key = f"{CATALOGS}/{name}"
        return self._ask(name, lambda: bytes(obstore.get(self._store, key).bytes()))

    def delete_catalog(self, name: str) -> None:
        self._delete(f"{CATALOGS}/{name}")

    # ── Owner ────────────────────────────────────────────────────────────────────────────────

    def owner(self) -> str | None:
        """The database whose history this is, if recorded."""
        try:
            found = self._ask(OWNER, lambda: bytes(obstore.get(self._store, OWNER).bytes()))
        except DataCorrupt:
            return None
        return found.decode(errors="replace")

    def put_owner(self, owner: str) -> None:
        self._ask(OWNER, lambda: self._put(OWNER, owner.encode()))

    # ── Objects ──────────────────────────────────────────────────────────────────────────────

    def _names(self, prefix: str) -> list[str]:
        def names() -> list[str]:
            pages = obstore.list(self._store, prefix=prefix)
            return [entry["path"].rpartition("/")[2] for page in pages for entry in page]

        return self._ask(f"the list of {prefix}", names)

    def _delete(self, key: str) -> None:
        """Deleting a missing object is not an error."""
        with suppress(DataCorrupt):
            self._ask(key, lambda: obstore.delete(self._store, key))

    def _put(self, key: str, content: bytes | Path) -> None:
        try:
            obstore.put(self._store, key, content)
        except FileNotFoundError:
            # A new object cannot be missing: its bucket is.
            raise HistoryUnavailable(f"there is no {self.url}: create the bucket first") from None
        if self._directory is not None and isinstance(self._store, LocalStore):
            # A local directory guarantees nothing by itself.
            path = self._directory / key
            sync(path)
            sync(path.parent)


def _short(error: Exception) -> str:
    """The first line of what may be a long message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
