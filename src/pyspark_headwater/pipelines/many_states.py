"""The current state of many streams, whichever of them have one.

A stream speaks the State Protocol if its first message does; all others are passed over. A message
that does not belong there ends the table of its stream, and of no other: what is behind it cannot
be applied without it. Such streams are noted beside the checkpoint, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec
from pyarrow import fs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.core.offsets import ZERO_SUFFIX
from pyspark_headwater.pipelines import transforms
from pyspark_headwater.pipelines.delta import Commit, filesystem, open_table
from pyspark_headwater.pipelines.state import Materialize, aside_layout

NOTE: Final = "left-out.json"


@dataclass(frozen=True)
class MaterializeMany:
    """Streams into tables of their current state.

    Attributes:
        root: where the tables are.
        directory: where it is noted which streams are left out.
    """

    root: str
    directory: str
    _speaking: dict[str, bool] = field(default_factory=dict, compare=False)

    def __call__(self, batch: DataFrame, commit: Commit) -> None:
        batch = batch.cache()
        try:
            speaking = self._find_speaking(batch) - left_out(self.directory).keys()
            if speaking:
                speaking -= self._leave_out(batch.where(F.col("stream").isin(sorted(speaking))))
            for stream in sorted(speaking):
                mine = batch.where(F.col("stream") == stream)
                Materialize(self.root, stream)(mine, commit)
        finally:
            batch.unpersist()

    def _find_speaking(self, batch: DataFrame) -> set[str]:
        """Those streams of a batch that speak the State Protocol."""
        is_first = F.col("offset").endswith(ZERO_SUFFIX) & (F.col("index") == 0)
        first = F.max(F.when(is_first, F.col("value"))).alias("first")
        rows = batch.groupBy("stream").agg(first).collect()
        return {row.stream for row in rows if self._speaks(row.stream, row.first)}

    def _speaks(self, stream: str, first: str | None) -> bool:
        if first is not None:
            self._speaking[stream] = transforms.is_change(first)
        elif stream not in self._speaking:
            layout = aside_layout(self.root, stream)
            self._speaking[stream] = open_table(layout.uri(layout.name)) is not None
        return self._speaking[stream]

    def _leave_out(self, messages: DataFrame) -> set[str]:
        """Note the streams that cannot continue."""
        found = transforms.misfits(messages).groupBy("stream").agg(F.min("why").alias("why"))
        bad = {row.stream: row.why for row in found.collect()}
        if bad:
            _note(self.directory, {**left_out(self.directory), **bad})
        return {*bad}


def left_out(directory: str) -> dict[str, str]:
    """The streams whose tables have ended, and why."""
    where, path = filesystem(directory)
    if where.get_file_info(f"{path}/{NOTE}").type != fs.FileType.File:
        return {}
    with where.open_input_stream(f"{path}/{NOTE}") as file:
        return msgspec.json.decode(file.read(), type=dict[str, str])


def _note(directory: str, streams: dict[str, str]) -> None:
    where, path = filesystem(directory)
    where.create_dir(path)
    with where.open_output_stream(f"{path}/{NOTE}") as file:
        file.write(msgspec.json.encode(streams))
