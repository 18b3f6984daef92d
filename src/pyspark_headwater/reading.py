"""What a task does: ranges of streams in, Arrow record batches out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, Final, TypeVar

import pyarrow as pa

from headwater.client.errors import ResponseError
from headwater.core.arrow import rows_of
from headwater.core.content_types import is_json
from headwater.core.frames import Frame
from headwater.core.offsets import Offset
from pyspark_headwater.errors import MalformedMessage, NotReadDirectly
from pyspark_headwater.options import ReadOptions
from pyspark_headwater.planning import RangesPartition, StreamRange
from pyspark_headwater.sealed import NotReadable, Take, read_sealed
from pyspark_headwater.selection import data_loss, is_data_loss
from pyspark_headwater.shapes import ParsedMessages, Shape, Shaped
from pyspark_headwater.wire import Wire, wire_to

# Arrow batches of this size cost Spark the least: smaller ones are mostly overhead.
ROWS_PER_BATCH: Final = 20_000
# Data this small takes longer to request than to send.
_SMALL_BYTES: Final = 64 * 1024
_SMALL_AT_ONCE: Final = 4

T = TypeVar("T")


def read_partition(options: ReadOptions, partition: RangesPartition, shape: Shape) -> Iterator[Any]:
    """The rows of a task, as record batches."""
    wire = wire_to(options.server)
    for one, batches in _under_way(
        partition.ranges, lambda one: _read_range(wire, one, options, shape)
    ):
        try:
            for found in batches:
                rows = found.batch if isinstance(found, Shaped) else found
                for start in range(0, rows.num_rows, ROWS_PER_BATCH):
                    part = rows.slice(start, ROWS_PER_BATCH)
                    yield part if isinstance(found, Shaped) else shape(one.stream, part)
        except ResponseError as error:
            if not is_data_loss(error):
                raise
            if options.fail_on_data_loss:
                raise data_loss(one.stream, error) from error


def _under_way(
    ranges: Sequence[StreamRange], read: Callable[[StreamRange], Iterator[Any]]
) -> Iterator[tuple[StreamRange, Iterator[Any]]]:
    """Each range with its data. Several small ones are fetched at a time."""
    small = [one for one in ranges if one.bytes <= _SMALL_BYTES]
    if len(small) < 2:
        yield from ((one, ahead(read(one))) for one in ranges)
        return
    with ThreadPoolExecutor(_SMALL_AT_ONCE, "headwater-read") as threads:
        left = iter(small)
        coming = deque(threads.submit(_whole, read, one) for one in islice(left, _SMALL_AT_ONCE))
        for one in ranges:
            if one.bytes > _SMALL_BYTES:
                yield one, ahead(read(one))
                continue
            first = coming.popleft()
            coming.extend(threads.submit(_whole, read, after) for after in islice(left, 1))
            yield one, _of(first)


def _whole(read: Callable[[StreamRange], Iterator[T]], one: StreamRange) -> list[T]:
    return [*read(one)]


def _of(coming: Future[list[T]]) -> Iterator[T]:
    yield from coming.result()


def ahead(batches: Iterator[T]) -> Iterator[T]:
    """The same items; while one is in use, the next is fetched."""
    with ThreadPoolExecutor(1, "headwater-read") as thread:
        coming = thread.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = thread.submit(next, batches, None)
            yield batch


def _taking(shape: Shape, stream: str, *, json: bool, headers: bool) -> Take:
    """What to make of a frame: rows for Spark, if the frame alone is enough."""
    whole = shape.whole if json and isinstance(shape, ParsedMessages) else None

    def take(frame: Frame, first: Offset) -> Any:
        shaped = None if whole is None else whole(stream, frame, first)
        if shaped is not None:
            return Shaped(shaped)
        return rows_of(frame, first, json=json, headers=headers)

    return take


def _read_range(wire: Wire, one: StreamRange, options: ReadOptions, shape: Shape) -> Iterator[Any]:
    headers = options.include_headers
    if options.sealed_reads == "server":
        yield from _from_server(wire, one.stream, one.offset, one.until, headers=headers)
        return
    found = wire.pieces(one.stream, one.offset, one.until)
    take = _taking(shape, one.stream, json=is_json(found.content_type), headers=headers)
    for piece in found.ranges:
        reached = piece.offset
        try:
            if piece.file is not None:
                for rows, after in read_sealed(piece.file, reached, piece.until, take):
                    reached = after
                    yield rows
        except NotReadable as error:
            if options.sealed_reads == "direct":
                raise NotReadDirectly(
                    f"sealedReads is direct, but a task cannot read {one.stream!r} from {reached} "
                    f"to {piece.until} by itself: {error}"
                ) from None
        if reached != piece.until:
            yield from _from_server(wire, one.stream, reached, piece.until, headers=headers)


def _from_server(
    wire: Wire, stream: str, offset: str, until: str, *, headers: bool
) -> Iterator[Any]:
    while offset != until:
        answer = wire.bulk(stream, offset, until, headers=headers)
        if answer.next_offset == offset:
            raise MalformedMessage(f"the server stopped at {offset} before {until}")
        offset = answer.next_offset
        with pa.ipc.open_stream(answer.data) as reader:
            yield from reader
