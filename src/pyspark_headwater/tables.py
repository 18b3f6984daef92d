"""Current tables: the archive of a stream and its live end as one DataFrame.

    hw = HeadwaterTables(spark, "http://localhost:4437", "/data/lake")
    hw.table("orders").where("date > '2026-01-01'").count()

The archive is read up to its last append and the server from there on. An append is in the archive
as a whole or not at all, so there is neither gap nor overlap, however far behind the archive is.
Both ends are determined when a table is requested, so it stays the same however often it is used.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.client.errors import ResponseError
from pyspark_headwater.options import read_options
from pyspark_headwater.pipelines import transforms
from pyspark_headwater.pipelines.archive import archive_layout
from pyspark_headwater.pipelines.delta import parts_of, read_files, read_table
from pyspark_headwater.pipelines.jobs import Seen, is_unseen, rollup_layout, seen_by
from pyspark_headwater.pipelines.open_tables import open_table
from pyspark_headwater.pipelines.state import state_layout
from pyspark_headwater.selection import is_data_loss, is_gone
from pyspark_headwater.wire import BEGINNING, wire_to


@dataclass(frozen=True)
class HeadwaterTables:
    """The tables of the pipelines below one root, with what the server has beyond that."""

    spark: SparkSession
    endpoint: str
    root: str
    token: str | None = None

    def table(self, stream: str) -> DataFrame:
        """All messages of a stream: `stream`, `offset`, `index`, `timestamp`, `value`, `date`."""
        layout = archive_layout(self.root)
        archive = open_table(layout.uri(stream))
        parts = {} if archive is None else parts_of(archive, layout)
        paths = [path for part in parts.values() for path in part]
        live = self._live(stream, seen_by(archive, stream))
        if live is not None and not paths:
            return live
        past = read_files(self.spark, layout, stream, paths).withColumn("stream", F.lit(stream))
        past = past.select("stream", *layout.schema.fieldNames())
        return past if live is None else past.unionByName(live)

    def _live(self, stream: str, seen: Seen | None) -> DataFrame | None:
        """What the server has after the last append of the archive; None if there is nothing."""
        options = {"endpoint": self.endpoint, "stream": stream}
        if self.token is not None:
            options["token"] = self.token
        only_new = F.lit(True)
        if seen is not None:
            wire = wire_to(read_options(options, "batch read").server)
            try:
                reach = wire.reach(stream, seen.offset, messages=1)
            except ResponseError as error:
                if not is_data_loss(error):
                    raise
                if is_gone(error):
                    return None
                # It is no longer kept, or the stream was created again.
                only_new = is_unseen(seen)
            else:
                options["endingOffsets"] = _at(stream, reach.tail)
                if seen.offset == BEGINNING:
                    # All streams begin with the same offset, so it does not identify the stream.
                    only_new = is_unseen(seen)
                elif reach.messages_behind == 0:
                    return None
                else:
                    options["startingOffsets"] = _at(stream, reach.offset)
        live = self.spark.read.format("headwater").options(**options).load()
        return transforms.archived(live.where(only_new))

    def state(self, stream: str, type: str, schema: str | None = None) -> DataFrame:
        """The current state of one entity type, as of the last run of `materialize`.

        The fields of the values are columns next to `key`: as in the table, or according to a
        schema.
        """
        rows = read_table(self.spark, state_layout(self.root, stream), type).drop("_bucket")
        if schema is None:
            return rows
        return rows.select("key", F.from_json("_value", schema).alias("fields")).select(
            "key", "fields.*"
        )

    def rollup(self, minutes: int = 1) -> DataFrame:
        """Messages, bytes and rates for each window, stream and entity."""
        layout = rollup_layout(self.root)
        return transforms.with_rates(read_table(self.spark, layout, "rollup"), minutes)


def _at(stream: str, offset: str) -> str:
    return msgspec.json.encode({stream: offset}).decode()
