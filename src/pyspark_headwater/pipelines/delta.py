"""Tables: executors write Parquet files, the driver makes them a Delta table in one commit.

No rows pass through the driver. A task writes its rows and reports the files; the commit that adds
them carries the id of the query and the number of the batch, and a table that has that number has
the batch. A batch that is run again is therefore written once. Files of tasks that were lost are
not part of any table, and a vacuum removes them.
"""

from __future__ import annotations

import json
import posixpath
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pyspark_headwater.pipelines.layout import Layout, columns_of

COMPACT_AFTER_FILES: Final = 64
_FILES: Final = (
    "table string, path string, size long, part string, rows long, low string, high string"
)


@dataclass(frozen=True, slots=True)
class Commit:
    """What makes a commit recognisable: the query and its batch."""

    app_id: str
    version: int


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that waits to become part of a table."""

    table: str
    path: str
    size: int
    part: str
    rows: int
    low: str | None
    high: str | None


def open_table(uri: str) -> DeltaTable | None:
    return DeltaTable(uri) if DeltaTable.is_deltatable(uri) else None


def has_commit(table: DeltaTable | None, commit: Commit) -> bool:
    version = None if table is None else table.transaction_version(commit.app_id)
    return version is not None and version >= commit.version


# --- Writing -------------------------------------------------------------------------------------


def write_files(frame: DataFrame, layout: Layout) -> list[WrittenFile]:
    """Write the rows, each task its own files; nothing of it is in a table yet."""
    table = F.lit(layout.name) if layout.table is None else F.col(layout.table)
    names = [field.name for field in layout.schema.fields]
    ordered = [name for name in ("offset", "index") if name in names]
    rows = frame.select(table.alias("_table"), *names)
    rows = rows.sortWithinPartitions("_table", layout.partition, *ordered)

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        task = TaskContext.get()
        assert task is not None, "files are written in tasks"
        yield from _write_task(batches, layout, task.taskAttemptId())

    found = rows.mapInArrow(write, _FILES).collect()
    return [WrittenFile(**row.asDict()) for row in found]


def _write_task(batches: Iterator[Any], layout: Layout, attempt: int) -> Iterator[Any]:
    files = _Files(layout, f"{time.time_ns():x}-{attempt}")
    for batch in batches:
        for table, part, rows in _groups(batch, layout.partition):
            files.add(table, part, rows)
    files.finish()
    yield pa.RecordBatch.from_pylist(files.done, schema=_files_schema())


def _groups(batch: Any, partition: str) -> Iterator[tuple[str, str, Any]]:
    """Runs of rows for the same table and part; rows come sorted by these."""
    tables, parts = batch["_table"], pc.cast(batch[partition], pa.string())
    if batch.num_rows and tables[0] == tables[-1] and parts[0] == parts[-1]:
        # Nearly always.
        yield tables[0].as_py(), parts[0].as_py(), batch
        return
    start = 0
    keys = list(zip(tables.to_pylist(), parts.to_pylist(), strict=True))
    for end in range(1, len(keys) + 1):
        if end == len(keys) or keys[end] != keys[start]:
            yield (*keys[start], batch.slice(start, end - start))
            start = end


class _Files:
    """The files of one task, one open at a time."""

    def __init__(self, layout: Layout, tag: str) -> None:
        self._layout = layout
        self._filesystem, self._root = filesystem(layout.root)
        self._tag = tag
        self._current: tuple[str, str] | None = None
        self._writer: Any = None
        self._bounds: list[str] = []
        self._rows = 0
        self.done: list[dict[str, Any]] = []

    def add(self, table: str, part: str, rows: Any) -> None:
        if self._current != (table, part):
            self.finish()
            self._open(table, part)
        self._writer.write_batch(self._layout.filled(table, rows))
        self._rows += rows.num_rows
        if "offset" in rows.schema.names:
            self._bounds += [rows["offset"][0].as_py(), rows["offset"][-1].as_py()]

    def _open(self, table: str, part: str) -> None:
        self._current = (table, part)
        self._part = f"{self._layout.partition}={part}"
        directory = posixpath.join(self._root, self._layout.directory(table), self._part)
        self._filesystem.create_dir(directory)
        self._name = f"part-{self._tag}-{len(self.done):04d}.zstd.parquet"
        self._path = posixpath.join(directory, self._name)
        self._writer = pq.ParquetWriter(
            self._path,
            self._layout.stored(table),
            filesystem=self._filesystem,
            compression="zstd",
        )

    def finish(self) -> None:
        if self._current is None:
            return
        self._writer.close()
        table, part = self._current
        self.done.append(
            {
                "table": table,
                "path": f"{self._part}/{self._name}",
                "size": self._filesystem.get_file_info(self._path).size,
                "part": part,
                "rows": self._rows,
                "low": min(self._bounds, default=None),
                "high": max(self._bounds, default=None),
            }
        )
        self._current, self._writer, self._bounds, self._rows = None, None, [], 0


def _files_schema() -> Any:
    text, number = pa.string(), pa.int64()
    kinds = (text, text, number, text, number, text, text)
    names = [column.split()[0] for column in _FILES.split(", ")]
    return pa.schema(list(zip(names, kinds, strict=True)))


def filesystem(uri: str) -> tuple[Any, str]:
    """Where a directory lives, and its path there."""
    if "://" in uri:
        found = pafs.FileSystem.from_uri(uri)
        return found[0], found[1]
    return pafs.LocalFileSystem(), uri


# --- Committing ----------------------------------------------------------------------------------


def commit_files(
    layout: Layout,
    table: str,
    files: Sequence[WrittenFile],
    commit: Commit,
    *,
    replaced: Collection[str] | Literal["all"] = (),
    notes: Mapping[str, int] | None = None,
) -> None:
    """Add files to a table, in one step and once.

    They take the place of the files of those parts that are replaced. A table of which something
    is replaced gets the columns of the layout in the same step.
    """
    uri = layout.uri(table)
    schema = layout.delta(table)
    found = open_table(uri)
    if has_commit(found, commit):
        return
    if found is None:
        filesystem_, path = filesystem(uri)
        filesystem_.create_dir(path)
        found = DeltaTable.create(uri, schema, mode="ignore", partition_by=[layout.partition])
    now_ms = time.time_ns() // 1_000_000
    actions = [
        AddAction(one.path, one.size, {layout.partition: one.part}, now_ms, True, _statistics(one))
        for one in files
    ]
    marks = [Transaction(commit.app_id, commit.version)]
    marks += [Transaction(name, version) for name, version in (notes or {}).items()]
    found.create_write_transaction(
        [*actions],
        # Only a transaction that overwrites changes the schema.
        "overwrite" if replaced else "append",
        schema,
        [layout.partition],
        partition_filters=(
            [(layout.partition, "in", [*replaced])] if replaced and replaced != "all" else None
        ),
        commit_properties=CommitProperties(app_transactions=marks),
    )


def _statistics(one: WrittenFile) -> str:
    bounds = {} if one.low is None else {"offset": one.low}
    tops = {} if one.high is None else {"offset": one.high}
    stats = {"numRecords": one.rows, "minValues": bounds, "maxValues": tops, "nullCount": {}}
    return json.dumps(stats)


def compact(uri: str) -> None:
    """Make few files of many small ones."""
    table = open_table(uri)
    if table is not None and len(table.file_uris()) >= COMPACT_AFTER_FILES:
        table.optimize.compact()


# --- Reading -------------------------------------------------------------------------------------


def parts_of(table: DeltaTable, layout: Layout) -> dict[str, list[str]]:
    """The files of a table by part, as paths within it."""
    found: dict[str, list[str]] = {}
    for row in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        part = str(row[f"partition.{layout.partition}"])
        found.setdefault(part, []).append(row["path"])
    return found


def read_files(spark: SparkSession, layout: Layout, table: str, paths: Sequence[str]) -> DataFrame:
    """Some files of a table as a DataFrame."""
    schema = StructType([*layout.schema.fields])
    for column in layout.columns.get(table, ()):
        schema = schema.add(column.name, column.type)
    if not paths:
        return spark.createDataFrame([], schema)
    uri = layout.uri(table)
    files = [posixpath.join(uri, path) for path in paths]
    return spark.read.schema(schema).option("basePath", uri).parquet(*files)


def read_table(spark: SparkSession, layout: Layout, table: str) -> DataFrame:
    """A whole table as it is now; without rows if there is no such table."""
    found = open_table(layout.uri(table))
    paths = (
        []
        if found is None
        else [path for part in parts_of(found, layout).values() for path in part]
    )
    layout = replace(layout, columns={table: columns_of(found)})
    return read_files(spark, layout, table, paths)
