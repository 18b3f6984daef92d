"""What a task of `materialize` does: merge a part of a table and its changes into one new file.

Changes come sorted by table, part and place, so a task has one part in memory at a time: the
existing rows, and the last change of each changed entity. A change counts only if it is newer than
what the table holds, so applying the same changes again, or older ones, changes nothing.
"""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext

from headwater.core.state_protocol import DELETE
from pyspark_headwater.pipelines.buckets import slot_of
from pyspark_headwater.pipelines.columns import ARROW_TYPES, Columns, arrays_of
from pyspark_headwater.pipelines.delta import bounds_of, files_schema
from pyspark_headwater.pipelines.feed import Changed, write_changes
from pyspark_headwater.pipelines.folding import Interval, Place
from pyspark_headwater.pipelines.parquet import filesystem

PARTITION: Final = "_bucket"
FEED_MARK: Final = "\n"
"""The prefix of a table's name in a report about its changes. No stream has it."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
ROUTED: Final = (
    "stream string, type string, bucket int, offset string, index int, timestamp timestamp, "
    "key string, operation string, value string"
)
_ROUTED_NAMES: Final = [column.split()[0] for column in ROUTED.split(", ")]
_STORED: Final = pa.schema(
    [
        ("key", pa.string()),
        ("_value", pa.string()),
        ("_offset", pa.string()),
        ("_index", pa.int32()),
        ("_timestamp", pa.timestamp("us", "UTC")),
    ]
)


class TableName(NamedTuple):
    """A table of entities: a stream, and one of its types."""

    stream: str
    type: str


@dataclass(frozen=True, slots=True)
class Rewrite:
    """How the parts of a table are rewritten.

    Attributes:
        uri: where the table is.
        columns: its columns afterwards.
        buckets: its number of parts afterwards.
        held: the files of each part whose rows are kept.
        anew: whether columns change their type, so that all rows have to be read again.
        splits: whether there are more parts than before, so that not all rows of a file stay.
        void: whether no existing row stays; they are read only for the change feed.
        feed: where the changes of rows are written, if anywhere.
        until: the place and time of changes without their own message.
    """

    uri: str
    columns: Columns
    buckets: int
    held: Mapping[int, list[str]] = field(default_factory=dict)
    anew: bool = False
    splits: bool = False
    void: bool = False
    feed: str | None = None
    until: tuple[str, int, int] = ("", 0, 0)

    @property
    def is_whole(self) -> bool:
        """Whether all parts are processed, including those that no message is about."""
        return self.feed is not None if self.void else self.anew or self.splits

    def files(self, bucket: int) -> list[str]:
        """The files that a part is made from."""
        return [] if self.void and self.feed is None else self.held.get(bucket, [])


# --- Which changes count, and where they belong --------------------------------------------------


Counting = Mapping[str, tuple[Interval, ...]]
"""The intervals of a stream in which its changes count."""


def route(
    counting: Counting, rewrites: Mapping[TableName, Rewrite]
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Select the changes that count, and the part and table of each."""

    def routed(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield _routed(batch, counting, rewrites)

    return routed


def _routed(batch: Any, counting: Counting, rewrites: Mapping[TableName, Rewrite]) -> Any:
    rows: list[int] = []
    buckets: list[int] = []
    columns = [batch[name].to_pylist() for name in ("stream", "type", "key", "offset", "index")]
    for row, (stream, type_, key, offset, number) in enumerate(zip(*columns, strict=True)):
        rewrite = rewrites.get(TableName(stream, type_)) if key is not None else None
        if rewrite is not None and _counts(Place(offset, number), counting[stream]):
            rows.append(row)
            buckets.append(slot_of(key) % rewrite.buckets)
    kept = batch.take(pa.array(rows, pa.int64()))
    found = {"bucket": pa.array(buckets, pa.int32())}
    return pa.RecordBatch.from_pydict(
        {name: found[name] if name in found else kept[name] for name in _ROUTED_NAMES}
    )


def _counts(place: Place, intervals: tuple[Interval, ...]) -> bool:
    return any(interval.holds(place) for interval in intervals)


# --- Merging -------------------------------------------------------------------------------------


def merge(
    rewrites: Mapping[TableName, Rewrite],
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Write the parts with changes, and report the files."""

    def merged(batches: Iterator[Any]) -> Iterator[Any]:
        task = TaskContext.get()
        assert task is not None, "files are written in tasks"
        tag = f"{time.time_ns():x}-{task.taskAttemptId()}"
        reports: list[dict[str, Any]] = []
        for number, ((table, bucket), last) in enumerate(_parts(batches)):
            name = f"part-{tag}-{number:04d}.zstd.parquet"
            reports += _write(table, rewrites[table], bucket, last, name)
        yield pa.RecordBatch.from_pylist(reports, schema=files_schema())

    return merged


Change = tuple[str, int, Any, str, str | None]
"""Offset, index, timestamp, operation and value."""


def _parts(
    batches: Iterator[Any],
) -> Iterator[tuple[tuple[TableName, int], dict[str, Change]]]:
    """The last change of each entity, part by part."""
    current: tuple[TableName, int] | None = None
    last: dict[str, Change] = {}
    for batch in batches:
        columns = [batch[name].to_pylist() for name in _ROUTED_NAMES]
        for stream, type_, bucket, offset, number, at, key, operation, value in zip(
            *columns, strict=True
        ):
            part = (TableName(stream, type_), bucket)
            if part != current:
                if current is not None:
                    yield current, last
                current, last = part, {}
            if key is not None:
                last[key] = (offset, number, at, operation, value)
    if current is not None:
        yield current, last


def _write(
    table: TableName, rewrite: Rewrite, bucket: int, last: dict[str, Change], name: str
) -> Iterator[dict[str, Any]]:
    """Write a part, and its changes if there is a feed."""
    filesystem_, root = filesystem(rewrite.uri)
    held = [
        _read(filesystem_, posixpath.join(root, path), rewrite, bucket)
        for path in rewrite.files(bucket)
    ]
    if rewrite.feed is not None:
        changed = changes_of(held, last, rewrite)
        for report in write_changes(rewrite.feed, changed, name):
            yield {"table": f"{FEED_MARK}{table.stream}\n{table.type}", **report}
    rows = _merged([] if rewrite.void else held, last, rewrite)
    part = f"{PARTITION}={bucket}"
    path = posixpath.join(root, part, name)
    size = 0
    if rows.num_rows:
        filesystem_.create_dir(posixpath.dirname(path))
        pq.write_table(rows, path, filesystem=filesystem_, compression="zstd")
        size = filesystem_.get_file_info(path).size
    low, high = bounds_of(rows["key"])
    yield {
        "table": f"{table.stream}\n{table.type}",
        "path": f"{part}/{name}",
        "size": size,
        "part": str(bucket),
        "rows": rows.num_rows,
        "low": low,
        "high": high,
        "until_us": None,
        "news": None,
    }


def schema_of(columns: Columns) -> Any:
    made = [pa.field(one.name, ARROW_TYPES[one.type]) for one in columns]
    return pa.schema([*_STORED, *made])


def _read(filesystem_: Any, path: str, rewrite: Rewrite, bucket: int) -> Any:
    """Rows in stored form. A file may have fewer columns than its table has now."""
    schema = schema_of(rewrite.columns)
    with pq.ParquetFile(path, filesystem=filesystem_) as file:
        have = set(file.schema_arrow.names)
        wanted = _STORED.names if rewrite.anew else [name for name in schema.names if name in have]
        rows = file.read(columns=wanted, use_threads=False)
    if rewrite.splits:
        mine = [slot_of(key) % rewrite.buckets == bucket for key in rows["key"].to_pylist()]
        rows = rows.filter(pa.array(mine, pa.bool_()))
    if rewrite.anew:
        return _with_columns([rows[name] for name in _STORED.names], rewrite.columns)
    arrays = [
        rows[one.name].cast(one.type) if one.name in have else pa.nulls(rows.num_rows, one.type)
        for one in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _with_columns(stored: list[Any], columns: Columns) -> Any:
    fixed = [array.cast(one.type) for array, one in zip(stored, _STORED, strict=True)]
    made = arrays_of(stored[1].to_pylist(), columns) if columns else []
    return pa.Table.from_arrays([*fixed, *made], schema=schema_of(columns))


def _merged(held: list[Any], last: dict[str, Change], rewrite: Rewrite) -> Any:
    """The rows of a part with the last changes applied, sorted by key."""
    if last:
        held = [rows.filter(pa.array(_staying(rows, last), pa.bool_())) for rows in held]
    stored = [
        (key, value, offset, number, at)
        for key, (offset, number, at, operation, value) in last.items()
        if operation != DELETE
    ]
    columns = [*zip(*stored, strict=True)] if stored else [()] * len(_STORED)
    arrays = [pa.array(values, one.type) for values, one in zip(columns, _STORED, strict=True)]
    new = _with_columns(arrays, rewrite.columns)
    return pa.concat_tables([*held, new]).combine_chunks().sort_by("key")


def changes_of(held: list[Any], last: Mapping[str, Change], rewrite: Rewrite) -> list[Changed]:
    """What the last changes do to the rows of a part."""
    changed: list[Changed] = []
    new = dict(last)
    offset, number, at_us = rewrite.until
    at = _EPOCH + timedelta(microseconds=at_us)
    for rows in held:
        names = ("key", "_value", "_offset", "_index")
        for key, before, *place in zip(*(rows[name].to_pylist() for name in names), strict=True):
            change = new.pop(key, None)
            if change is None:
                if rewrite.void:
                    changed.append((key, DELETE, before, None, offset, number, at))
            elif rewrite.void or change[:2] > (*place,):
                changed += _changed(key, before, change)
    for key, change in new.items():
        changed += _changed(key, None, change)
    return changed


def _changed(key: str, before: str | None, change: Change) -> list[Changed]:
    """The change of an entity; none if it is unchanged."""
    offset, number, at, operation, value = change
    after = None if operation == DELETE else value
    if before == after:
        return []
    kind = "insert" if before is None else DELETE if after is None else "update"
    return [(key, kind, before, after, offset, number, at)]


def _staying(rows: Any, last: dict[str, Change]) -> list[bool]:
    """Which rows stay because no newer change replaces them. Removes older changes from `last`."""
    staying: list[bool] = []
    places = zip(rows["_offset"].to_pylist(), rows["_index"].to_pylist(), strict=True)
    for key, place in zip(rows["key"].to_pylist(), places, strict=True):
        change = last.get(key)
        if change is not None and change[:2] <= place:
            del last[key]
            change = None
        staying.append(change is None)
    return staying
