"""What the pipelines do to data: functions from DataFrame to DataFrame, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from msgspec import UNSET
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from headwater.core.state_protocol import DELETE, NotARecord, RawRecord, read_record
from pyspark_headwater.errors import MalformedMessage
from pyspark_headwater.pipelines.columns import COLUMNS_MAX, Columns, Kind, news_in
from pyspark_headwater.pipelines.folding import Place, Stretch

BUCKETS: Final = 16
CHANGES: Final = (
    "stream string, offset string, index int, timestamp timestamp, type string, key string, "
    "operation string, control string, named_offset string, value string"
)
STATE: Final = (
    "type string, key string, value string, offset string, index int, timestamp timestamp"
)
_BOOKKEEPING: Final = ("value", "offset", "index", "timestamp")
NEWS: Final = "type string, field string, kinds int, known int, n long"


# --- archive -------------------------------------------------------------------------------------


def archived(messages: DataFrame) -> DataFrame:
    """Messages as the archive keeps them: with the day they were stored."""
    return messages.select(
        "stream", "offset", "index", "timestamp", "value", F.to_date("timestamp").alias("date")
    )


# --- State Protocol ------------------------------------------------------------------------------


def changes(messages: DataFrame) -> DataFrame:
    """Messages of the State Protocol, taken apart. Values stay the JSON that was sent."""
    return messages.select("stream", "offset", "index", "timestamp", "value").mapInArrow(
        _take_apart, CHANGES
    )


def _take_apart(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        found = [_read(batch, row, text) for row, text in enumerate(batch["value"].to_pylist())]
        parsed = {
            "type": [one.type or None for one in found],
            "key": [one.key or None for one in found],
            "operation": [one.headers.operation for one in found],
            "control": [one.headers.control for one in found],
            "named_offset": [one.headers.offset for one in found],
            "value": [None if one.value is UNSET else bytes(one.value).decode() for one in found],
        }
        columns = {name: batch[name] for name in ("stream", "offset", "index", "timestamp")}
        columns |= {name: pa.array(values, pa.string()) for name, values in parsed.items()}
        yield pa.RecordBatch.from_pydict(columns)


def _read(batch: Any, row: int, text: str) -> RawRecord:
    try:
        return read_record(text)
    except NotARecord as error:
        where = f"{batch['stream'][row]} at {batch['offset'][row]}, index {batch['index'][row]}"
        raise MalformedMessage(f"not a State Protocol message: {where}: {error}") from None


def is_change(text: str) -> bool:
    """Whether a message is one of the State Protocol."""
    try:
        read_record(text)
    except NotARecord:
        return False
    return True


def misfits(messages: DataFrame) -> DataFrame:
    """The messages that are none of the State Protocol, and why."""
    return messages.select("stream", "offset", "index", "value").mapInArrow(
        _find_misfits, "stream string, why string"
    )


def _find_misfits(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        found: dict[str, list[str]] = {"stream": [], "why": []}
        for row, text in enumerate(batch["value"].to_pylist()):
            try:
                _read(batch, row, text)
            except MalformedMessage as error:
                found["stream"].append(batch["stream"][row].as_py())
                found["why"].append(str(error))
        columns = {name: pa.array(values, pa.string()) for name, values in found.items()}
        yield pa.RecordBatch.from_pydict(columns)


def place() -> Column:
    return F.struct("offset", "index")


def within(stretches: Sequence[Stretch]) -> Column:
    """Whether a message lies in one of the stretches."""
    found = F.lit(False)
    for one in stretches:
        inside = place() > _literal(one.after)
        if one.last is not None:
            inside = inside & (place() <= _literal(one.last))
        found = found | inside
    return found


def from_place(at: Place) -> Column:
    """Whether a message is the one at a place or comes later."""
    return place() >= _literal(at)


def _literal(at: Place) -> Column:
    return F.struct(F.lit(at.offset).alias("offset"), F.lit(at.number).cast("int").alias("index"))


def latest(counting: DataFrame) -> DataFrame:
    """The last change of each entity; `operation` tells whether it is gone."""
    fields = ("operation", "value", "offset", "index", "timestamp")
    last = F.max_by(F.struct(*fields), place()).alias("last")
    return (
        counting.where("control IS NULL")
        .groupBy("type", "key")
        .agg(last)
        .select("type", "key", *[f"last.{name}" for name in fields])
    )


def merged(state: DataFrame, last: DataFrame) -> DataFrame:
    """The state with the last changes in it.

    A change counts only if it is younger than what the state holds, so applying the same changes
    once more, or older ones, changes nothing.
    """
    held, new = state.alias("held"), last.alias("new")
    same = (F.col("held.type") == F.col("new.type")) & (F.col("held.key") == F.col("new.key"))
    both = held.join(new, same, "full_outer")
    younger = F.col("new.key").isNotNull() & (
        F.col("held.key").isNull()
        | (F.struct("new.offset", "new.index") > F.struct("held.offset", "held.index"))
    )
    columns = ("type", "key", "value", "offset", "index", "timestamp")
    picked = [
        F.when(younger, F.col(f"new.{name}")).otherwise(F.col(f"held.{name}")).alias(name)
        for name in columns
    ]
    gone = younger & (F.col("new.operation") == DELETE)
    return both.where(~gone).select(*picked)


def bucketed(state: DataFrame) -> DataFrame:
    """With the part of the table that an entity belongs to: the part that a change rewrites."""
    kept = [F.col(name).alias(f"_{name}") for name in _BOOKKEEPING]
    return state.select(
        "type", "key", *kept, (F.crc32("key") % BUCKETS).cast("int").alias("_bucket")
    )


def as_state(table: DataFrame, type_: str) -> DataFrame:
    """Rows of a table of one type as they were before they were put there."""
    kept = [F.col(f"_{name}").alias(name) for name in _BOOKKEEPING]
    return table.select(F.lit(type_).alias("type"), "key", *kept)


def new_fields(last: DataFrame, known: Mapping[str, Columns]) -> DataFrame:
    """The fields in changed values for which the tables have no column, or none of the right type.

    There are as many for a type as a table has columns at most: those of columns that have to
    change first, then the most frequent ones.
    """
    kinds = {name: {one.field: one.kinds for one in columns} for name, columns in known.items()}

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield _news(batch, kinds)

    found = (
        last.where((F.col("operation") != DELETE) & F.col("value").isNotNull())
        .select("type", "value")
        .mapInArrow(look, NEWS)
        .groupBy("type", "field")
        .agg(F.bit_or("kinds").alias("kinds"), F.max("known").alias("known"), F.sum("n").alias("n"))
    )
    order = Window.partitionBy("type").orderBy(F.desc("known"), F.desc("n"), "field")
    ranked = found.withColumn("rank", F.row_number().over(order))
    return ranked.where(F.col("rank") <= COLUMNS_MAX).select("type", "field", "kinds")


def _news(batch: Any, known: Mapping[str, Mapping[str, Kind]]) -> Any:
    by_type: dict[str, list[str]] = {}
    for type_, value in zip(batch["type"].to_pylist(), batch["value"].to_pylist(), strict=True):
        by_type.setdefault(type_, []).append(value)
    rows = [
        (type_, field, kinds, int(field in known[type_]), count)
        for type_, values in by_type.items()
        for field, (kinds, count) in news_in(values, known[type_]).items()
    ]
    columns = zip(*rows, strict=True) if rows else [()] * 5
    kinds = (pa.string(), pa.string(), pa.int32(), pa.int32(), pa.int64())
    arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=["type", "field", "kinds", "known", "n"])


# --- rollup --------------------------------------------------------------------------------------

ROLLUP_SUMS: Final = ("messages", "bytes")


def rolled_up(messages: DataFrame, minutes: int) -> DataFrame:
    """How many messages and bytes each stream and entity had in each window of time."""
    entity = F.get_json_object("value", "$.type")
    window = F.window("timestamp", f"{minutes} minutes")
    return (
        messages.groupBy(window.alias("window"), "stream", entity.alias("entity"))
        .agg(F.count("*").alias("messages"), F.sum(F.octet_length("value")).alias("bytes"))
        .select(
            F.col("window.start").alias("window_start"),
            "stream",
            F.coalesce("entity", F.lit("")).alias("entity"),
            "messages",
            "bytes",
            F.to_date("window.start").alias("date"),
        )
    )


def summed(parts: Iterable[DataFrame]) -> DataFrame:
    """Several rollups of different messages as one."""
    first, *others = parts
    for other in others:
        first = first.unionByName(other)
    keys = ("window_start", "stream", "entity", "date")
    return first.groupBy(*keys).agg(*[F.sum(name).alias(name) for name in ROLLUP_SUMS])


def with_rates(rollup: DataFrame, minutes: int) -> DataFrame:
    """The same with messages and bytes per second."""
    seconds = F.lit(minutes * 60)
    return rollup.withColumn("messages_per_s", F.col("messages") / seconds).withColumn(
        "bytes_per_s", F.col("bytes") / seconds
    )
