"""The pipeline `materialize`, and the state of a stream at a place.

Only those parts of a table are rewritten that hold an entity that changed, unless a column gets
another type: then all of them are. The columns of a table are made of the JSON that it keeps, as
its files are written, so that no old file has to be asked what it meant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final, Literal

from deltalake import DeltaTable
from pyarrow import fs
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType, TimestampType

from headwater.core.pipelines import STATE
from pyspark_headwater.pipelines import transforms
from pyspark_headwater.pipelines.columns import Columns, Kind, grown, must_rewrite
from pyspark_headwater.pipelines.delta import (
    Commit,
    commit_files,
    filesystem,
    has_commit,
    open_table,
    parts_of,
    read_files,
    write_files,
)
from pyspark_headwater.pipelines.folding import Control, Fold, Place, fold_controls
from pyspark_headwater.pipelines.jobs import (
    PLACE_FIELDS,
    Seen,
    moment,
    seen_by,
    unseen,
)
from pyspark_headwater.pipelines.layout import Layout, columns_of, plain_name, safe_path
from pyspark_headwater.wire import BEGINNING

# A name with an underscore leaves the name without it to the fields of values.
STATE_SCHEMA: Final = StructType(
    [
        StructField("key", StringType()),
        StructField("_value", StringType()),
        StructField("_offset", StringType()),
        StructField("_index", IntegerType()),
        StructField("_timestamp", TimestampType()),
        StructField("_bucket", IntegerType()),
    ]
)
ASIDE_SCHEMA: Final = StructType(
    [
        StructField("stream", StringType()),
        *PLACE_FIELDS,
        StructField("type", StringType()),
        StructField("key", StringType()),
        StructField("operation", StringType()),
        StructField("control", StringType()),
        StructField("named_offset", StringType()),
        StructField("value", StringType()),
        StructField("part", IntegerType()),
    ]
)


def state_layout(root: str, stream: str) -> Layout:
    return Layout(
        f"{root}/{STATE}/{safe_path(stream)}",
        STATE_SCHEMA,
        "_bucket",
        table="type",
        by_path=False,
        source="_value",
    )


def aside_layout(root: str, stream: str) -> Layout:
    # No type of entity has a table whose name begins so.
    where = f"{root}/{STATE}/{safe_path(stream)}/_aside"
    return Layout(where, ASIDE_SCHEMA, "part", name="changes")


@dataclass(frozen=True)
class Materialize:
    """One State Protocol stream into a table of the current state for each type of entity.

    A table of its own holds what is set aside (see `folding`); it is committed last, with the
    offset up to which all of the stream has been taken in.
    """

    root: str
    stream: str

    def __call__(self, batch: DataFrame, commit: Commit) -> None:
        layout = aside_layout(self.root, self.stream)
        aside = open_table(layout.uri(layout.name))
        if has_commit(aside, commit):
            return
        seen = seen_by(aside, self.stream)
        new = unseen(batch, {self.stream: seen})
        parts = {} if aside is None else parts_of(aside, layout)
        paths = [path for part in parts.values() for path in part]
        waiting = read_files(batch.sparkSession, layout, layout.name, paths).drop("part")
        every = transforms.changes(new).unionByName(waiting).cache()
        try:
            end, anew = _summary(every, seen)
            if end is None:
                return
            last = Place(end.offset, end["index"])
            if anew is not None:
                # What the stream's predecessor left is nothing to the new one.
                every = every.where(anew)
            fold = fold_controls(controls_of(every), last)
            self._apply(every, replace(fold, replaces=fold.replaces or anew is not None), commit)
            files = []
            if fold.aside is not None:
                kept = every.where(transforms.from_place(fold.aside)).withColumn("part", F.lit(0))
                files = write_files(kept, layout)
            notes = Seen(last.offset, end.at_us).notes(self.stream)
            commit_files(layout, layout.name, files, commit, replaced="all", notes=notes)
        finally:
            every.unpersist()

    def _apply(self, every: DataFrame, fold: Fold, commit: Commit) -> None:
        """Bring the tables of all types up to date."""
        layout = state_layout(self.root, self.stream)
        last = transforms.latest(every.where(transforms.within(fold.stretches))).cache()
        try:
            touched = _touched(transforms.bucketed(last).select("type", "_bucket").distinct())
            types = set(touched) | (set(known_types(layout)) if fold.replaces else set())
            tables = {name: open_table(layout.uri(name)) for name in sorted(types)}
            tables = {name: one for name, one in tables.items() if not has_commit(one, commit)}
            if not tables:
                return
            new = last.where(F.col("type").isin([*tables]))
            before = {name: columns_of(table) for name, table in tables.items()}
            layout = replace(layout, columns=_with_room(before, new))
            rewrites = [
                _rewrite(layout, name, table, fold, touched.get(name, set()), before[name])
                for name, table in tables.items()
            ]
            state = _held(every.sparkSession, layout, rewrites)
            files = write_files(transforms.bucketed(transforms.merged(state, new)), layout)
            for one in rewrites:
                mine = [file for file in files if file.table == one.table]
                commit_files(layout, one.table, mine, commit, replaced=one.parts)
        finally:
            last.unpersist()


def _summary(changes: DataFrame, seen: Seen | None) -> tuple[Row | None, Column | None]:
    """The last change; and which are of a stream that was created anew, if any are."""
    last = F.max(F.struct("offset", "index", moment().alias("at_us")))
    later = moment() > (-1 if seen is None else seen.at_us)
    begins = F.max((F.col("offset") == BEGINNING) & later)
    found = changes.agg(last.alias("last"), begins.alias("begins")).collect()[0]
    return found.last, later if seen is not None and found.begins else None


@dataclass(frozen=True, slots=True)
class _Rewrite:
    """Which parts of a table are written anew, and from which of its files."""

    table: str
    parts: set[str] | Literal["all"]
    paths: list[str]


def _rewrite(
    layout: Layout,
    name: str,
    table: DeltaTable | None,
    fold: Fold,
    touched: set[str],
    before: Columns,
) -> _Rewrite:
    if fold.replaces:
        return _Rewrite(name, "all", [])
    parts = {} if table is None else parts_of(table, layout)
    everything = must_rewrite(before, layout.columns[name])
    hit = parts.keys() if everything else touched
    paths = [path for part in hit for path in parts.get(part, [])]
    return _Rewrite(name, "all" if everything else touched, paths)


def _with_room(before: Mapping[str, Columns], new: DataFrame) -> dict[str, Columns]:
    """The columns of the tables, and those that new values need."""
    found: dict[str, dict[str, Kind]] = {}
    for row in transforms.new_fields(new, before).collect():
        found.setdefault(row.type, {})[row.field] = row.kinds
    taken = STATE_SCHEMA.fieldNames()
    return {name: grown(columns, found.get(name, {}), taken) for name, columns in before.items()}


def _held(spark: SparkSession, layout: Layout, rewrites: Sequence[_Rewrite]) -> DataFrame:
    """The rows of all parts that are written anew."""
    empty = spark.createDataFrame([], transforms.STATE)
    bare = replace(layout, columns={})
    held = [
        transforms.as_state(read_files(spark, bare, one.table, one.paths), one.table)
        for one in rewrites
        if one.paths
    ]
    return reduce(DataFrame.unionByName, held, empty)


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
    types = [plain_name(name) for name in names if not name.startswith("_")]
    return sorted(name for name in types if DeltaTable.is_deltatable(layout.uri(name)))


def _touched(rows: DataFrame) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in rows.collect():
        found.setdefault(row.type, set()).add(str(row._bucket))
    return found


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
