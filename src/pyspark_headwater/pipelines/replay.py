"""The pipeline `replay`: a table or files into a stream, once."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from functools import reduce
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyarrow import fs
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headwater.client.protocol.streams import check_producer_id
from pyspark_headwater.errors import InvalidOption
from pyspark_headwater.options import write_options
from pyspark_headwater.pipelines.feed import CHANGES_SCHEMA, message_of
from pyspark_headwater.pipelines.jobs import moment
from pyspark_headwater.pipelines.layout import plain_name
from pyspark_headwater.pipelines.open_tables import open_table
from pyspark_headwater.pipelines.parquet import filesystem, read_paths
from pyspark_headwater.pipelines.state import STATE_SCHEMA
from pyspark_headwater.wire import BEGINNING


def replay(
    spark: SparkSession,
    source: str,
    options: dict[str, str],
    *,
    form: str = "parquet",
    name: str,
    version: int,
) -> None:
    """Append the rows of a Delta table, or of files, to a stream.

    Repeating the same name and version appends nothing twice: `name` is the producer, `version` the
    run. Rows go through the driver in order, so that a rerun does not depend on how Spark
    partitions them. An archive is replayed in the order of its stream, and if that was created
    again, one stream after the other. A table of entities or of changes becomes State Protocol
    messages with its keys, in the order of their offsets. The first line of a CSV file names the
    columns.
    """
    frame = _rows(spark, source, form)
    if {*STATE_SCHEMA.fieldNames()} <= set(frame.columns):
        frame = _messages(frame.selectExpr(*_AS_INSERTS), _type_of(source))
    elif {*CHANGES_SCHEMA.fieldNames()} <= set(frame.columns):
        frame = _messages(frame, _type_of(source))
    elif {"offset", "index", "timestamp", "value"} <= set(frame.columns):
        frame = frame.orderBy(*_generation(frame), "offset", "index").select("value")
    writing = writing_options(options, name, version)
    frame.write.format("headwater").mode("append").options(**writing).save()


def writing_options(options: dict[str, str], name: str, version: int) -> dict[str, str]:
    """How the rows are written, or an error that says why they cannot be."""
    try:
        check_producer_id(name)
    except ValueError as error:
        raise InvalidOption(f"the name of the job is that of a producer: {error}") from None
    writing = {
        "ordering": "global",
        "createStream": "true",
        **options,
        "producerId": name,
        "txnVersion": str(version),
    }
    write_options(writing, "batch write")
    return writing


def check_source(source: str) -> None:
    """Refuse a missing source. Only Spark can expand a pattern of paths."""
    where, path = filesystem(source)
    if not set("*?[{") & set(path) and where.get_file_info(path).type == fs.FileType.NotFound:
        raise InvalidOption(f"there is nothing at {source}")


_CHANGE: Final = ("offset", "index", "key", "operation", "before", "after")
_AS_INSERTS: Final = (
    *("_offset AS offset", "_index AS index", "key", "'insert' AS operation"),
    *("CAST(NULL AS string) AS before", "_value AS after"),
)


def _type_of(source: str) -> str:
    """The entity type of a table."""
    return plain_name(posixpath.basename(source.rstrip("/")))


def _messages(changes: DataFrame, type_: str) -> DataFrame:
    """Changes as messages, in order."""

    def make(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            rows = zip(*(batch[name].to_pylist() for name in _CHANGE[2:]), strict=True)
            made = pa.array([message_of(type_, *row).decode() for row in rows], pa.string())
            places = [batch[name] for name in _CHANGE[:3]]
            yield pa.RecordBatch.from_arrays([*places, made], names=[*_CHANGE[:3], "value"])

    shape = "offset string, index int, key string, value string"
    ordered = changes.select(*_CHANGE).mapInArrow(make, shape).orderBy(*_CHANGE[:3])
    return ordered.select("value")


def _rows(spark: SparkSession, source: str, form: str) -> DataFrame:
    where, path = filesystem(source)
    is_directory = where.get_file_info(path).type == fs.FileType.Directory
    table = open_table(source) if is_directory else None
    if table is not None:
        paths = [str(one) for one in pa.table(table.get_add_actions())["path"].to_pylist()]
        if not paths:
            raise InvalidOption(f"the table {source} is empty")
        # The table has more columns than its older files.
        schema = StructType.fromJson(msgspec.json.decode(table.schema().to_json()))
        return read_paths(spark, source, schema, paths)
    reader = spark.read.format(form)
    if form == "csv":
        reader = reader.options(header="true", inferSchema="true")
    return reader.load(source)


def _generation(archive: DataFrame) -> list[Column]:
    """Which of the streams with the same name a row is from. All begin with the same offset.

    Empty if no beginning is there: the archive was started later, and there was only one stream.
    """
    begins = archive.where((F.col("offset") == BEGINNING) & (F.col("index") == 0))
    starts = sorted(row.at_us for row in begins.select(moment().alias("at_us")).collect())
    after = [F.when(moment() >= one, 1).otherwise(0) for one in starts]
    return [reduce(Column.__add__, after)] if after else []
