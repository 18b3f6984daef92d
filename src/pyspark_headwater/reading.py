"""What a task does: ranges of streams in, Arrow record batches out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import pyarrow as pa

from headwater.client.errors import ResponseError
from headwater.client.protocol import Response
from pyspark_headwater.errors import MalformedMessage
from pyspark_headwater.options import ReadOptions
from pyspark_headwater.planning import RangesPartition, StreamRange
from pyspark_headwater.selection import data_loss, is_data_loss
from pyspark_headwater.wire import Wire, wire_to

# Arrow batches of this size cost Spark the least: smaller ones are mostly overhead.
ROWS_PER_BATCH: Final = 20_000
_BULK_BYTES: Final = 4 * 2**20

Shape = Callable[[str, Any], Any]
"""Makes the rows that Spark was promised of a stream's rows as the server sends them."""


def read_partition(options: ReadOptions, partition: RangesPartition, shape: Shape) -> Iterator[Any]:
    """The rows of a task, as record batches."""
    wire = wire_to(options.server)
    for one in partition.ranges:
        try:
            for rows in _read_range(wire, one, headers=options.include_headers):
                for start in range(0, rows.num_rows, ROWS_PER_BATCH):
                    yield shape(one.stream, rows.slice(start, ROWS_PER_BATCH))
        except ResponseError as error:
            if not is_data_loss(error):
                raise
            if options.fail_on_data_loss:
                raise data_loss(one.stream, error) from error


def _read_range(wire: Wire, one: StreamRange, *, headers: bool) -> Iterator[Any]:
    """Record batches as the server sends them; the next request is under way meanwhile."""

    def fetch(offset: str) -> Response:
        return wire.bulk(one.stream, offset, one.until, headers=headers, max_bytes=_BULK_BYTES)

    with ThreadPoolExecutor(1, "headwater-read") as ahead:
        coming: Future[Response] | None = ahead.submit(fetch, one.offset)
        position = one.offset
        while coming is not None:
            answer = coming.result()
            reached = answer.next_offset or position
            if reached == position:
                raise MalformedMessage(f"the server stopped at {reached} before {one.until}")
            position = reached
            coming = None if reached == one.until else ahead.submit(fetch, reached)
            with pa.ipc.open_stream(answer.body) as reader:
                yield from reader
