"""A source that only hands over ready Arrow batches: what is faster than this is not Python."""

import random
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from benchmarks.spark.records import STREAM, record
from headwater.core.offsets import format_offset
from pyspark_headwater.reading import ROWS_PER_BATCH
from pyspark_headwater.shapes import message_schema

_ROWS_PER_TASK = 4 * ROWS_PER_BATCH


class ReadySource(DataSource):
    """Options: ``rows``, and ``bytes`` of each message."""

    @classmethod
    def name(cls) -> str:
        return "ready-batches"

    def schema(self) -> StructType:
        return message_schema(json=True, headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(int(self.options["rows"]), int(self.options["bytes"]))


class _Reader(DataSourceReader):
    def __init__(self, rows: int, message_bytes: int) -> None:
        self._rows = rows
        self._message_bytes = message_bytes

    def partitions(self) -> Sequence[InputPartition]:
        starts = range(0, self._rows, _ROWS_PER_TASK)
        return [InputPartition(min(_ROWS_PER_TASK, self._rows - start)) for start in starts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        batch = _batch(self._message_bytes)
        for start in range(0, partition.value, ROWS_PER_BATCH):
            yield batch.slice(0, partition.value - start)


@cache
def _batch(message_bytes: int) -> Any:
    """Made once in each worker, which lives on from task to task."""
    chance, numbers = random.Random(2), range(ROWS_PER_BATCH)
    columns = [
        [STREAM] * ROWS_PER_BATCH,
        [format_offset(1, number // 1_000) for number in numbers],
        [number % 1_000 for number in numbers],
        [1_763_200_000_000_000] * ROWS_PER_BATCH,
        [record(number, message_bytes, chance).decode() for number in numbers],
    ]
    schema = to_arrow_schema(message_schema(json=True, headers=False), timezone="UTC")
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
