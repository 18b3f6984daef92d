"""Tables: executors write Parquet files, the driver turns them into a Delta table in one commit.

No rows pass through the driver. A task writes its rows and reports the files; the commit that adds
them carries the id of the query and the number of the batch, and a table with that number has the
batch. So a batch that is run again is stored once. Files of lost tasks are not part of any table,
and a vacuum removes them.
"""

from __future__ import annotations

import json
import posixpath
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pyspark_headwater.errors import OtherWriter
from pyspark_headwater.pipelines.columns import Reader
from pyspark_headwater.pipelines.layout import Layout, columns_of
from pyspark_headwater.pipelines.open_tables import OpenTable, OpenTables, open_table
from pyspark_headwater.pipelines.parquet import filesystem, read_paths
from pyspark_headwater.pipelines.upkeep import is_due, properties, tidy

T = TypeVar("T")
R = TypeVar("R")
_SIDE_BY_SIDE: Final = 8
_BOUND_CHARS_MAX: Final = 256
NO_DAY: Final = "0001-01-01"
"""A partition that no table has."""
FILES: Final = (
    "table string, path string, size long, part string, rows long, low string, high string, "
    "until_us long, news binary"
)


@dataclass(frozen=True, slots=True)
class Commit:
    """What identifies a commit: the query and its batch."""

    app_id: str
    version: int


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that is not part of a table yet."""

    table: str
    path: str
    size: int
    part: str
    rows: int
    low: str | None
    high: str | None
    until_us: int | None
    """When the last of its messages was stored."""
    news: bytes | None = None
    """What had no fitting column, as MessagePack."""


def has_commit(table: DeltaTable | None, commit: Commit) -> bool:
    version = None if table is None else table.transaction_version(commit.app_id)
    return version is not None and version >= commit.version


def side_by_side(do: Callable[[T], R], things: list[T]) -> list[R]:
    """Do something for each of many tables. Most of that is waiting for files."""
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        return [*pool.map(do, things)]


# --- Writing -------------------------------------------------------------------------------------


def write_files(frame: DataFrame, layout: Layout) -> list[WrittenFile]:
    """Write the rows, each task its own files; nothing is in a table yet."""
    table = F.lit(layout.name) if layout.table is None else F.col(layout.table)
    names = [field.name for field in layout.schema.fields]
    ordered = [name for name in ("offset", "index") if name in names]
    rows = frame.select(table.alias("_table"), *names)
    rows = rows.sortWithinPartitions("_table", layout.partition, *ordered)

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        task = TaskContext.get()
        assert task is not None, "files are written in tasks"
        yield from _write_task(batches, layout, task.taskAttemptId())

    found = rows.mapInArrow(write, FILES).collect()
    return [WrittenFile(**row.asDict()) for row in found]


def _write_task(batches: Iterator[Any], layout: Layout, attempt: int) -> Iterator[Any]:
    files = _Files(layout, f"{time.time_ns():x}-{attempt}")
    for batch in batches:
        for table, part, rows in _groups(batch, layout.partition):
            files.add(table, part, rows)
    files.finish()
    yield pa.RecordBatch.from_pylist(files.done, schema=files_schema())


def _groups(batch: Any, partition: str) -> Iterator[tuple[str, str, Any]]:
    """Runs of rows for the same table and part; rows come sorted by these."""
    tables, parts = batch["_table"], pc.cast(batch[partition], pa.string())
    if batch.num_rows and tables[0] == tables[-1] and parts[0] == parts[-1]:
        # The usual case.
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
        self._reader: Reader | None = None
        self._bounds: list[str] = []
        self._rows = 0
        self._until_us: int | None = None
        self.done: list[dict[str, Any]] = []

    def add(self, table: str, part: str, rows: Any) -> None:
        if self._current != (table, part):
            self.finish()
            self._open(table, part)
        self._writer.write_batch(self._layout.filled(table, rows, self._reader))
        self._rows += rows.num_rows
        if "offset" in rows.schema.names:
            self._bounds += [rows["offset"][0].as_py(), rows["offset"][-1].as_py()]
            self._until_us = rows["timestamp"][-1].value

    def _open(self, table: str, part: str) -> None:
        self._current = (table, part)
        self._part = f"{self._layout.partition}={part}"
        directory = posixpath.join(self._root, self._layout.directory(table), self._part)
        self._filesystem.create_dir(directory)
        self._reader = self._layout.reader(table)
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
                "until_us": self._until_us,
                "news": msgspec.msgpack.encode(self._reader.news) if self._reader else None,
            }
        )
        self._current, self._writer, self._bounds, self._rows = None, None, [], 0
        self._until_us = None


def files_schema() -> Any:
    text, number = pa.string(), pa.int64()
    kinds = (text, text, number, text, number, text, text, number, pa.binary())
    names = [column.split()[0] for column in FILES.split(", ")]
    return pa.schema(list(zip(names, kinds, strict=True)))


def bounds_of(values: Any) -> tuple[str | None, str | None]:
    """The smallest and the largest of some texts; nothing if there are none, or very long ones."""
    found = pc.min_max(values).as_py()
    low, high = found["min"], found["max"]
    is_short = low is not None and max(len(low), len(high)) <= _BOUND_CHARS_MAX
    return (low, high) if is_short else (None, None)


# --- Committing ----------------------------------------------------------------------------------


def commit_files(
    tables: OpenTables,
    layout: Layout,
    table: str,
    files: Sequence[WrittenFile],
    commit: Commit,
    *,
    replaced: Collection[str] | Literal["all"] = (),
    notes: Mapping[str, int] | None = None,
    about: Mapping[str, str] | None = None,
) -> None:
    """Add files to a table, atomically and once.

    They replace the files of the replaced parts. The table gets the columns of the layout in the
    same step.

    `notes` are numbers that the table keeps, `about` is what the log says about the commit.

    The files were made from the version that `tables` has open. If another writer has committed the
    same batch, notes of the same name, or files for the same parts since, nothing is committed and
    `OtherWriter` is raised.
    """
    uri = layout.uri(table)
    found = tables.find(uri)
    if found is not None and has_commit(found, commit):
        # The process that committed it may have died right after.
        publish_as_iceberg(tables, layout, found)
        return
    if found is None:
        found = _create(layout, table, tables.keep_replaced_h)
    schema = layout.delta(table)
    if not replaced and schema != found.schema():
        # Only an overwriting transaction changes the schema.
        replaced = [NO_DAY]
    numbers = {commit.app_id: commit.version, **(notes or {})}
    marks = [Transaction(name, version) for name, version in numbers.items()]
    try:
        found.create_write_transaction(
            _added(files, layout),
            "overwrite" if replaced else "append",
            schema,
            [layout.partition],
            partition_filters=(
                [(layout.partition, "in", [*replaced])] if replaced and replaced != "all" else None
            ),
            commit_properties=CommitProperties(dict(about or {}), app_transactions=marks),
        )
    except CommitFailedError as error:
        raise OtherWriter(f"something else writes to the table {uri} ({error})") from error
    found.follow(numbers)
    tables.keep(uri, found)
    _keep_up(tables, layout, found)


def _added(files: Sequence[WrittenFile], layout: Layout) -> list[AddAction | RemoveAction]:
    """Files in the form in which a transaction adds them."""
    now_ms = time.time_ns() // 1_000_000
    return [
        AddAction(
            one.path,
            one.size,
            {layout.partition: one.part},
            now_ms,
            True,
            _statistics(one, layout.clustered),
        )
        for one in files
    ]


def _keep_up(tables: OpenTables, layout: Layout, table: OpenTable) -> None:
    """Tidy a table if it is its turn, and publish it for other readers."""
    tidies = is_due(table.turn, table.tidied_at, table.version())
    if tidies:
        tidy(table, tables.keep_replaced_h)
        table.tidied_at = table.version()
    publish_as_iceberg(tables, layout, table, sweeps=tidies)


def publish_as_iceberg(
    tables: OpenTables, layout: Layout, table: DeltaTable, *, sweeps: bool = False
) -> None:
    """Publish a table as Iceberg as well, if enabled, and remove old metadata."""
    if tables.iceberg and layout.is_public:
        # Imported only if enabled.
        from pyspark_headwater.pipelines.iceberg import Home, publish

        publish(table, layout.partition, layout.clustered)
        if sweeps:
            Home(table.table_uri).sweep(tables.keep_replaced_h)


def _create(layout: Layout, table: str, keep_replaced_h: int) -> OpenTable:
    uri = layout.uri(table)
    filesystem_, path = filesystem(uri)
    filesystem_.create_dir(path)
    DeltaTable.create(
        uri,
        layout.delta(table),
        mode="ignore",
        partition_by=[layout.partition],
        configuration=properties(keep_replaced_h),
    )
    return OpenTable(uri)


def _statistics(one: WrittenFile, column: str) -> str:
    bounds = {} if one.low is None else {column: one.low}
    tops = {} if one.high is None else {column: one.high}
    stats = {"numRecords": one.rows, "minValues": bounds, "maxValues": tops, "nullCount": {}}
    return json.dumps(stats)


# --- Reading -------------------------------------------------------------------------------------


def parts_of(table: DeltaTable, layout: Layout) -> dict[str, list[str]]:
    """The files of a table by part, as paths within it."""
    found: dict[str, list[str]] = {}
    for row in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        part = str(row[f"partition.{layout.partition}"])
        found.setdefault(part, []).append(row["path"])
    return found


def rows_in(table: DeltaTable | None) -> int:
    """The number of rows of a table, according to its files."""
    if table is None:
        return 0
    return int(pc.sum(pa.table(table.get_add_actions(flatten=True))["num_records"]).as_py() or 0)


def read_files(spark: SparkSession, layout: Layout, table: str, paths: Sequence[str]) -> DataFrame:
    """Some files of a table as a DataFrame."""
    schema = StructType([*layout.schema.fields])
    for column in layout.columns.get(table, ()):
        schema = schema.add(column.name, column.type)
    return read_paths(spark, layout.uri(table), schema, paths)


def read_table(spark: SparkSession, layout: Layout, table: str) -> DataFrame:
    """A whole table as it is now; empty if it does not exist."""
    found = open_table(layout.uri(table))
    paths = (
        []
        if found is None
        else [path for part in parts_of(found, layout).values() for path in part]
    )
    layout = replace(layout, columns={table: columns_of(found)})
    return read_files(spark, layout, table, paths)
