"""One table, many readers: Spark, DuckDB, Polars, DataFusion and PyIceberg find the same in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars
import pytest
from datafusion import SessionContext
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from headwater.cli.tables.lake import ask, rows_of
from pyspark_headwater.pipelines.archive import Archive, archive_layout
from pyspark_headwater.pipelines.delta import Commit, read_table
from pyspark_headwater.pipelines.open_tables import OpenTables
from pyspark_headwater.pipelines.state import Materialize, state_layout
from tests.spark.arrow_frames import batch_of, without_spark
from tests.spark.test_iceberg import newest
from tests.spark.test_pipelines import gone, put

STREAM = "users"
APPENDS = [
    [put("a", {"n": 1}), put("b", {"n": 2.5, "city": "Ulm"}), put("c", {"n": 3})],
    [gone("a"), put("c", {"n": 4, "city": "Bonn"})],
]
EXPECTED = [("b", 2.5, "Ulm"), ("c", 4.0, "Bonn")]
COLUMNS = ("key", "n", "city")
QUESTION = "SELECT key, n, city FROM {} ORDER BY key"


def rows(found: Any) -> list[tuple[Any, ...]]:
    """The rows of an Arrow table."""
    return [tuple(row.values()) for row in found.to_pylist()]


@pytest.mark.filterwarnings("ignore:Iceberg scan planning")
def test_every_engine_reads_the_same_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path)
    tables = OpenTables(iceberg=True)
    with monkeypatch.context() as patch:
        without_spark(patch)
        for job in (Archive(root, tables), Materialize(root, tables=tables)):
            for number, changes in enumerate(APPENDS):
                job(batch_of(STREAM, {number: changes}), Commit("q", number))
    state, archive = state_layout(root, STREAM), archive_layout(root)
    uri = state.uri("user")

    by_spark = read_table(spark, state, "user").select(*COLUMNS).orderBy("key")
    assert [tuple(row) for row in by_spark.collect()] == EXPECTED
    assert [*rows_of(ask(root, QUESTION.format('"user"')))] == EXPECTED
    assert polars.scan_delta(uri).select(*COLUMNS).sort("key").collect().rows() == EXPECTED
    context = SessionContext()
    context.register_table("users", DeltaTable(uri))
    assert rows(context.sql(QUESTION.format("users")).to_arrow_table()) == EXPECTED
    as_iceberg = newest(uri)
    assert rows(as_iceberg.scan().to_arrow().select(COLUMNS).sort_by("key")) == EXPECTED
    plan = polars.scan_iceberg(as_iceberg.metadata_location).select(*COLUMNS).sort("key")
    assert plan.collect().rows() == EXPECTED

    kept = [("a",), ("b",), ("c",), ("a",), ("c",)]
    by_spark = read_table(spark, archive, STREAM).orderBy("offset", "index").select("key")
    assert [tuple(row) for row in by_spark.collect()] == kept
    assert [*rows_of(ask(root, 'SELECT key FROM users ORDER BY "offset", "index"'))] == kept
    assert newest(archive.uri(STREAM)).scan().count() == len(kept)
