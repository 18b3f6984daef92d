"""What each pipeline does with a micro-batch.

A job is given the messages between two places and the number of the batch, and leaves its tables
as if it had been given them once, however often that is tried. The query's id and the number mark
every commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, Protocol

from deltalake import DeltaTable
from pyarrow import fs
from pyspark.sql import DataFrame, Row, SparkSession
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
    Layout,
    WrittenFile,
    commit_files,
    compact,
    filesystem,
    has_commit,
    open_table,
    parts_of,
    read_files,
    write_files,
)
from pyspark_headwater.pipelines.folding import Control, Fold, Place, fold_controls

_PLACE_FIELDS: Final = [
    StructField("offset", StringType()),
    StructField("index", IntegerType()),
    StructField("timestamp", TimestampType()),
]
ARCHIVE_SCHEMA: Final = StructType(
    [*_PLACE_FIELDS, StructField("value", StringType()), StructField("date", DateType())]
)
STATE_SCHEMA: Final = StructType(
    [
        StructField("key", StringType()),
        StructField("value", StringType()),
        *_PLACE_FIELDS,
        StructField("bucket", IntegerType()),
    ]
)
ASIDE_SCHEMA: Final = StructType(
    [
        StructField("stream", StringType()),
        *_PLACE_FIELDS,
        StructField("type", StringType()),
        StructField("key", StringType()),
        StructField("operation", StringType()),
        StructField("control", StringType()),
        StructField("named_offset", StringType()),
        StructField("value", StringType()),
        StructField("part", IntegerType()),
    ]
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


# --- materialize ---------------------------------------------------------------------------------


def state_layout(root: str, stream: str) -> Layout:
    return Layout(f"{root}/state/{stream}", STATE_SCHEMA, "bucket", table="type")


def aside_layout(root: str, stream: str) -> Layout:
    return Layout(f"{root}/state/{stream}", ASIDE_SCHEMA, "part", name="_aside")


@dataclass(frozen=True)
class Materialize:
    """One State Protocol stream into a table of the current state for each type of entity.

    Only those parts of a table are rewritten that hold an entity that changed. A table of its own
    holds what is set aside (see `folding`); it is committed last, with the offset up to which all
    of the stream has been taken in.
    """

    root: str
    stream: str

    def __call__(self, batch: DataFrame, commit: Commit) -> None:
        spark = batch.sparkSession
        aside_layout_ = aside_layout(self.root, self.stream)
        aside = open_table(aside_layout_.uri("_aside"))
        if has_commit(aside, commit):
            return
        new = unseen(batch, {self.stream: seen_by(aside, self.stream)})
        found = transforms.changes(new)
        parts = {} if aside is None else parts_of(aside, aside_layout_)
        paths = [path for part in parts.values() for path in part]
        waiting = read_files(spark, aside_layout_, "_aside", paths).drop("part")
        every = found.unionByName(waiting).cache()
        try:
            end = every.agg(F.max(transforms.place()).alias("last")).collect()[0].last
            if end is None:
                return
            last = Place(end.offset, end["index"])
            fold = fold_controls(controls_of(every), last)
            self._apply(every, fold, commit)
            files = []
            if fold.aside is not None:
                kept = every.where(transforms.behind(fold.aside)).withColumn("part", F.lit(0))
                files = write_files(kept, aside_layout_)
            commit_files(
                aside_layout_,
                "_aside",
                files,
                commit,
                replaced=paths,
                notes={note(self.stream): position_of(last.offset)},
            )
        finally:
            every.unpersist()

    def _apply(self, every: DataFrame, fold: Fold, commit: Commit) -> None:
        """Bring the tables of all types up to date."""
        spark = every.sparkSession
        layout = state_layout(self.root, self.stream)
        cached = transforms.latest(every.where(transforms.within(fold.stretches))).cache()
        last = cached
        try:
            touched = _touched(transforms.bucketed(last).select("type", "bucket").distinct())
            types = set(touched) | (set(known_types(layout)) if fold.replaces else set())
            replaced: dict[str, list[str]] = {}
            held: list[DataFrame] = []
            for name in sorted(types):
                table = open_table(layout.uri(name))
                if has_commit(table, commit):
                    last = last.where(F.col("type") != name)
                    continue
                parts = {} if table is None else parts_of(table, layout)
                hit = parts if fold.replaces else touched.get(name, set())
                replaced[name] = [path for part in hit for path in parts.get(part, [])]
                if not fold.replaces:
                    rows = read_files(spark, layout, name, replaced[name])
                    held.append(rows.withColumn("type", F.lit(name)))
            empty = spark.createDataFrame([], transforms.STATE)
            state = reduce(DataFrame.unionByName, [one.drop("bucket") for one in held], empty)
            files = write_files(transforms.bucketed(transforms.merged(state, last)), layout)
            for name, paths in replaced.items():
                mine = [one for one in files if one.table == name]
                commit_files(layout, name, mine, commit, replaced=paths)
        finally:
            cached.unpersist()


def controls_of(changes: DataFrame) -> list[Control]:
    """The control messages, of which there are few."""
    found = changes.where("control IS NOT NULL").select(
        "offset", "index", "control", "named_offset"
    )
    return [
        Control(Place(row.offset, row["index"]), row.control, row.named_offset)
        for row in found.collect()
    ]


def known_types(layout: Layout) -> list[str]:
    """The types that have a table."""
    where, path = filesystem(layout.root)
    selector = fs.FileSelector(path, allow_not_found=True)
    names = [one.base_name for one in where.get_file_info(selector)]
    return sorted(name for name in names if not name.startswith("_"))


def _touched(rows: DataFrame) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in rows.collect():
        found.setdefault(row.type, set()).add(str(row.bucket))
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
            commit_files(layout, "rollup", files, commit, replaced=paths, notes=notes)
        finally:
            batch.unpersist()


# --- snapshot ------------------------------------------------------------------------------------


def folded(changes: DataFrame, state: DataFrame) -> tuple[DataFrame, Fold, Place | None]:
    """The state after some changes, with how they were folded and where they end."""
    end: Row = changes.agg(F.max(transforms.place()).alias("last")).collect()[0]
    if end.last is None:
        return state, fold_controls([], Place("", -1)), None
    last = Place(end.last.offset, end.last["index"])
    fold = fold_controls(controls_of(changes), last)
    counting = transforms.latest(changes.where(transforms.within(fold.stretches)))
    before = state.where(F.lit(False)) if fold.replaces else state
    return transforms.merged(before, counting), fold, last


def state_rows(spark: SparkSession, rows: Sequence[tuple[str, str, str]]) -> DataFrame:
    """A state from types, keys and values, older than every message."""
    known = [(type_, key, value, "", -1, None) for type_, key, value in rows]
    return spark.createDataFrame(known, transforms.STATE)
