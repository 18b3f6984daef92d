"""The sink: every row is appended exactly once, whatever fails and however often it is retried.

Each task is its own producer: its id is that of the query and the number of the partition, its
epoch the number of the micro-batch, and its requests are numbered from 0. A task or a batch that is
run again sends the same requests, which the server recognises and drops; a task left over from an
older batch is refused because of its epoch. Spark keeps no state for this.

With `ordering=global` tasks append nothing. They hand their requests to the driver, which sends
them one by one, as one producer, when all tasks have succeeded. So rows keep the order of the
DataFrame, but pass through the driver's memory.

A batch write does the same with a name and a number from the user. Without those it has a random
name: repeated tasks write nothing twice, but running the job again does.

Messages with an id need no producer: a stream that checks ids takes each once.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from headwater.client import (
    Conflict,
    DuplicateId,
    ProducerTag,
    ResponseError,
    SequenceConflict,
    StaleEpoch,
    StreamNotFound,
)
from headwater.core.content_types import is_json
from pyspark_headwater.errors import InvalidOption, NotWritten, UnknownStream
from pyspark_headwater.options import WriteOptions
from pyspark_headwater.rows import Append, RowEncoder, cut
from pyspark_headwater.wire import Wire, wire_to

_BATCH_ID: Final = "streaming.sql.batchId"
_QUERY_ID: Final = "sql.streaming.queryId"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Identity:
    """The producer's identity: the name of a job or query, and the number of its run or batch."""

    name: str
    epoch: int


@dataclass
class Written(WriterCommitMessage):
    """What a task reports to the driver: its identity, and what is still to be appended."""

    identity: Identity
    partition: int
    appends: list[Append]


class Appender:
    """Sends the appends of one producer."""

    def __init__(self, options: WriteOptions, wire: Wire, content_type: str) -> None:
        self._options = options
        self._wire = wire
        self._content_type = content_type

    def send(self, appends: Iterable[Append], producer_id: str, epoch: int) -> None:
        for append in appends:
            self._send_one(append, ProducerTag(producer_id, epoch, append.seq))

    def _send_one(self, append: Append, producer: ProducerTag) -> None:
        try:
            self._append(append, producer)
        except StreamNotFound as error:
            if not self._options.create or append.seq > 0:
                raise _unknown(append.stream, self._wire) from error
            ensure_stream(self._options, self._wire, append.stream)
            self._append(append, producer)
        except DuplicateId:
            # The stream has it: that is what ids are for.
            log.info("%s holds message %s already", append.stream, append.id)
        except ResponseError as error:
            raise _refused(append, producer, error) from error

    def _append(self, append: Append, producer: ProducerTag) -> None:
        stream = self._wire.stream(append.stream, self._content_type)
        if append.id is None:
            stream.append_tagged(append.messages, producer)
        else:
            (message,) = append.messages
            stream.append([message] if is_json(self._content_type) else message, id=append.id)


def _refused(append: Append, producer: ProducerTag, error: ResponseError) -> Exception:
    where = f"{append.stream!r} does not take request {append.seq} of {producer.producer_id}"
    match error:
        case StaleEpoch():
            why = f"a later batch or run than {producer.epoch} has been written"
        case SequenceConflict():
            why = "the requests before it are not there; was the stream deleted and created again?"
        case Conflict():
            why = "it is closed, or of another type"
        case _:
            why = "the server refuses it"
    return NotWritten(f"{where}: {why} ({error})")


def _unknown(stream: str, wire: Wire) -> UnknownStream:
    return UnknownStream(
        f"there is no stream {stream!r} at {wire.server.root}; create it, or set createStream"
    )


def ensure_stream(options: WriteOptions, wire: Wire, stream: str) -> str:
    """The type of a stream, which is created if it is missing and that is enabled."""
    info = wire.info(stream)
    if info is None and not options.create:
        raise _unknown(stream, wire)
    if info is None:
        ids = {} if options.id_column is None else {"Stream-Unique-Ids": "succeed"}
        wire.stream(stream).ensure(content_type=options.content_type, headers=ids)
        return options.content_type
    if options.id_column is not None and not wire.checks_ids(stream):
        raise InvalidOption(
            f"messageIdColumn needs a stream that checks ids, and {stream!r} does not"
        )
    return info.content_type or ""


class _Sink:
    """What batch and stream writers share."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        wire = wire_to(options.server)
        self._content_type = (
            options.content_type
            if options.stream is None
            else ensure_stream(options, wire, options.stream)
        )
        self._encoder = RowEncoder(options, schema, self._content_type)

    def _write(self, batches: Iterator[Any], identity: Identity, partition: int) -> Written:
        appends = cut(
            self._encoder.messages(batches),
            json=is_json(self._content_type),
            rows_max=self._options.rows_per_request,
        )
        if self._options.ordering == "global":
            return Written(identity, partition, list(appends))
        self._appender().send(appends, f"{identity.name}/{partition}", identity.epoch)
        return Written(identity, partition, [])

    def _commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Append what the tasks left to the driver, in the order of the partitions."""
        written = sorted(
            (one for one in messages if isinstance(one, Written)), key=lambda one: one.partition
        )
        if not written or self._options.ordering != "global":
            return
        identity = written[0].identity
        self._appender().send(_renumbered(written), identity.name, identity.epoch)

    def _appender(self) -> Appender:
        return Appender(self._options, wire_to(self._options.server), self._content_type)


def _renumbered(written: Iterable[Written]) -> Iterator[Append]:
    """The appends of all tasks with one sequence of numbers for each stream."""
    next_seq: dict[str, int] = {}
    for one in written:
        for append in one.appends:
            seq = next_seq.get(append.stream, 0)
            next_seq[append.stream] = seq + 1
            yield Append(append.stream, seq, append.messages, append.id)


class StreamSink(_Sink, DataSourceStreamArrowWriter):
    """`df.writeStream`."""

    def write(self, iterator: Iterator[Any]) -> Written:
        task = TaskContext.get()
        assert task is not None, "a writer runs in a task"
        query, batch = task.getLocalProperty(_QUERY_ID), task.getLocalProperty(_BATCH_ID)
        assert query is not None, "a streaming task knows its query"
        assert batch is not None, "a streaming task knows its batch"
        return self._write(iterator, Identity(query, int(batch)), task.partitionId())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to undo: Spark retries the batch, which continues where it stopped."""


class BatchSink(_Sink, DataSourceArrowWriter):
    """`df.write`."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        if options.producer_id is None:
            log.warning(
                "headwater: without producerId and txnVersion, running this job again appends "
                "its rows again"
            )
        self._identity = Identity(
            options.producer_id or f"spark-{uuid.uuid4()}", options.txn_version or 0
        )

    def write(self, iterator: Iterator[Any]) -> Written:
        task = TaskContext.get()
        assert task is not None, "a writer runs in a task"
        return self._write(iterator, self._identity, task.partitionId())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing to undo: what is in the stream stays, and is not appended again."""
