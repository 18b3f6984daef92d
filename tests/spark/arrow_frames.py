"""As much of a DataFrame as the jobs of pipelines use, in this process and without Spark.

The jobs hand functions on Arrow batches to Spark and collect what these report. Here the functions
are called at once, so a test can take in thousands of batches in the time Spark takes for one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql import Row

from pyspark_headwater.pipelines import archive, delta, merging, transforms
from pyspark_headwater.pipelines.delta import WrittenFile
from pyspark_headwater.pipelines.layout import Layout

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_TYPES: Final = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
_MESSAGES: Final = pa.schema(
    [
        ("stream", pa.string()),
        ("offset", pa.string()),
        ("index", pa.int32()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("value", pa.string()),
        ("date", pa.date32()),
    ]
)
Mapped = Callable[[Iterator[Any]], Iterator[Any]]


class ArrowFrame:
    """Rows that are there."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def select(self, *names: str) -> ArrowFrame:
        return ArrowFrame(self.table.select(names))

    def mapInArrow(self, function: Mapped, schema: str) -> ArrowFrame:
        shape = _schema(schema)
        made = [pa.Table.from_batches([one]) for one in function(iter(self.table.to_batches()))]
        return ArrowFrame(
            pa.concat_tables([one.select(shape.names).cast(shape) for one in made])
            if made
            else shape.empty_table()
        )

    def unionByName(self, other: ArrowFrame) -> ArrowFrame:
        return ArrowFrame(
            pa.concat_tables([self.table, other.table.select(self.table.schema.names)])
        )

    def repartition(self, *_: Any) -> ArrowFrame:
        return self

    def sortWithinPartitions(self, *names: str) -> ArrowFrame:
        order = [(name, "ascending") for name in names]
        return ArrowFrame(self.table.sort_by(order).combine_chunks())

    def cache(self) -> ArrowFrame:
        return self

    def unpersist(self) -> None:
        """Nothing is held that would have to be let go."""

    def collect(self) -> list[Row]:
        return [Row(**one) for one in self.table.to_pylist()]

    @property
    def sparkSession(self) -> Any:
        return SimpleNamespace(createDataFrame=_frame)


def _frame(rows: Sequence[tuple[Any, ...]], schema: str) -> ArrowFrame:
    shape = _schema(schema)
    columns = [*zip(*rows, strict=True)] if rows else [()] * len(shape)
    arrays = [pa.array(values, one.type) for values, one in zip(columns, shape, strict=True)]
    return ArrowFrame(pa.Table.from_arrays(arrays, schema=shape))


def _schema(text: str) -> Any:
    return pa.schema([(name, _TYPES[kind]) for name, kind in map(str.split, text.split(", "))])


def batch_of(stream: str, appends: Mapping[int, Sequence[Any]], day_s: int = 1) -> Any:
    """Appends by their number; each is `day_s` seconds after the one before."""
    rows = [
        {
            "stream": stream,
            "offset": f"{1:016d}_{number:016d}",
            "index": index,
            "timestamp": START + timedelta(seconds=number * day_s),
            "value": json.dumps(message, separators=(",", ":"), ensure_ascii=False),
            "date": (START + timedelta(seconds=number * day_s)).date(),
        }
        for number, messages in appends.items()
        for index, message in enumerate(messages)
    ]
    return ArrowFrame(pa.Table.from_pylist(rows, schema=_MESSAGES))


def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the jobs of `archive` and `materialize` take in `ArrowFrame`s."""
    task = SimpleNamespace(get=lambda: SimpleNamespace(taskAttemptId=lambda: 0))
    monkeypatch.setattr(merging, "TaskContext", task)
    monkeypatch.setattr(transforms, "archived", lambda frame: frame)
    monkeypatch.setattr(archive, "write_files", _write_files)


def _write_files(frame: ArrowFrame, layout: Layout) -> list[WrittenFile]:
    rows = frame.table.append_column("_table", frame.table["stream"])
    rows = ArrowFrame(rows).sortWithinPartitions("_table", "date", "offset", "index").table
    reports = [
        one
        for batch in delta._write_task(iter(rows.to_batches()), layout, 0)
        for one in batch.to_pylist()
    ]
    return [WrittenFile(**one) for one in reports]
