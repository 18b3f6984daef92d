"""The pipeline `materialize`: State Protocol streams into tables of their current state.

A batch is processed for all of its streams at once, in two passes. The first surveys the changes;
the driver then knows which parts of which tables change, and what columns they need. The second
brings the changes of each part together in one task, which rewrites that part. Only parts with a
changed entity are rewritten, unless a column changes its type, or the table has grown and needs
more parts: then all of them are. The columns of a table are derived from the JSON that it keeps,
when its files are written, so that no old file has to be interpreted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import fs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType, TimestampType

from headwater.core.pipelines import STATE
from pyspark_headwater.errors import MalformedMessage
from pyspark_headwater.pipelines import buckets, merging, survey, transforms
from pyspark_headwater.pipelines.columns import Columns, grown, must_rewrite, room_for
from pyspark_headwater.pipelines.delta import (
    FILES,
    Commit,
    WrittenFile,
    commit_files,
    has_commit,
    parts_of,
    rows_in,
    side_by_side,
)
from pyspark_headwater.pipelines.feed import Feed, changes_layout, noted
from pyspark_headwater.pipelines.folding import Fold, fold_controls
from pyspark_headwater.pipelines.jobs import Seen, is_new
from pyspark_headwater.pipelines.layout import Layout, columns_of, plain_name, safe_path
from pyspark_headwater.pipelines.ledger import Ledger
from pyspark_headwater.pipelines.merging import Rewrite, TableName
from pyspark_headwater.pipelines.open_tables import OpenTables
from pyspark_headwater.pipelines.parquet import filesystem
from pyspark_headwater.pipelines.quarantine import Quarantine
from pyspark_headwater.pipelines.survey import Survey

# The underscore leaves the plain name to the fields of values.
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


def state_layout(root: str, stream: str) -> Layout:
    return Layout(
        f"{root}/{STATE}/{safe_path(stream)}",
        STATE_SCHEMA,
        merging.PARTITION,
        table="type",
        clustered="key",
        by_path=False,
        source="_value",
    )


class Choice(Protocol):
    """Which streams in a batch have tables."""

    def __call__(self, found: Mapping[str, Survey], ledger: Ledger) -> set[str]: ...


def all_of_them(found: Mapping[str, Survey], ledger: Ledger) -> set[str]:
    """Every stream, and each message has to be a change."""
    for one in found.values():
        if one.misfit is not None:
            raise MalformedMessage(one.misfit.why)
    return set(found)


def whatever_they_hold(found: Mapping[str, Survey], ledger: Ledger) -> set[str]:
    """Every stream; messages that are not changes are kept elsewhere."""
    return set(found)


@dataclass(frozen=True)
class Materialize:
    """State Protocol streams into a table of the current state for each entity type.

    Attributes:
        root: where the tables are.
        choose: which streams have tables.
        quarantine: where messages that are not changes go; without it, `choose` decides.
        tables: those that are open.
        feed: the change feed, if enabled.
    """

    root: str
    choose: Choice = all_of_them
    quarantine: Quarantine | None = field(default=None, compare=False)
    tables: OpenTables = field(default_factory=OpenTables, compare=False)
    feed: Feed | None = None

    def __call__(self, batch: DataFrame, commit: Commit) -> None:
        ledger = Ledger(self.tables, self.root)
        if ledger.has(commit):
            return
        changes = transforms.changes(batch, with_misfits=self.quarantine is not None).cache()
        try:
            self._take_in(changes, ledger, commit)
        finally:
            changes.unpersist()

    def _take_in(self, changes: DataFrame, ledger: Ledger, commit: Commit) -> None:
        changes, found = _unseen(changes, ledger)
        found = {name: found[name] for name in self.choose(found, ledger)}
        if not found:
            return
        changes = self._without_misfits(changes, found)
        seen = {name: Seen(one.last.offset, one.last.at_us) for name, one in found.items()}
        anew = {name for name, one in found.items() if _is_anew(one, ledger.seen(name))}
        waited = ledger.waiting(found)
        every = _with_waiting(changes, found, ledger, {k: waited[k] for k in waited.keys() - anew})
        folds = {name: _folded(one, replaces=name in anew) for name, one in found.items()}
        self._apply(every, found, folds, commit)
        aside = {name: fold.aside for name, fold in folds.items() if fold.aside is not None}
        ledger.commit(every, aside, waited, seen, commit)

    def _without_misfits(self, changes: DataFrame, found: Mapping[str, Survey]) -> DataFrame:
        streams = [name for name, one in found.items() if one.misfit is not None]
        if self.quarantine is None or not streams:
            return changes
        misfits = changes.where(F.col("why").isNotNull() & F.col("stream").isin(streams))
        self.quarantine.take(misfits.orderBy("stream", "offset", "index").toLocalIterator())
        return changes.where("why IS NULL")

    def _apply(
        self,
        every: DataFrame,
        found: Mapping[str, Survey],
        folds: Mapping[str, Fold],
        commit: Commit,
    ) -> None:
        """Bring the tables of all types up to date."""
        layouts = {name: state_layout(self.root, name) for name in found}
        names = [
            TableName(stream, type_)
            for stream, one in found.items()
            for type_ in {*one.types, *(_known_types(layouts[stream], folds[stream]))}
        ]
        plans = [
            self._with_feed(plan, found[plan.name.stream])
            for plan in side_by_side(
                lambda name: _plan(self.tables, layouts[name.stream], name, found, folds, commit),
                names,
            )
            if plan is not None
        ]
        if plans:
            rewrites = {plan.name: plan.rewrite for plan in plans}
            intervals = {name: fold.intervals for name, fold in folds.items()}
            written = _written(every, intervals, rewrites)
            side_by_side(lambda plan: self._commit(plan, written, commit), plans)
        if self.feed is not None:
            side_by_side(lambda name: self._feed(layouts[name.stream], name), sorted(names))

    def _with_feed(self, plan: _Plan, one: Survey) -> _Plan:
        """The plan, with where its changes go."""
        if self.feed is None:
            return plan
        uri = changes_layout(self.root, plan.name.stream).uri(plan.name.type)
        until = (one.last.offset, one.last.number, one.last.at_us)
        return replace(plan, rewrite=replace(plan.rewrite, feed=uri, until=until))

    def _feed(self, layout: Layout, name: TableName) -> None:
        table = self.tables.find(layout.uri(name.type))
        if self.feed is not None and table is not None:
            self.feed.follow(*name, table)

    def _commit(self, plan: _Plan, written: _Written, commit: Commit) -> None:
        layout = replace(plan.layout, columns={plan.name.type: plan.rewrite.columns})
        files = written.parts.get(plan.name, [])
        changes = written.changes.get(plan.name, [])
        replaced = "all" if plan.replaces else {one.part for one in files}
        with_rows = [one for one in files if one.rows]
        if plan.replaces or replaced:
            commit_files(
                self.tables,
                layout,
                plan.name.type,
                with_rows,
                commit,
                replaced=replaced,
                notes={buckets.NOTE: plan.rewrite.buckets},
                about=noted(changes) if changes else None,
            )


# --- Surveying a batch ---------------------------------------------------------------------------


def _surveyed(changes: DataFrame) -> dict[str, Survey]:
    rows = changes.mapInArrow(survey.look, survey.REPORT).collect()
    return survey.joined((row.stream, bytes(row.found)) for row in rows)


def _unseen(changes: DataFrame, ledger: Ledger) -> tuple[DataFrame, dict[str, Survey]]:
    """The changes that are new to the tables, and their survey."""
    found = _surveyed(changes)
    overlap = {
        name: seen
        for name, one in found.items()
        if (seen := ledger.seen(name)) is not None and one.first.offset <= seen.offset
    }
    if not overlap:
        return changes, found
    # A stream that is read again, or one that was created again.
    changes = changes.mapInArrow(_pick_new(overlap), transforms.CHANGES)
    return changes, _surveyed(changes)


def _pick_new(overlap: Mapping[str, Seen]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def pick(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            columns = (batch[name].to_pylist() for name in ("stream", "offset", "at_us"))
            kept = [
                stream not in overlap or is_new(offset, at_us, overlap[stream])
                for stream, offset, at_us in zip(*columns, strict=True)
            ]
            yield batch.filter(pa.array(kept, pa.bool_()))

    return pick


def _is_anew(one: Survey, seen: Seen | None) -> bool:
    """Whether a stream was created again: its predecessor's state does not concern it."""
    return seen is not None and one.begins_us is not None and one.begins_us > seen.at_us


def _with_waiting(
    changes: DataFrame, found: dict[str, Survey], ledger: Ledger, waiting: Mapping[str, list[str]]
) -> DataFrame:
    """The changes with the waiting ones, which are added to the survey."""
    paths = [path for mine in waiting.values() for path in mine]
    if not paths:
        return changes
    waiting_changes = ledger.read(changes.sparkSession, paths)
    for stream, one in _surveyed(waiting_changes).items():
        found[stream].join(one)
    return changes.unionByName(waiting_changes)


def _folded(one: Survey, *, replaces: bool) -> Fold:
    fold = fold_controls(one.control_messages(), one.last.place)
    return replace(fold, replaces=fold.replaces or replaces)


# --- Updating a table ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a table is updated."""

    name: TableName
    layout: Layout
    rewrite: Rewrite
    replaces: bool
    """Whether none of the existing files stays."""


def _plan(
    tables: OpenTables,
    layout: Layout,
    name: TableName,
    found: Mapping[str, Survey],
    folds: Mapping[str, Fold],
    commit: Commit,
) -> _Plan | None:
    uri = layout.uri(name.type)
    table = tables.find(uri)
    if has_commit(table, commit):
        return None
    before = columns_of(table)
    of_type = found[name.stream].types.get(name.type)
    columns = before if of_type is None else _with_room(before, of_type)
    replaces = folds[name.stream].replaces
    former = _bucket_count(table)
    news = 0 if of_type is None else buckets.keys_in(len(of_type.slots), of_type.changes)
    count = buckets.parts_for(news + (0 if replaces else rows_in(table)), former)
    parts = {} if table is None else parts_of(table, layout)
    anew, splits = must_rewrite(before, columns), count > former
    slots = set() if of_type is None else of_type.slots
    hit = range(count) if anew or splits or replaces else {slot % count for slot in slots}
    held = {one: parts[part] for one in hit if (part := str(one % former)) in parts}
    rewrite = Rewrite(uri, columns, count, held, anew, splits, void=replaces)
    return _Plan(name, layout, rewrite, replaces=splits or replaces)


def _with_room(before: Columns, of_type: survey.OfType) -> Columns:
    """The columns of a table, and those that new values need."""
    return grown(before, room_for(of_type.fields, before), STATE_SCHEMA.fieldNames())


def _bucket_count(table: DeltaTable | None) -> int:
    if table is None:
        return buckets.PARTS_AT_FIRST
    return table.transaction_version(buckets.NOTE) or buckets.UNNOTED


def _known_types(layout: Layout, fold: Fold) -> list[str]:
    """The types that have a table, if those are replaced."""
    if not fold.replaces:
        return []
    where, path = filesystem(layout.root)
    selector = fs.FileSelector(path, allow_not_found=True)
    names = [one.base_name for one in where.get_file_info(selector)]
    types = [plain_name(name) for name in names if not name.startswith("_")]
    return sorted(name for name in types if DeltaTable.is_deltatable(layout.uri(name)))


@dataclass(frozen=True, slots=True)
class _Written:
    """The files of parts, and those of their changes."""

    parts: dict[TableName, list[WrittenFile]]
    changes: dict[TableName, list[WrittenFile]]


def _written(
    every: DataFrame, counting: merging.Counting, rewrites: Mapping[TableName, Rewrite]
) -> _Written:
    """Write all changed parts, each in one task; nothing is in a table yet."""
    spark = every.sparkSession
    routed = every.mapInArrow(merging.route(counting, rewrites), merging.ROUTED)
    untouched = [
        (*name, bucket, None, None, None, None, None, None)
        for name, rewrite in rewrites.items()
        if rewrite.is_whole
        for bucket in rewrite.held
    ]
    if untouched:
        # No message is about these parts, but their rows move, get other columns, or are removed.
        routed = routed.unionByName(spark.createDataFrame(untouched, merging.ROUTED))
    part = ("stream", "type", "bucket")
    ordered = routed.repartition(*part).sortWithinPartitions(*part, "offset", "index")
    found = ordered.mapInArrow(merging.merge(rewrites), FILES).collect()
    written = _Written({}, {})
    for row in found:
        one = WrittenFile(**row.asDict())
        is_change = one.table.startswith(merging.FEED_MARK)
        files = written.changes if is_change else written.parts
        name = TableName(*one.table.removeprefix(merging.FEED_MARK).split("\n", 1))
        files.setdefault(name, []).append(one)
    return written
