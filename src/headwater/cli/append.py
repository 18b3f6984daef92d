"""`headwater append`: from arguments, files and pipes into a stream.

There are three ways to write, by what can go wrong in between:

* One message or one raw piece is one request, sent once. If its answer is lost, nobody knows
  whether it was stored, and the command says so.
* Lines go through a producer with a name of its own for this run. It batches what comes within a
  few milliseconds, keeps several requests under way and repeats what fails, and the server drops
  repetitions. If the whole command fails, running it again stores again what was stored before.
* With `--producer ID` a whole run can be repeated. The server takes request number n of an ID and
  an epoch once, whatever is in it. So request n has to hold the same messages in every run. If
  line n is request n, that is so as long as the input begins the same: it may have been cut off
  the first time, or have grown since. With `--batch` a request holds several lines, cut by their
  number and size alone, never by time. Then the input has to be complete and the same every time,
  because a last batch that was shorter before would be taken for the same. Other input under the
  same ID needs a higher epoch.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from headwater.cli import inputs, remote
from headwater.cli.exits import CliError, usage
from headwater.cli.inputs import Message
from headwater.cli.output import Json, Progress, size, write_json
from headwater.cli.records import AppendRecord
from headwater.cli.shell import say
from headwater.cli.target import PATIENT_S, Target, with_target
from headwater.cli.units import Unit
from headwater.client import (
    Delivery,
    Headwater,
    HeadwaterError,
    Producer,
    ProducerOptions,
    Receipt,
    Stream,
)

BATCH_BYTES: Final = 1 << 20
_FOREVER_S: Final = 1e9
_PROGRESS_EVERY: Final = 256


@with_target
def append(
    target: Target,
    stream: remote.StreamPath,
    message: Annotated[
        str | None,
        typer.Argument(metavar="MESSAGE", help="A message; without it, messages come from stdin."),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file", exists=True, dir_okay=False, help="Read this instead of stdin; repeatable."
        ),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="All input is one append, byte by byte, not lines.")
    ] = False,
    producer: Annotated[
        str | None,
        typer.Option(
            "--producer", metavar="ID", help="Write under this name, so that repeating is safe."
        ),
    ] = None,
    epoch: Annotated[
        int | None,
        typer.Option(
            "--epoch",
            min=0,
            metavar="NUMBER",
            help="Number of the input under that name: the same to repeat it, a higher one for "
            "other input.",
            show_default=False,
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            min=1,
            max=100_000,
            metavar="COUNT",
            help="Lines per request with --producer: faster, for input that is complete and stays "
            "the same (default: 1).",
            show_default=False,
        ),
    ] = None,
    id: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="ID", help="The id of MESSAGE, in a stream that takes each id once."
        ),
    ] = None,
    seq: Annotated[
        str | None,
        typer.Option(
            "--seq", metavar="TEXT", help="Refuse MESSAGE unless this sorts after the last one."
        ),
    ] = None,
    close: Annotated[bool, typer.Option("--close", help="Close the stream afterwards.")] = False,
    json: Json = False,
) -> None:
    """Append messages to a stream.

    Without MESSAGE, every line of stdin is a message: a JSON value in a
    JSON stream, a line of text (with its line feed) in any other. Lines are
    sent as they come. With --raw, the whole input is one append; in a JSON
    stream, the elements of a top-level array are then separate messages.

    With --producer and --epoch, the same command can be run again until it
    succeeds, also when its input has grown meanwhile, and every line is
    stored once. Other input under the same ID needs a higher --epoch: a
    date or a run number will do.

    With --id, a single message can be sent again: a stream made with
    --unique-ids has it once.

    Examples:

      headwater append orders '{"id": 1}'
      tail -f app.log | headwater append logs
      headwater append orders --file orders.ndjson --producer import --epoch 7
      headwater append photos --raw < cat.jpg
      headwater append payments '{"amount": 5}' --id payment-17
    """
    files = file or []
    if (id is not None or seq is not None) and (message is None or producer is not None):
        raise usage("--id and --seq are for one MESSAGE, without --producer")
    if message is not None and (files or raw):
        raise usage("give MESSAGE, --file or --raw, not several of them")
    if producer is None and (epoch is not None or batch is not None):
        raise usage("--epoch and --batch belong to --producer")
    if producer is not None and epoch is None:
        raise usage(
            "--producer needs --epoch NUMBER: the same number repeats an earlier run, a higher one "
            "is for other input"
        )
    if producer is not None and not (producer.isascii() and producer.isprintable()):
        raise usage("the ID of a producer is a name in ASCII")
    with target.connect(stream=stream) as client:
        # Is it there, and what is it made of? This fails quickly; the rest is patient.
        info = remote.open_stream(client, stream).head()
    unit = Unit.of(info.content_type)
    whole = message is not None or raw
    messages = _one_piece(message, files, unit) if whole else inputs.read_messages(files, unit)
    tag = None if producer is None else Tag(producer, epoch or 0, batch or 1, whole)
    job = Job(stream, close=close)
    total = inputs.total_bytes(files)
    shown = not sys.stdin.isatty() or bool(files)
    with (
        target.connect(patience_s=PATIENT_S, stream=stream) as client,
        Progress(f"appending to {stream}", total=total, visible=shown) as progress,
    ):
        handle = remote.open_stream(client, stream, info.content_type)
        if tag is not None and close and info.closed:
            job.recognise(client, handle, tag, messages)
        elif whole and tag is None:
            job.send_plainly(handle, [message.data for message in messages], id=id, seq=seq)
        else:
            job.send(handle, tag, messages, progress)
    job.report(tag, json=json)


def _one_piece(message: str | None, files: Sequence[Path], unit: Unit) -> list[Message]:
    """The messages of a single append."""
    if message is None:
        data = inputs.read_whole(files)
        pieces = inputs.split_json(data) if unit is Unit.MESSAGE else [data]
    elif unit is Unit.MESSAGE:
        pieces = [inputs.check_json(os.fsencode(message), "the message")]
    else:
        # A line of its own in a text stream; just these bytes in any other.
        pieces = [os.fsencode(message) + (b"\n" if unit is Unit.LINE else b"")]
    if not any(pieces):
        raise usage("there is nothing to append; the input is empty")
    return [Message(piece, 0) for piece in pieces]


@dataclass(frozen=True, slots=True)
class Tag:
    """What makes a run repeatable."""

    producer_id: str
    epoch: int
    batch_messages: int
    whole: bool

    def cuts(self) -> Cuts:
        limit = sys.maxsize if self.whole else BATCH_BYTES
        return Cuts(sys.maxsize if self.whole else self.batch_messages, limit)

    def options(self, messages: Iterable[Message]) -> ProducerOptions:
        """Batches that depend on the messages alone: no message waits for a time to pass."""
        if not self.whole:
            return ProducerOptions(
                linger_s=_FOREVER_S,
                max_batch_messages=self.batch_messages,
                max_batch_bytes=BATCH_BYTES,
            )
        sizes = [len(message.data) for message in messages]
        return ProducerOptions(
            linger_s=_FOREVER_S,
            max_batch_messages=len(sizes) + 1,
            max_batch_bytes=sum(sizes) + 1,
            max_buffer_bytes=sum(sizes) + 1,
        )


class Cuts:
    """Where one batch ends and the next begins, by number and size of its messages alone.

    The producer cuts by the same rule. Here it is only needed to count.
    """

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self.batches = 0
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._messages = self._bytes = 0

    def begins_batch(self, length: int) -> bool:
        """Take the next message; True if it is the first of a batch."""
        full = self._messages == self._messages_max or self._bytes + length > self._bytes_max
        begins = not self._messages or full
        if begins:
            self.batches += 1
            self._messages = self._bytes = 0
        self._messages += 1
        self._bytes += length
        return begins


@dataclass(slots=True)
class Job:
    """One run of `append`, and what has become of it."""

    stream: str
    close: bool
    messages: int = 0
    size: int = 0
    stored: int = 0
    duplicates: int = 0
    next_offset: str | None = None
    # The last message of each batch that is under way, and how many messages it stands for.
    _marks: deque[tuple[Delivery, int]] = field(default_factory=deque)
    _unmarked: int = 0

    def send_plainly(
        self, stream: Stream, pieces: list[bytes], *, id: str | None, seq: str | None
    ) -> None:
        """One request, without a producer."""
        if len(pieces) == 1:
            message = _one(stream, pieces[0])
            receipt = stream.append(message, close=self.close, id=id, seq=seq)
            self._settle(receipt)
            self.duplicates = int(receipt.duplicate)
        else:
            self._settle(stream.append_all(pieces, max_batch_bytes=sys.maxsize))
            if self.close:
                stream.close()
        self._count(pieces)
        self.stored = self.messages

    def send(
        self, stream: Stream, tag: Tag | None, messages: Iterable[Message], progress: Progress
    ) -> None:
        """Batch by batch, through a producer that repeats what fails."""
        if tag is None:
            producer = stream.producer()
        else:
            producer = stream.producer(
                tag.producer_id, epoch=tag.epoch, options=tag.options(messages)
            )
        try:
            try:
                each = ((message, _one(stream, message.data)) for message in messages)
                self._send_each(producer, tag.cuts() if tag else None, each, progress)
            except inputs.BadLine:
                # What stands before it is fine. But a batch that it has cut short must not go out:
                # with the line repaired, the same number would stand for more.
                if tag is None or tag.batch_messages == 1:
                    producer.close()
                elif self._marks:
                    self._marks.pop()
                self._collect(wait=True)
                raise
            if self.close:
                self._settle(producer.close_stream())
            else:
                producer.close()
            self._collect(wait=True)
        except (HeadwaterError, CliError, KeyboardInterrupt) as error:
            self._collect(wait=False)
            if self.stored:
                error.add_note(f"stored before that: {Unit.MESSAGE.counted(self.stored)}")
            raise

    def _send_each(
        self,
        producer: Producer,
        cuts: Cuts | None,
        messages: Iterable[tuple[Message, Any]],
        progress: Progress,
    ) -> None:
        delivery: Delivery | None = None
        try:
            for message, data in messages:
                if cuts is not None and cuts.begins_batch(len(message.data)):
                    self._mark(delivery)
                delivery = producer.append(data)
                self._count([message.data])
                if self.messages % _PROGRESS_EVERY == 0:
                    if cuts is None:
                        self._mark(delivery)
                    self._collect(wait=False)
                    progress.update(message.read_bytes, f"{self.stored:,} stored")
        finally:
            self._mark(delivery)

    def recognise(
        self, client: Headwater, stream: Stream, tag: Tag, messages: Iterable[Message]
    ) -> None:
        """The stream is closed already. Was that the end of an earlier run of the same input?

        A closed stream refuses repetitions of everything but the request that closed it. Its
        number tells how many batches came before it, so if it is recognised, all of them did.
        """
        cuts = tag.cuts()
        for message in messages:
            cuts.begins_batch(len(message.data))
            self._count([message.data])
        headers = {
            "Stream-Closed": "true",
            "Producer-Id": tag.producer_id,
            "Producer-Epoch": str(tag.epoch),
            "Producer-Seq": str(cuts.batches),
        }
        answer = client.request("POST", stream.url, headers=headers)
        self.duplicates = self.messages
        self.next_offset = answer.next_offset

    def report(self, tag: Tag | None, *, json: bool) -> None:
        """Say what was done: always if something was left out, else only to a person."""
        if json:
            write_json(
                AppendRecord(
                    name=self.stream,
                    messages=self.messages,
                    bytes=self.size,
                    duplicates=self.duplicates,
                    next_offset=self.next_offset,
                    closed=self.close,
                )
            )
        if tag is not None and self.duplicates:
            new = self.messages - self.duplicates
            say(
                f"{self.duplicates:,} messages had been stored before by producer "
                f"{tag.producer_id!r} in epoch {tag.epoch}, {new:,} are new; if this is other "
                "input, append it with a higher --epoch"
            )
        elif sys.stderr.isatty() and not json:
            what = Unit.MESSAGE.counted(self.messages)
            say(f"appended {what}, {size(self.size)}, to {self.stream}")

    def _count(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            self.messages += 1
            self._unmarked += 1
            self.size += len(piece)

    def _mark(self, delivery: Delivery | None) -> None:
        if delivery is not None and self._unmarked:
            self._marks.append((delivery, self._unmarked))
            self._unmarked = 0

    def _collect(self, *, wait: bool) -> None:
        """Take note of the batches that have been answered."""
        while self._marks and (wait or self._marks[0][0].done()):
            delivery, count = self._marks.popleft()
            try:
                receipt = delivery.result()
            except HeadwaterError:
                return  # leaving the producer raises what happened first
            self._settle(receipt)
            self.stored += count
            self.duplicates += count if receipt.duplicate else 0

    def _settle(self, receipt: Receipt | None) -> None:
        if receipt is not None and receipt.next_offset is not None:
            self.next_offset = receipt.next_offset


def _one(stream: Stream, data: bytes) -> Any:
    """Input as one message: JSON text that is an array would otherwise be several."""
    return [data] if Unit.of(stream.content_type) is Unit.MESSAGE else data
