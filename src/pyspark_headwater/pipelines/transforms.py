"""The pipelines' data transformations: functions from DataFrame to DataFrame, and nothing else."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from msgspec import UNSET
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.core.state_protocol import DELETE, Headers, NotARecord, RawRecord, read_record
from pyspark_headwater.pipelines.folding import Interval, Place

CHANGES: Final = (
    "stream string, offset string, index int, timestamp timestamp, type string, key string, "
    "operation string, control string, named_offset string, value string, at_us long, why string"
)
STATE: Final = (
    "type string, key string, value string, offset string, index int, timestamp timestamp"
)


def utc_date(moment: str) -> Column:
    """The UTC day of a time, whatever the session's time zone."""
    day_us = 24 * 60 * 60 * 1_000_000
    return F.date_from_unix_date(F.floor(F.unix_micros(moment) / day_us).cast("int"))


# --- archive -------------------------------------------------------------------------------------


def archived(messages: DataFrame) -> DataFrame:
    """Messages as archived: with the day they were stored."""
    return messages.select(
        "stream", "offset", "index", "timestamp", "value", utc_date("timestamp").alias("date")
    )


# --- State Protocol ------------------------------------------------------------------------------


def changes(messages: DataFrame, *, with_misfits: bool = False) -> DataFrame:
    """State Protocol messages, parsed. Values stay the JSON that was sent.

    For an invalid message, `why` says so, and with misfits its value is the whole message, in
    base64.
    """
    return messages.select("stream", "offset", "index", "timestamp", "value").mapInArrow(
        _take_misfits_apart if with_misfits else _take_apart, CHANGES
    )


def _take_misfits_apart(batches: Iterator[Any]) -> Iterator[Any]:
    return _take_apart(batches, with_misfits=True)


def _take_apart(batches: Iterator[Any], *, with_misfits: bool = False) -> Iterator[Any]:
    for batch in batches:
        texts = batch["value"].to_pylist()
        found = [_read(batch, row, text) for row, text in enumerate(texts)]
        records = [_NONE if isinstance(one, str) else one for one in found]
        parsed: dict[str, list[str | None]] = {
            "type": [one.type or None for one in records],
            "key": [one.key or None for one in records],
            "operation": [one.headers.operation for one in records],
            "control": [one.headers.control for one in records],
            "named_offset": [one.headers.offset for one in records],
            "value": [None if one.value is UNSET else bytes(one.value).decode() for one in records],
            "why": [one if isinstance(one, str) else None for one in found],
        }
        if with_misfits:
            parsed["value"] = [
                _in_base64(text) if isinstance(one, str) else value
                for one, value, text in zip(found, parsed["value"], texts, strict=True)
            ]
        columns = {name: batch[name] for name in ("stream", "offset", "index", "timestamp")}
        columns |= {name: pa.array(values, pa.string()) for name, values in parsed.items()}
        columns["at_us"] = batch["timestamp"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        yield pa.RecordBatch.from_pydict({name: columns[name] for name in _CHANGES_NAMES})


_NONE: Final = RawRecord(Headers())
_CHANGES_NAMES: Final = [column.split()[0] for column in CHANGES.split(", ")]


def _read(batch: Any, row: int, text: str) -> RawRecord | str:
    """A message as a record, or why it is invalid."""
    try:
        return read_record(text)
    except NotARecord as error:
        where = f"{batch['stream'][row]} at {batch['offset'][row]}, index {batch['index'][row]}"
        return f"not a State Protocol message: {where}: {error}"


def _in_base64(message: str | bytes) -> str:
    return b64encode(message.encode() if isinstance(message, str) else message).decode()


def only_changes(messages: DataFrame) -> DataFrame:
    """The same if all messages have to be changes: an invalid one fails the query."""
    return changes(messages).where(
        F.when(F.col("why").isNotNull(), F.raise_error("why").cast("boolean")).otherwise(True)
    )


def place() -> Column:
    return F.struct("offset", "index")


def within(intervals: Sequence[Interval]) -> Column:
    """Whether a message lies in one of the intervals."""
    found = F.lit(False)
    for one in intervals:
        inside = place() > _literal(one.after)
        if one.last is not None:
            inside = inside & (place() <= _literal(one.last))
        found = found | inside
    return found


def from_place(at: Place) -> Column:
    """Whether a message is at a place or after it."""
    return place() >= _literal(at)


def _literal(at: Place) -> Column:
    return F.struct(F.lit(at.offset).alias("offset"), F.lit(at.number).cast("int").alias("index"))


def latest(counting: DataFrame) -> DataFrame:
    """The last change of each entity; `operation` tells whether it is deleted."""
    fields = ("operation", "value", "offset", "index", "timestamp")
    last = F.max_by(F.struct(*fields), place()).alias("last")
    return (
        counting.where("control IS NULL")
        .groupBy("type", "key")
        .agg(last)
        .select("type", "key", *[f"last.{name}" for name in fields])
    )


def merged(state: DataFrame, last: DataFrame) -> DataFrame:
    """The state with the last changes applied.

    A change counts only if it is newer than what the state holds, so applying the same changes
    again, or older ones, changes nothing.
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


# --- rollup --------------------------------------------------------------------------------------

ROLLUP_SUMS: Final = ("messages", "bytes")


def rolled_up(messages: DataFrame, minutes: int) -> DataFrame:
    """The number of messages and bytes of each stream and entity in each time window."""
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
            utc_date("window.start").alias("date"),
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
