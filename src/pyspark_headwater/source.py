"""The format `headwater`: what Spark calls, in terms of the other modules."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headwater.client.errors import ResponseError
from headwater.client.protocol.extensions import Reach
from headwater.core.offsets import distance, is_reached
from pyspark_headwater.encodings import Decoding, messages_decoded
from pyspark_headwater.errors import InvalidOption
from pyspark_headwater.known_options import OPTIONS, Use
from pyspark_headwater.options import ReadOptions, WriteOptions, read_options, write_options
from pyspark_headwater.planning import Planner, RangesPartition
from pyspark_headwater.pushdown import is_switched_on, narrowed
from pyspark_headwater.reading import read_partition
from pyspark_headwater.selection import Offsets, Selection, data_loss, is_data_loss
from pyspark_headwater.shapes import (
    ParsedMessages,
    Shape,
    message_schema,
    messages_as_rows,
    names_sender,
)
from pyspark_headwater.sink import BatchSink, StreamSink
from pyspark_headwater.wire import BEGINNING, Wire, wire_to

# Spark asks for new offsets without a pause. Waiting here keeps an idle query quiet, and it still
# stops promptly.
IDLE_WAIT_S: Final = 3.0
_POLL_S: Final = 0.25
# This little is not worth querying the files that it may be in.
_AT_HAND_BYTES: Final = 256 * 1024


class DefaultSource(DataSource):
    """`spark.read`, `spark.readStream`, `df.write` and `df.writeStream` with format `headwater`.

    Examples
    --------
    >>> orders = (  # doctest: +SKIP
    ...     spark.readStream.format("headwater")
    ...     .option("endpoint", "http://localhost:4437")
    ...     .option("stream", "orders")
    ...     .load()
    ... )
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._has_own_schema = True

    @classmethod
    def name(cls) -> str:
        return "headwater"

    def schema(self) -> StructType:
        # Spark calls this only if the user gave no schema, and does not say what for.
        self._has_own_schema = False
        options = self._read_options(None)
        if options.encoding is not None:
            return Decoding.of(options.encoding).columns(options.mode)
        only_json = Selection(options, wire_to(options.server)).holds_only_json()
        return message_schema(json=only_json, headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._read_options("batch read", schema)
        kind = FilteringReader if is_switched_on() else BatchReader
        # Whether names of places begin with an underscore.
        parsed = self._has_own_schema or options.encoding is not None
        return kind(options, self._shape(schema, options), own_schema=parsed)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = self._read_options("stream read", schema)
        return StreamReader(options, self._shape(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchSink(self._write_options("batch write", overwrite), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StreamSink(self._write_options("stream write", overwrite), schema)

    def _write_options(self, use: Use, overwrite: bool) -> WriteOptions:
        if overwrite:
            raise InvalidOption("a stream is only ever appended to: use the mode append")
        return write_options(self.options, use)

    def _read_options(self, use: Use | None, schema: StructType | None = None) -> ReadOptions:
        if use is not None:
            options = read_options(self.options, use)
            return replace(options, include_headers=True) if self._names_sender(schema) else options
        names = {name.lower() for name in self.options}
        for_streams = {o.name.lower() for o in OPTIONS if o.uses == ("stream read",)}
        return read_options(self.options, "stream read" if names & for_streams else "batch read")

    def _names_sender(self, schema: StructType | None) -> bool:
        return schema is not None and self._has_own_schema and names_sender(schema)

    def _shape(self, schema: StructType, options: ReadOptions) -> Shape:
        if options.encoding is not None:
            return messages_decoded(schema, options.mode, Decoding.of(options.encoding))
        if self._has_own_schema:
            return ParsedMessages(schema, options.mode)
        return messages_as_rows(schema)


class BatchReader(DataSourceReader):
    """Everything between two places."""

    def __init__(self, options: ReadOptions, shape: Shape, *, own_schema: bool = False) -> None:
        self._options = options
        self._shape = shape
        self._own_schema = own_schema
        self._filters: list[Filter] = []

    def partitions(self) -> Sequence[InputPartition]:
        wire = wire_to(self._options.server)
        selection = Selection(self._options, wire)
        start, end = selection.starting(), selection.ending()
        start, end = narrowed(start, end, self._filters, wire, own_schema=self._own_schema)
        # Spark treats no partitions at all as one without a value.
        return Planner(self._options, wire).partitions(start, end) or [RangesPartition(())]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangesPartition)
        return read_partition(self._options, partition, self._shape)


class FilteringReader(BatchReader):
    """The same if Spark passes filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._filters = filters
        return filters


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Everything after a place, in micro-batches."""

    def __init__(self, options: ReadOptions, shape: Shape) -> None:
        self._options = options
        self._shape = shape
        self._target: Offsets | None = None
        self._taken_at: float | None = None
        self._admitted: tuple[Offsets, Offsets] | None = None

    # --- On the driver ---------------------------------------------------------------------------

    def initialOffset(self) -> Offsets:
        return self._selection.starting()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._selection.tails()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_messages is not None:
            return ReadMaxRows(self._options.max_messages)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        self._admitted = None
        tails = self._target if self._target is not None else self._news(start)
        if tails is None:
            return start
        limited = not isinstance(limit, ReadAllAvailable)
        end = Admission(self._options, self._wire).admit(start, tails, limited=limited)
        if end != start:
            self._taken_at = time.monotonic()
        self._admitted = (start, end)
        return end

    def reportLatestOffset(self) -> Offsets | None:
        return self._selection.tails()

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        is_known = self._admitted == (start, end)
        return Planner(self._options, self._wire).partitions(start, end, is_known=is_known)

    def _news(self, start: Offsets) -> Offsets | None:
        """The tails of the streams as soon as they are worth a micro-batch; None after a while."""
        deadline = time.monotonic() + IDLE_WAIT_S
        while True:
            tails = self._selection.tails()
            moved = any(start.get(name) != tail for name, tail in tails.items())
            # If a stream is gone, the query may have to fail.
            missing = self._options.fail_on_data_loss and start.keys() - tails.keys()
            least = self._least()
            if missing or (moved and least is None):
                return tails
            if moved and least is not None:
                # What came in the meantime is counted too, so it belongs to the micro-batch.
                waiting, reached = Admission(self._options, self._wire).waiting(start, tails)
                if waiting >= least:
                    return reached
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return None
            if self._options.pattern is None and len(tails) == 1 and not moved:
                ((name, tail),) = tails.items()
                self._wire.wait_for_news(name, tail, left_s)
            else:
                time.sleep(min(_POLL_S, left_s))

    def _least(self) -> int | None:
        """How many messages make a micro-batch; None if any do, or have waited long enough."""
        if self._taken_at is None:
            return None
        waited_s = time.monotonic() - self._taken_at
        return self._options.min_messages if waited_s < self._options.max_delay_s else None

    @property
    def _wire(self) -> Wire:
        return wire_to(self._options.server)

    @property
    def _selection(self) -> Selection:
        return Selection(self._options, self._wire)

    # --- On the executors ------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangesPartition)
        options = self._options
        size = sum(one.bytes for one in partition.ranges)
        if options.sealed_reads == "auto" and size <= _AT_HAND_BYTES:
            options = replace(options, sealed_reads="server")
        return read_partition(options, partition, self._shape)


class Admission:
    """How much of the available data the next micro-batch takes."""

    def __init__(self, options: ReadOptions, wire: Wire) -> None:
        self._options = options
        self._wire = wire

    def admit(self, start: Offsets, tails: Offsets, *, limited: bool) -> Offsets:
        end = dict(start)
        waiting: dict[str, Reach] = {}
        for stream in sorted(start.keys() | tails.keys()):
            offset = start.get(stream, BEGINNING)
            if stream not in tails:
                self._missing(stream)
            elif is_reached(tails[stream], offset):
                end[stream] = offset
            elif not limited and self._may_trust(offset, tails[stream]):
                end[stream] = tails[stream]
            else:
                found = self._reach(stream, offset)
                if found is not None:
                    waiting[stream] = found
                end[stream] = tails[stream]
        if limited and waiting:
            self._limit(start, end, waiting)
        return dict(sorted(end.items()))

    def _may_trust(self, offset: str, tail: str) -> bool:
        """Whether it is safe not to query what is waiting: for many streams, that takes long.

        If it is no longer there, the task that reads it reports that, and the query fails as it
        should.
        """
        lost_is_an_error = self._options.fail_on_data_loss and offset != BEGINNING
        return lost_is_an_error and distance(offset, tail) is not None

    def waiting(self, start: Offsets, tails: Offsets) -> tuple[int, Offsets]:
        """The number of messages that no micro-batch has read, and the tails they lead to."""
        messages, reached = 0, dict(tails)
        for name, tail in tails.items():
            if start.get(name) == tail:
                continue
            found = self._reach(name, start.get(name, BEGINNING))
            if found is not None:
                messages += found.messages
                reached[name] = found.offset
        return messages, reached

    def _limit(self, start: Offsets, end: Offsets, waiting: Mapping[str, Reach]) -> None:
        """Give every stream a share in proportion to what is waiting in it."""
        messages = _shares(self._options.max_messages, {s: r.messages for s, r in waiting.items()})
        sizes = _shares(self._options.max_bytes, {s: r.bytes for s, r in waiting.items()})
        for stream in waiting:
            if stream in messages or stream in sizes:
                found = self._wire.reach(
                    stream,
                    start.get(stream, BEGINNING),
                    messages=messages.get(stream),
                    size_bytes=sizes.get(stream),
                )
                end[stream] = min(end[stream], found.offset)

    def _reach(self, stream: str, offset: str) -> Reach | None:
        """What is waiting after an offset; None if that offset is no longer valid."""
        try:
            return self._wire.reach(stream, offset)
        except ResponseError as error:
            if not is_data_loss(error):
                raise
            if self._options.fail_on_data_loss:
                raise data_loss(stream, error) from error
            return None

    def _missing(self, stream: str) -> None:
        """A stream is no longer listed: query it to learn why."""
        if self._options.fail_on_data_loss:
            self._reach(stream, BEGINNING)


def _shares(limit: int | None, waiting: Mapping[str, int]) -> dict[str, int]:
    """A share of the limit for each stream; none if everything is within it."""
    total = sum(waiting.values())
    if limit is None or total <= limit:
        return {}
    return {stream: max(1, limit * size // total) for stream, size in waiting.items()}
