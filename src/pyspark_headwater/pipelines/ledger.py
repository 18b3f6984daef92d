"""The private state of `materialize`: its progress in each stream, and what is set aside.

It is one table for all streams, so that a batch ends with one commit, however many streams it has.
Rows are waiting changes (see `folding`), partitioned by stream; the progress in each stream is
recorded in the commits, as in other tables. It is committed after the tables of entities, which are
guarded by offsets, so a retried batch changes nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headwater.core.pipelines import STATE
from pyspark_headwater.pipelines import transforms
from pyspark_headwater.pipelines.delta import (
    Commit,
    commit_files,
    has_commit,
    parts_of,
    read_files,
    write_files,
)
from pyspark_headwater.pipelines.folding import Place
from pyspark_headwater.pipelines.jobs import PLACE_FIELDS, Seen, seen_by
from pyspark_headwater.pipelines.layout import Layout, safe_path
from pyspark_headwater.pipelines.open_tables import OpenTables

_SCHEMA: Final = StructType(
    [
        StructField("stream", StringType()),
        *PLACE_FIELDS,
        StructField("type", StringType()),
        StructField("key", StringType()),
        StructField("operation", StringType()),
        StructField("control", StringType()),
        StructField("named_offset", StringType()),
        StructField("value", StringType()),
        StructField("at_us", LongType()),
        StructField("why", StringType()),
        StructField("part", StringType()),
    ]
)
_NAME: Final = "changes"


@dataclass(frozen=True)
class Ledger:
    """The records of `materialize` below a root."""

    tables: OpenTables
    root: str

    @property
    def layout(self) -> Layout:
        # No stream has a directory with this prefix.
        return Layout(f"{self.root}/{STATE}/_aside", _SCHEMA, "part", name=_NAME, is_public=False)

    def has(self, commit: Commit) -> bool:
        return has_commit(self.tables.find(self.layout.uri(_NAME)), commit)

    def seen(self, stream: str) -> Seen | None:
        return seen_by(self.tables.find(self.layout.uri(_NAME)), stream)

    def waiting(self, streams: Iterable[str]) -> dict[str, list[str]]:
        """The files with the waiting changes of some streams, for those that have any."""
        table = self.tables.find(self.layout.uri(_NAME))
        parts = {} if table is None else parts_of(table, self.layout)
        return {one: parts[part] for one in streams if (part := safe_path(one)) in parts}

    def read(self, spark: SparkSession, paths: list[str]) -> DataFrame:
        """What waits, as changes."""
        return read_files(spark, self.layout, _NAME, paths).drop("part")

    def commit(
        self,
        every: DataFrame,
        aside: Mapping[str, Place],
        waited: Iterable[str],
        seen: Mapping[str, Seen],
        commit: Commit,
    ) -> None:
        """Record the progress of some streams; what waits now replaces what was waiting."""
        files = write_files(_set_aside(every, aside), self.layout) if aside else []
        replaced = {safe_path(one) for one in (*aside, *waited)}
        notes: dict[str, int] = {}
        for stream, end in seen.items():
            notes |= end.notes(stream)
        commit_files(self.tables, self.layout, _NAME, files, commit, replaced=replaced, notes=notes)


def _set_aside(every: DataFrame, aside: Mapping[str, Place]) -> DataFrame:
    """What to process again with the next batch."""
    parts = {stream: safe_path(stream) for stream in aside}

    def pick(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            columns = (batch[name].to_pylist() for name in ("stream", "offset", "index"))
            rows = [
                row
                for row, (stream, *place) in enumerate(zip(*columns, strict=True))
                if stream in aside and Place(*place) >= aside[stream]
            ]
            kept = batch.take(pa.array(rows, pa.int64()))
            named = pa.array([parts[one] for one in kept["stream"].to_pylist()], pa.string())
            yield kept.append_column("part", named)

    return every.mapInArrow(pick, f"{transforms.CHANGES}, part string")
