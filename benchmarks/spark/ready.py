"""A source that only hands over ready Arrow batches: the upper bound for any source in Python."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
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
    """Options: ``rows``, and the ``file`` that holds a batch of them."""

    @classmethod
    def name(cls) -> str:
        return "ready-batches"

    def schema(self) -> StructType:
        return message_schema(json=True, headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(int(self.options["rows"]), self.options["file"])


class _Reader(DataSourceReader):
    def __init__(self, rows: int, file: str) -> None:
        self._rows = rows
        self._file = file

    def partitions(self) -> Sequence[InputPartition]:
        starts = range(0, self._rows, _ROWS_PER_TASK)
        return [InputPartition(min(_ROWS_PER_TASK, self._rows - start)) for start in starts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        with pa.memory_map(self._file) as file:
            batch = pa.ipc.open_file(file).get_batch(0)
        for start in range(0, partition.value, ROWS_PER_BATCH):
            yield batch.slice(0, partition.value - start)


def write_batch(file: Path, message_bytes: int) -> None:
    """Build the batch once, so that no task has to."""
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
    with pa.ipc.new_file(str(file), schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
