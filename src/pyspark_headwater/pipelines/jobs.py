"""What each pipeline does with a micro-batch.

A job gets the messages between two positions and the number of the batch, and leaves its tables as
if it had processed them once, however often that is retried. The query's id and the number mark
every commit.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame
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

from headwater.core.offsets import Offset, format_offset, parse_offset
from headwater.core.pipelines import ROLLUP
from pyspark_headwater.errors import OtherWriter
from pyspark_headwater.pipelines import transforms
from pyspark_headwater.pipelines.delta import (
    Commit,
    commit_files,
    has_commit,
    parts_of,
    read_files,
    write_files,
)
from pyspark_headwater.pipelines.layout import Layout
from pyspark_headwater.pipelines.open_tables import OpenTables
from pyspark_headwater.wire import BEGINNING

PLACE_FIELDS: Final = [
    StructField("offset", StringType()),
    StructField("index", IntegerType()),
    StructField("timestamp", TimestampType()),
]
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


ATTEMPTS_MAX: Final = 8
_PAUSE_S: Final = 0.1
_log: Final = logging.getLogger(__name__)


class Job(Protocol):
    """Processes micro-batches."""

    @property
    def tables(self) -> OpenTables: ...

    def __call__(self, batch: DataFrame, commit: Commit) -> None: ...


def with_patience(job: Job, batch: DataFrame, commit: Commit) -> None:
    """Process a batch, and start over if another writer was faster.

    Two pipelines for the same tables are wasteful, but nothing is stored twice: a table refuses a
    commit that was made without knowing the last one, and by then knows more about what is new.
    """
    for attempt in range(ATTEMPTS_MAX):
        try:
            return job(batch, commit)
        except OtherWriter as error:
            if attempt == ATTEMPTS_MAX - 1:
                raise OtherWriter(
                    f"{error}; it was faster {ATTEMPTS_MAX} times in a row. Let one pipeline write "
                    "to a table: stop the other one, or give it a root of its own"
                ) from None
            _log.warning("%s; the batch is made again", error)
            job.tables.forget()
            time.sleep(random.uniform(0, _PAUSE_S * 2**attempt))
    return None


# --- Progress of a table -------------------------------------------------------------------------
#
# Besides the batch, a commit records how far into each stream it goes. A query with a new
# checkpoint reads everything again, and then adds nothing up to there.
#
# Offsets grow within a stream, and those of a stream that was deleted and created again are greater
# than all of its predecessor's. Only the very first one is the same in all streams; there the time
# distinguishes a new stream from an old one that is read again.


class Seen(NamedTuple):
    """How far a table is in a stream: the offset of the last append, and its time."""

    offset: str
    at_us: int

    def notes(self, stream: str) -> dict[str, int]:
        """The same as numbers, which is all that a commit can carry."""
        parsed = parse_offset(self.offset)
        assert isinstance(parsed, Offset), "rows carry offsets, not names of them"
        numbers = (parsed.run, parsed.position, self.at_us)
        return dict(zip(_names_of_notes(stream), numbers, strict=True))


def _names_of_notes(stream: str) -> tuple[str, str, str]:
    name = f"headwater:{stream}"
    return (f"{name}:run", f"{name}:position", f"{name}:time")


def seen_by(table: DeltaTable | None, stream: str) -> Seen | None:
    if table is None:
        return None
    noted = [table.transaction_version(name) for name in _names_of_notes(stream)]
    known = [number for number in noted if number is not None]
    if len(known) < len(noted):
        return None
    run, position, at_us = known
    return Seen(format_offset(run, position), at_us)


def is_new(offset: str, at_us: int, seen: Seen) -> bool:
    """Whether a message is not yet in a table with this progress."""
    return offset > seen.offset or (offset == BEGINNING and at_us > seen.at_us)


def moment() -> Column:
    return F.unix_micros("timestamp")


class Span(NamedTuple):
    """The part of a stream in a batch: the offset of its first append, and its end."""

    first: str
    end: Seen


def spans_of(batch: DataFrame) -> dict[str, Span]:
    """The part of each stream in a batch."""
    last = F.max(F.struct("offset", moment().alias("at_us"))).alias("last")
    rows = batch.groupBy("stream").agg(F.min("offset").alias("first"), last).collect()
    return {row.stream: Span(row.first, Seen(*row.last)) for row in rows}


def unseen(batch: DataFrame, seen: Mapping[str, Seen]) -> DataFrame:
    """The new part of a batch, given a table's progress in some of the streams."""
    if not seen:
        return batch
    known = [(stream, done.offset, done.at_us) for stream, done in seen.items()]
    # A condition for each stream would take longer to plan than the batch takes to read.
    done = batch.sparkSession.createDataFrame(known, "stream string, _until string, _at_us long")
    news = F.col("_until").isNull() | _is_after(F.col("_until"), F.col("_at_us"))
    return batch.join(F.broadcast(done), "stream", "left").where(news).drop("_until", "_at_us")


def is_unseen(done: Seen) -> Column:
    """The same as `is_new`, for rows of one stream."""
    return _is_after(F.lit(done.offset), F.lit(done.at_us))


def _is_after(until: Column, at_us: Column) -> Column:
    is_of_a_new_stream = (F.col("offset") == BEGINNING) & (moment() > at_us)
    return (F.col("offset") > until) | is_of_a_new_stream


# --- rollup --------------------------------------------------------------------------------------


def rollup_layout(root: str) -> Layout:
    return Layout(root, ROLLUP_SCHEMA, "date", name=ROLLUP)


@dataclass(frozen=True)
class Rollup:
    """Messages and bytes for each time window, stream and entity type."""

    root: str
    minutes: int
    tables: OpenTables = field(default_factory=OpenTables, compare=False)

    def __call__(self, batch: DataFrame, commit: Commit) -> None:
        spark = batch.sparkSession
        layout = rollup_layout(self.root)
        table = self.tables.find(layout.uri(ROLLUP))
        if has_commit(table, commit):
            return
        batch = batch.cache()
        try:
            spans = spans_of(batch)
            overlap = {
                stream: seen
                for stream, span in spans.items()
                if (seen := seen_by(table, stream)) is not None and span.first <= seen.offset
            }
            new = transforms.rolled_up(unseen(batch, overlap), self.minutes)
            days = [str(row.date) for row in new.select("date").distinct().collect()]
            parts = {} if table is None else parts_of(table, layout)
            paths = [path for day in days for path in parts.get(day, [])]
            held = read_files(spark, layout, ROLLUP, paths)
            files = write_files(transforms.summed([new, held]).coalesce(1), layout)
            notes: dict[str, int] = {}
            for stream, span in spans.items():
                notes |= span.end.notes(stream)
            commit_files(self.tables, layout, ROLLUP, files, commit, replaced=days, notes=notes)
        finally:
            batch.unpersist()
