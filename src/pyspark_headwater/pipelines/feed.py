"""The change feed of `materialize`: what each commit did to the rows of a table of entities.

An entity that was inserted, updated (with the value before and after) or deleted is a row of the
table `changes/STREAM/TYPE`, and with `--changes-to` a message of another stream, in the State
Protocol; `{stream}` in its name stands for the stream that the change comes from. Everything that
happens to an entity within a micro-batch is one change. An unchanged value is none.

**Exactly once.** The tasks that write a part of a table write its changes too, and the commit that
adds the part to the table names the files of the changes. So state and changes are one step. The
feed follows: a version of the table is sent to the stream, then added to the table of changes,
which records the version. After a crash in between, the same batch runs again, and finds in the log
of the table what the feed lacks. The stream recognises a version that it has: the id of the table
is the producer, the version its epoch.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql.types import (
    DateType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headwater.core.pipelines import CHANGES
from pyspark_headwater.options import WriteOptions
from pyspark_headwater.pipelines.delta import Commit, WrittenFile, commit_files, publish_as_iceberg
from pyspark_headwater.pipelines.layout import Layout, safe_path
from pyspark_headwater.pipelines.open_tables import OpenTables
from pyspark_headwater.pipelines.parquet import filesystem
from pyspark_headwater.pipelines.upkeep import compact
from pyspark_headwater.rows import Message, cut
from pyspark_headwater.sink import Appender, ensure_stream
from pyspark_headwater.wire import wire_to

CHANGES_SCHEMA: Final = StructType(
    [
        StructField("key", StringType()),
        StructField("operation", StringType()),
        StructField("before", StringType()),
        StructField("after", StringType()),
        StructField("offset", StringType()),
        StructField("index", IntegerType()),
        StructField("timestamp", TimestampType()),
        StructField("date", DateType()),
    ]
)
NOTE: Final = "headwater.changes"
"""The name under which a commit of a table of entities lists the files of its changes."""
_ROWS: Final = 10_000
_JSON: Final = "application/json"


def changes_layout(root: str, stream: str) -> Layout:
    return Layout(
        f"{root}/{CHANGES}/{safe_path(stream)}",
        CHANGES_SCHEMA,
        "date",
        table="type",
        by_path=False,
    )


def feed_stream(name: str, stream: str) -> str:
    """The stream that gets the changes of a stream."""
    return name.replace("{stream}", stream)


def noted(files: Sequence[WrittenFile]) -> dict[str, str]:
    """The record of changes in the commit of a table."""
    mine = [(one.path, one.size, one.part, one.rows, one.low, one.high) for one in files]
    return {NOTE: msgspec.json.encode(mine).decode()}


@dataclass(frozen=True)
class Feed:
    """The change feeds of the tables below a root.

    Attributes:
        root: where the tables are.
        tables: those that are open.
        target: how to write to the stream that also gets the changes, if any.
    """

    root: str
    tables: OpenTables
    target: WriteOptions | None = None
    _done: dict[str, int] = field(default_factory=dict, compare=False)
    """The version up to which the feed of each table is complete."""

    def follow(self, stream: str, type_: str, table: DeltaTable) -> None:
        """Bring the feed of a table up to date."""
        layout = changes_layout(self.root, stream)
        name = f"{NOTE}:{table.metadata().id}"
        for version, files in self._missing(layout, type_, table, name):
            if self.target is not None:
                self._send(stream, type_, files, Commit(name, version))
            commit_files(self.tables, layout, type_, files, Commit(name, version))
        self._done[name] = table.version()
        changes = self.tables.find(layout.uri(type_))
        if changes is not None:
            compact(changes, layout.partition)
            publish_as_iceberg(self.tables, layout, changes)

    def _missing(
        self, layout: Layout, type_: str, table: DeltaTable, name: str
    ) -> list[tuple[int, list[WrittenFile]]]:
        """The versions that the feed lacks, with the files of their changes."""
        changes = self.tables.find(layout.uri(type_))
        done = None if changes is None else changes.transaction_version(name)
        done = self._done.get(name, done)
        newer = None if done is None else table.version() - done
        if newer == 0:
            return []
        found = [
            (int(one["version"]), _files(type_, one[NOTE]))
            for one in table.history(newer)
            if NOTE in one and (done is None or int(one["version"]) > done)
        ]
        return sorted((version, files) for version, files in found if files)

    def _send(self, source: str, type_: str, files: Sequence[WrittenFile], commit: Commit) -> None:
        assert self.target is not None
        assert self.target.stream is not None
        wire = wire_to(self.target.server)
        stream = feed_stream(self.target.stream, source)
        ensure_stream(self.target, wire, stream)
        layout = changes_layout(self.root, source)
        messages = (Message(stream, one) for one in _messages(layout, type_, files))
        appends = cut(messages, json=True, rows_max=self.target.rows_per_request)
        Appender(self.target, wire, _JSON).send(appends, commit.app_id, commit.version)


def _files(type_: str, note: str) -> list[WrittenFile]:
    noted = msgspec.json.decode(note, type=list[tuple[str, int, str, int, str | None, str | None]])
    return [WrittenFile(type_, *one, None) for one in noted]


# --- As messages ---------------------------------------------------------------------------------


def _messages(layout: Layout, type_: str, files: Sequence[WrittenFile]) -> Iterator[bytes]:
    """Changes in the order of their source stream."""
    uri = layout.uri(type_)
    rows = heapq.merge(*(_rows(uri, one.path) for one in files), key=lambda row: row[:3])
    for _, _, key, operation, before, after in rows:
        yield message_of(type_, key, operation, before, after)


def message_of(
    type_: str, key: str, operation: str, before: str | None, after: str | None
) -> bytes:
    """A change as a message of the State Protocol; values are JSON."""
    return msgspec.json.encode(
        {
            "type": type_,
            "key": key,
            **({} if after is None else {"value": msgspec.Raw(after.encode())}),
            **({} if before is None else {"old_value": msgspec.Raw(before.encode())}),
            "headers": {"operation": operation},
        }
    )


_READ: Final = ("offset", "index", "key", "operation", "before", "after")


def _rows(uri: str, path: str) -> Iterator[tuple[Any, ...]]:
    where, root = filesystem(uri)
    with pq.ParquetFile(f"{root}/{path}", filesystem=where) as file:
        for batch in file.iter_batches(_ROWS, columns=[*_READ]):
            yield from zip(*(batch[name].to_pylist() for name in _READ), strict=True)


# --- In a task -----------------------------------------------------------------------------------

Changed = tuple[str, str, str | None, str | None, str, int, Any]
"""Key, operation, before, after, offset, index and timestamp."""


def write_changes(uri: str, changed: Sequence[Changed], name: str) -> Iterator[dict[str, Any]]:
    """Write the changes of a part of a table, one file per day; nothing is committed yet."""
    schema = changes_layout("", "").stored("")
    days: dict[str, list[Changed]] = {}
    for one in changed:
        days.setdefault(str(one[6].astimezone(UTC).date()), []).append(one)
    where, root = filesystem(uri)
    for day, mine in sorted(days.items()):
        mine.sort(key=lambda one: (one[4], one[5], one[0]))
        path = f"date={day}/{name}"
        where.create_dir(f"{root}/date={day}")
        columns = zip(*mine, strict=True)
        arrays = [pa.array(values, kind.type) for values, kind in zip(columns, schema, strict=True)]
        rows = pa.Table.from_arrays(arrays, schema=schema)
        pq.write_table(rows, f"{root}/{path}", filesystem=where, compression="zstd")
        yield {
            "path": path,
            "size": where.get_file_info(f"{root}/{path}").size,
            "part": day,
            "rows": rows.num_rows,
            "low": mine[0][4],
            "high": mine[-1][4],
            "until_us": None,
            "news": None,
        }
