"""The pipeline `archive`: streams into one append-only table each.

A message is kept as it was sent, and the fields of objects are columns too, as described in
`columns`. Which columns a batch needs is known only once it has been read. So its files are written
with the existing columns of the tables, and each file reports what had no column. Only in that
case, which is rare, are the messages of that stream written again.

When a column changes its type, the whole table is rewritten from its messages, unless it is large.
A large table keeps the types of its columns: a value that does not fit is null there, and can be
found in the message.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DateType, StringType, StructField, StructType

from headwater.core.pipelines import ARCHIVE
from pyspark_headwater.pipelines import transforms
from pyspark_headwater.pipelines.columns import (
    Columns,
    News,
    grown,
    join_news,
    must_rewrite,
    room_for,
    same_shape,
    without_widening,
)
from pyspark_headwater.pipelines.delta import (
    Commit,
    WrittenFile,
    commit_files,
    parts_of,
    publish_as_iceberg,
    rows_in,
    side_by_side,
    write_files,
)
from pyspark_headwater.pipelines.jobs import PLACE_FIELDS, Seen, is_new, seen_by
from pyspark_headwater.pipelines.layout import Layout, columns_of
from pyspark_headwater.pipelines.open_tables import OPEN_MAX, OpenTables
from pyspark_headwater.pipelines.parquet import read_rows
from pyspark_headwater.pipelines.upkeep import compact

ARCHIVE_SCHEMA: Final = StructType(
    [*PLACE_FIELDS, StructField("value", StringType()), StructField("date", DateType())]
)
REWRITTEN_ROWS_MAX: Final = 10_000_000
"""A table with more rows keeps its columns as they are."""
_TASKS_MAX: Final = 32
_NAMED: Final = "stream string, path string, fresh boolean, together string"
_ROWS: Final = (
    "stream string, offset string, index int, timestamp timestamp, value string, date date"
)


def archive_layout(root: str) -> Layout:
    return Layout(f"{root}/{ARCHIVE}", ARCHIVE_SCHEMA, "date", table="stream", source="value")


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a batch is added to a table.

    Attributes:
        columns: its columns afterwards.
        end: how far it is in its stream afterwards.
        seen: how far it is before, if some of the batch is not new to it.
        held: its files, if all of them are rewritten.
        again: whether the messages have to be written again.
    """

    columns: Columns
    end: Seen
    seen: Seen | None
    held: list[str]
    again: bool


@dataclass(frozen=True)
class Archive:
    """Streams into one append-only table each.

    Attributes:
        root: where the tables are.
        tables: those that are open.
        stream: the only stream, if there is one: then the first batch needs no second pass.
    """

    root: str
    tables: OpenTables = field(default_factory=OpenTables, compare=False)
    stream: str | None = field(default=None, compare=False)
    _columns: dict[str, Columns] = field(default_factory=dict, compare=False)

    def __call__(self, batch: DataFrame, commit: Commit) -> None:
        layout = archive_layout(self.root)
        if self.stream is not None and not self._columns:
            self._remember({self.stream: columns_of(self.tables.find(layout.uri(self.stream)))})
        layout = replace(layout, columns=dict(self._columns))
        files = by_table(write_files(transforms.archived(batch), layout))
        streams = sorted(files)
        found = side_by_side(lambda one: self._plan(layout, one, files[one]), streams)
        plans = dict(zip(streams, found, strict=True))
        again = {stream: plan for stream, plan in plans.items() if plan.again}
        if again:
            made = _written_again(batch.sparkSession, layout, again, files)
            files = {stream: mine for stream, mine in files.items() if stream not in again} | made
            plans |= again
        columns = {stream: plan.columns for stream, plan in plans.items()}
        self._remember(columns)
        layout = replace(layout, columns=columns)

        def finish(stream: str) -> None:
            mine, plan = files[stream], plans[stream]
            replaced = "all" if plan.held else ()
            notes = plan.end.notes(stream)
            commit_files(self.tables, layout, stream, mine, commit, replaced=replaced, notes=notes)
            if (table := self.tables.find(layout.uri(stream))) is not None:
                compact(table, layout.partition)
                publish_as_iceberg(self.tables, layout, table)

        side_by_side(finish, sorted(files))

    def _plan(self, layout: Layout, stream: str, files: Sequence[WrittenFile]) -> _Plan:
        table = self.tables.find(layout.uri(stream))
        seen = seen_by(table, stream)
        overlaps = seen is not None and any((one.low or "") <= seen.offset for one in files)
        end = max(Seen(one.high or "", one.until_us or 0) for one in files)
        if seen is not None and not is_new(*end, seen):
            end = seen
        before = columns_of(table)
        columns = _with_room(before, files)
        held: list[str] = []
        # A table from before there were columns gets them for all of its rows.
        if table is not None and (must_rewrite(before, columns) or (columns and not before)):
            if rows_in(table) <= REWRITTEN_ROWS_MAX:
                held = [path for part in parts_of(table, layout).values() for path in part]
            else:
                columns = without_widening(before, columns)
        fits = same_shape(layout.columns.get(stream, ()), columns)
        again = overlaps or bool(held) or not fits
        return _Plan(columns, end, seen if overlaps else None, held, again)

    def _remember(self, columns: Mapping[str, Columns]) -> None:
        """Remember the columns of tables that are written to often."""
        for stream, mine in columns.items():
            self._columns.pop(stream, None)
            self._columns[stream] = mine
        for stream in [*self._columns][: max(0, len(self._columns) - OPEN_MAX)]:
            del self._columns[stream]


# --- Writing again -------------------------------------------------------------------------------


def _written_again(
    spark: SparkSession,
    layout: Layout,
    plans: dict[str, _Plan],
    files: Mapping[str, Sequence[WrittenFile]],
) -> dict[str, list[WrittenFile]]:
    """Write the messages of some streams with the columns of their plans.

    Rows from before there were columns have fields that were never examined. The plans then get
    columns for these too.
    """
    made = by_table(write_files(_rows(spark, layout, plans, files), _with_columns(layout, plans)))
    wider = {
        stream: replace(plan, columns=columns)
        for stream, plan in plans.items()
        if plan.held
        and not same_shape(columns := _with_room(plan.columns, made.get(stream, ())), plan.columns)
    }
    if wider:
        plans |= wider
        rows = _rows(spark, layout, wider, files)
        made |= by_table(write_files(rows, _with_columns(layout, wider)))
    return made


def _with_columns(layout: Layout, plans: Mapping[str, _Plan]) -> Layout:
    return replace(layout, columns={stream: plan.columns for stream, plan in plans.items()})


def _rows(
    spark: SparkSession,
    layout: Layout,
    plans: Mapping[str, _Plan],
    files: Mapping[str, Sequence[WrittenFile]],
) -> DataFrame:
    """What to write for some streams: what is new, and what is rewritten.

    The messages are read from the files of the first attempt, not from the server again.
    """
    fresh = [(stream, one.path, True, one.path) for stream in plans for one in files[stream]]
    # Rewritten rows become one file per day.
    held = [
        (stream, path, False, f"{stream}/{posixpath.dirname(path)}")
        for stream, plan in plans.items()
        for path in plan.held
    ]
    named = spark.createDataFrame([*fresh, *held], _NAMED)
    parts = len({one[3] for one in (*fresh, *held)})
    spread = named.repartition(min(parts, _TASKS_MAX), "together")
    return spread.mapInArrow(_read(layout, {one: plan.seen for one, plan in plans.items()}), _ROWS)


def _read(
    layout: Layout, seen: Mapping[str, Seen | None]
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    schema = to_arrow_schema(ARCHIVE_SCHEMA, timezone="UTC")

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for one in batch.to_pylist():
                stream = one["stream"]
                done = seen[stream] if one["fresh"] else None
                for rows in read_rows(layout.uri(stream), [one["path"]], schema):
                    kept = rows if done is None else _unseen(rows, done)
                    names = pa.array([stream] * kept.num_rows, pa.string())
                    yield pa.RecordBatch.from_arrays(
                        [names, *kept.columns], names=["stream", *schema.names]
                    )

    return read


def _unseen(rows: Any, done: Seen) -> Any:
    moments = pc.cast(rows["timestamp"], pa.int64()).to_pylist()
    places = zip(rows["offset"].to_pylist(), moments, strict=True)
    return rows.filter(pa.array([is_new(*place, done) for place in places], pa.bool_()))


def _with_room(columns: Columns, files: Sequence[WrittenFile]) -> Columns:
    """The columns of a table, and those that files had no column for."""
    return grown(columns, room_for(_news(files), columns), ARCHIVE_SCHEMA.fieldNames())


def _news(files: Sequence[WrittenFile]) -> News:
    found: News = {}
    for one in files:
        if one.news:
            join_news(found, msgspec.msgpack.decode(one.news, type=News))
    return found


def by_table(files: Sequence[WrittenFile]) -> dict[str, list[WrittenFile]]:
    found: dict[str, list[WrittenFile]] = {}
    for one in files:
        found.setdefault(one.table, []).append(one)
    return found
