"""Where files are, and Parquet files as DataFrames.

Spark itself reads files on a disk. It can read an object store only with jars that do not come with
it, so tasks read files there with pyarrow, which finds its credentials in the environment.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

_ROWS: Final = 10_000


def filesystem(uri: str) -> tuple[Any, str]:
    """The file system of a directory, and its path there."""
    if "://" in uri:
        found = pafs.FileSystem.from_uri(uri)
        return found[0], found[1]
    return pafs.LocalFileSystem(), uri


def is_remote(uri: str) -> bool:
    """Whether an address is one that Spark itself cannot read."""
    return "://" in uri and not uri.startswith("file://")


def read_paths(
    spark: SparkSession, uri: str, schema: StructType, paths: Sequence[str]
) -> DataFrame:
    """Files of a table, by their paths within it. Missing columns are null."""
    if not paths:
        return spark.createDataFrame([], schema)
    if not is_remote(uri):
        files = [posixpath.join(uri, path) for path in paths]
        return spark.read.schema(schema).option("basePath", uri).parquet(*files)
    arrow = to_arrow_schema(schema, timezone="UTC")

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield from read_rows(uri, batch["path"].to_pylist(), arrow)

    names = spark.createDataFrame([(path,) for path in paths], "path string")
    return names.repartition(min(len(paths), 32)).mapInArrow(read, schema)


def read_rows(uri: str, paths: Sequence[str], schema: Any) -> Iterator[Any]:
    """The rows of some files, in a task."""
    where, root = filesystem(uri)
    for path in paths:
        yield from _rows_of(where, root, path, schema)


def _rows_of(where: Any, root: str, path: str, schema: Any) -> Iterator[Any]:
    """The rows of a file; the names of its directories hold the values that all rows share."""
    same = dict(one.split("=", 1) for one in posixpath.dirname(path).split("/") if "=" in one)
    with pq.ParquetFile(f"{root}/{path}", filesystem=where) as file:
        have = [one.name for one in schema if one.name in file.schema_arrow.names]
        for batch in file.iter_batches(_ROWS, columns=have):
            arrays = [_column(batch, one, same) for one in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(batch: Any, wanted: Any, same: dict[str, str]) -> Any:
    if wanted.name in batch.schema.names:
        return batch[wanted.name].cast(wanted.type)
    if wanted.name in same:
        return pa.array([same[wanted.name]] * batch.num_rows, pa.string()).cast(wanted.type)
    return pa.nulls(batch.num_rows, wanted.type)
