"""What each pipeline does with a micro-batch.

A job is given the messages between two places and the number of the batch, and leaves its tables
as if it had been given them once, however often that is tried. The query's id and the number mark
every commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headwater.core.offsets import Offset, parse_offset
from pyspark_headwater.pipelines import transforms
from pyspark_headwater.pipelines.delta import (
    Commit,
    WrittenFile,
    commit_files,
    compact,
    has_commit,
    open_table,
    parts_of,
    read_files,
    write_files,
)
from pyspark_headwater.pipelines.layout import Layout

PLACE_FIELDS: Final = [
    StructField("offset", StringType()),
    StructField("index", IntegerType()),
    StructField("timestamp", TimestampType()),
]
ARCHIVE_SCHEMA: Final = StructType(
    [*PLACE_FIELDS, StructField("value", StringType()), StructField("date", DateType())]
)
ROLLUP_SCHEMA: Final = StructType(
    [
        StructField("window_start", TimestampType()),
        StructField("stream", StringType()),
        StructField("entity", StringType()),
        StructField("messages", LongType()),
        StructField("bytes", LongType()),
        StructField("date", DateType()),
    ]
)


class Job(Protocol):
    """Takes in micro-batches."""

    def __call__(self, batch: DataFrame, commit: Commit) -> None: ...


# --- How far a table is --------------------------------------------------------------------------
#
# Besides the batch, a commit notes how far into each stream it goes. A query that was given a new
# checkpoint reads everything again, and then has nothing to say up to there.


def note(stream: str) -> str:
    return f"headwater:{stream}"


def seen_by(table: DeltaTable | None, stream: str) -> int | None:
    """The position of the last append of a stream that a table has taken in."""
    return None if table is None else table.transaction_version(note(stream))


def ends_of(batch: DataFrame) -> dict[str, int]:
    """The position of the last append of each stream in a batch."""
    rows = batch.groupBy("stream").agg(F.max("offset").alias("last")).collect()
    return {row.stream: position_of(row.last) for row in rows}


def unseen(batch: DataFrame, seen: Mapping[str, int | None]) -> DataFrame:
    """What of a batch is new."""
    position = F.substring("offset", 18, 16).cast("long")
    for stream, done in seen.items():
        if done is not None:
            batch = batch.where((F.col("stream") != stream) | (position > done))
    return batch


def position_of(offset: str) -> int:
    """The position in an offset. Within a stream positions grow."""
    parsed = parse_offset(offset)
    assert isinstance(parsed, Offset), "rows carry offsets, not names of them"
    return parsed.position


# --- archive -------------------------------------------------------------------------------------


def archive_layout(root: str) -> Layout:
    return Layout(f"{root}/archive", ARCHIVE_SCHEMA, "date", table="stream")


@dataclass(frozen=True)
class Archive:
    """Streams into one append-only table each."""

    root: str

    def __call__(self, batch: DataFrame, commit: Commit) -> None:
        layout = archive_layout(self.root)
        files = by_table(write_files(transforms.archived(batch), layout))
        overlap = {
            stream: seen
            for stream, mine in files.items()
            if (seen := seen_by(open_table(layout.uri(stream)), stream)) is not None
            and any(position_of(one.low or "") <= seen for one in mine)
        }
        if overlap:
            # Rare enough to read and write everything again, without what is there.
            new = transforms.archived(unseen(batch, overlap))
            files = by_table(write_files(new, layout))
        for stream, mine in sorted(files.items()):
            end = max(position_of(one.high or "") for one in mine)
            commit_files(layout, stream, mine, commit, notes={note(stream): end})
            compact(layout.uri(stream))


def by_table(files: Sequence[WrittenFile]) -> dict[str, list[WrittenFile]]:
    found: dict[str, list[WrittenFile]] = {}
    for one in files:
        found.setdefault(one.table, []).append(one)
    return found


# --- rollup --------------------------------------------------------------------------------------


def rollup_layout(root: str) -> Layout:
    return Layout(root, ROLLUP_SCHEMA, "date", name="rollup")


@dataclass(frozen=True)
class Rollup:
    """Messages and bytes for each window of time, stream and type of entity."""

    root: str
    minutes: int

    def __call__(self, batch: DataFrame, commit: Commit) -> None:
        spark = batch.sparkSession
        layout = rollup_layout(self.root)
        table = open_table(layout.uri("rollup"))
        if has_commit(table, commit):
            return
        batch = batch.cache()
        try:
            ends = ends_of(batch)
            new = unseen(batch, {stream: seen_by(table, stream) for stream in ends})
            new = transforms.rolled_up(new, self.minutes)
            days = [str(row.date) for row in new.select("date").distinct().collect()]
            parts = {} if table is None else parts_of(table, layout)
            paths = [path for day in days for path in parts.get(day, [])]
            held = read_files(spark, layout, "rollup", paths)
            files = write_files(transforms.summed([new, held]).coalesce(1), layout)
            notes = {note(stream): end for stream, end in ends.items()}
            commit_files(layout, "rollup", files, commit, replaced=days, notes=notes)
        finally:
            batch.unpersist()
