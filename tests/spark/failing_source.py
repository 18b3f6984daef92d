"""The format with a sink that breaks after its work is done, once for each batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from pyspark_headwater.options import WriteOptions, write_options
from pyspark_headwater.sink import StreamSink, Written
from pyspark_headwater.source import DefaultSource


class FailingSource(DefaultSource):
    """Takes the option `marks`: a directory where it notes which tasks have failed."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.marks = options["marks"]
        super().__init__({name: value for name, value in options.items() if name != "marks"})

    @classmethod
    def name(cls) -> str:
        return "failing_headwater"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return FailingSink(write_options(self.options, "stream write"), schema, self.marks)


class FailingSink(StreamSink):
    def __init__(self, options: WriteOptions, schema: StructType, marks: str) -> None:
        super().__init__(options, schema)
        self._marks = marks

    def write(self, iterator: Iterator[Any]) -> Written:
        written = super().write(iterator)
        mark = Path(self._marks) / f"{written.identity.epoch}-{written.partition}"
        if not mark.exists():
            mark.touch()
            raise OSError("the task is lost after its append")
        return written
