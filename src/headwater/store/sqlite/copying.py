"""Data directories as the source and the target of a copy; see `headwater.store.copying`.

A target is built in a subdirectory of the new one and moved into place when it is complete and on
disk: without its database a directory is empty, whatever happened to a copy.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import apsw

from headwater.store.backup import removed_at_the_end
from headwater.store.copying import CACHE_BYTES, COUNTED, TABLES, CopyError, sealed_rows
from headwater.store.history.object_storage import Remote
from headwater.store.permissions import make_directory
from headwater.store.rows import Row
from headwater.store.sql.extents import EXTENT_COLUMNS, ExtentRow
from headwater.store.sqlite.database import (
    DATABASE_NAME,
    LOCK_NAME,
    DataDirectoryError,
    connect,
    empty_log,
    open_writer,
    prepare_directory,
)
from headwater.store.sqlite.engine import SqliteEngine
from headwater.store.sqlite.tables import SqliteTables
from headwater.store.syncing import sync

SCRATCH_NAME: Final = "copying"


class SqliteSource:
    """A data directory that nothing else uses meanwhile."""

    def __init__(self, engine: SqliteEngine, reader: apsw.Connection) -> None:
        self._engine = engine
        self._reader = reader

    @classmethod
    @contextmanager
    def open(cls, directory: Path, remote: Remote | None) -> Iterator[SqliteSource]:
        """Open it as a server would. Object storage is needed if history is only there."""
        if not (directory / DATABASE_NAME).is_file():
            raise CopyError(f"{directory} holds no headwater database")
        with closing(SqliteEngine(directory)) as engine:
            segments = engine.history.open_segments
            if remote is not None:
                segments.connect(remote, CACHE_BYTES)
            with closing(connect(directory / DATABASE_NAME, read_only=True)) as reader:
                source = cls(engine, reader)
                if remote is None and source.files_elsewhere:
                    raise CopyError(
                        f"{source.files_elsewhere:,} files of history of {directory} are only in "
                        "object storage; say where with --history-store"
                    )
                yield source

    @property
    def files(self) -> int:
        """History files, all of which become rows."""
        return self._one("SELECT count(DISTINCT segment_id) FROM extents")

    @property
    def files_elsewhere(self) -> int:
        return self._one(
            "SELECT count(DISTINCT segment_id) FROM extents JOIN segments ON id = segment_id"
            " WHERE local = 0"
        )

    def count(self, table: str) -> int:
        count = self._one(f"SELECT count(*) FROM {table}")
        return count + (self._one("SELECT sum(appends) FROM extents") if table == "ops" else 0)

    def rows(self, table: str) -> Iterator[Row]:
        if table == "ops":
            yield from self._sealed()
        yield from table_rows(self._reader, table)

    def last_ids(self) -> dict[str, int]:
        found = self._reader.execute("SELECT name, seq FROM sqlite_sequence").fetchall()
        return {str(name): int(seq or 0) for name, seq in found if name in COUNTED}

    def _one(self, sql: str) -> int:
        return int(self._reader.execute(sql).fetchall()[0][0] or 0)

    def _sealed(self) -> Iterator[Row]:
        """The appends of all history files, as the rows they were made from."""
        extents: Iterator[Row] = self._reader.execute(
            f"SELECT {EXTENT_COLUMNS} FROM extents ORDER BY run, start"
        )
        for row in extents:
            yield from sealed_rows(self._engine.appends, ExtentRow(*row))


class SqliteTarget:
    """A data directory being built."""

    def __init__(self, directory: Path, scratch: Path, write: apsw.Connection) -> None:
        self._directory = directory
        self._scratch = scratch
        self._write = write

    @classmethod
    @contextmanager
    def open(cls, directory: Path) -> Iterator[SqliteTarget]:
        """Start in a directory that is new or empty, or has only what a failed copy left."""
        _require_empty(directory)
        lock = prepare_directory(directory)
        try:
            _require_empty(directory)
            scratch = directory / SCRATCH_NAME
            shutil.rmtree(scratch, ignore_errors=True)
            make_directory(scratch)
            with removed_at_the_end(scratch), closing(_open_scratch(scratch)) as write:
                yield cls(directory, scratch, write)
        finally:
            lock.release()

    def rows(self, table: str) -> Iterator[Row]:
        return table_rows(self._write, table)

    def insert(self, table: str, batch: list[Row]) -> None:
        with self._write:
            SqliteTables(self._write).insert(table, TABLES[table], batch)

    def use_ids(self, last: dict[str, int]) -> None:
        with self._write:
            for kind, value in last.items():
                SqliteTables(self._write).use_ids(kind, value)

    def finish(self) -> None:
        if not empty_log(self._write):
            raise DataDirectoryError(f"{self._scratch} is in use by another process; try again")
        self._write.close()
        draft = self._scratch / DATABASE_NAME
        sync(draft)
        draft.rename(self._directory / DATABASE_NAME)
        sync(self._directory)


def table_rows(connection: apsw.Connection, table: str) -> Iterator[Row]:
    order = " ORDER BY id" if table in ("ops", "secrets") else ""
    yield from connection.execute(f"SELECT {TABLES[table]} FROM {table}{order}")


def _open_scratch(scratch: Path) -> apsw.Connection:
    write = open_writer(scratch / DATABASE_NAME)
    # It is synced once, when it is complete.
    write.pragma("synchronous", "off")
    return write


def _require_empty(directory: Path) -> None:
    if not directory.exists():
        return
    if not directory.is_dir():
        raise CopyError(f"{directory} is not a directory")
    for entry in directory.iterdir():
        if entry.name not in (LOCK_NAME, SCRATCH_NAME):
            raise CopyError(
                f"{directory} is not empty, and nothing is overwritten; copy to a new directory"
            )
