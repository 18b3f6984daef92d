"""Documents as rows: the current content of each.

    from pyspark_headwater.documents import read_documents

    notes = read_documents(spark, "http://localhost:4437", "notes")
    texts = notes.selectExpr("document", "get_json_object(state, '$.content') AS text")
    texts.write.mode("overwrite").parquet("lake/notes")

The server folds a document into its state, starting from its last snapshot, in a separate process.
Each task requests its share one by one, so as many are folded at a time as tasks run. Every action
reads again; write the rows to a table to keep them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headwater.client.errors import StreamGone, StreamNotFound
from headwater.core.documents.addresses import DOCS, ROOT, is_document
from pyspark_headwater.options import Server, read_options
from pyspark_headwater.selection import Selection
from pyspark_headwater.wire import wire_to

SCHEMA: Final = "document string, offset string, state string"
_COLUMNS: Final = pa.schema(
    [("document", pa.string()), ("offset", pa.string()), ("state", pa.string())]
)


def read_documents(
    spark: SparkSession, endpoint: str, service: str, *, token: str | None = None
) -> DataFrame:
    """A row for each document of a service: its path, its end, and its content as JSON.

    Documents deleted meanwhile are left out.
    """
    options = {"endpoint": endpoint, **({} if token is None else {"token": token})}
    pattern = f"{ROOT}/{service}/{DOCS}/**"
    asked = read_options({**options, "streamPattern": pattern}, "batch read")
    found = Selection(asked, wire_to(asked.server)).listed()
    names = [(one.name,) for one in found if is_document(one.name)]
    frame = spark.createDataFrame(names, "document string").repartition(max(1, min(len(names), 64)))
    return frame.mapInArrow(partial(_states, asked.server, service), SCHEMA)


def _states(
    server: Server, service: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    wire, prefix = wire_to(server), f"{ROOT}/{service}/{DOCS}/"
    for batch in batches:
        for name in batch.column("document").to_pylist():
            path = name.removeprefix(prefix)
            try:
                offset, state = wire.document(service, path)
            except (StreamNotFound, StreamGone):
                continue
            row = {"document": path, "offset": offset, "state": state}
            yield pa.RecordBatch.from_pylist([row], schema=_COLUMNS)
