"""The pipeline `replay`: a table or files into a stream, once."""

from __future__ import annotations

import msgspec
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from pyspark_headwater.errors import InvalidOption
from pyspark_headwater.pipelines.delta import filesystem, open_table


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

    The same name and version again append nothing twice: `name` is the producer, `version` the run.
    Rows go through the driver in their order, so that a rerun does not depend on how Spark cuts
    them. An archive is replayed in the order of its stream.
    """
    frame = _rows(spark, source, form)
    if {"offset", "index", "value"} <= set(frame.columns):
        frame = frame.orderBy("offset", "index").select("value")
    writing = {
        "ordering": "global",
        "createStream": "true",
        **options,
        "producerId": name,
        "txnVersion": str(version),
    }
    frame.write.format("headwater").mode("append").options(**writing).save()


def _rows(spark: SparkSession, source: str, form: str) -> DataFrame:
    where, path = filesystem(source)
    is_directory = where.get_file_info(path).type == fs.FileType.Directory
    table = open_table(source) if is_directory else None
    if table is not None:
        files = table.file_uris()
        if not files:
            raise InvalidOption(f"the table {source} is empty")
        # The table knows more columns than its older files do.
        schema = StructType.fromJson(msgspec.json.decode(table.schema().to_json()))
        return spark.read.schema(schema).option("basePath", source).parquet(*files)
    return spark.read.format(form).load(source)
