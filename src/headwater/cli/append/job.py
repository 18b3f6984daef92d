"""One run of `headwater append`: how messages get into a stream.

There are three ways to write, depending on what can go wrong:

* One message or one raw piece is one request, sent once. If its answer is lost, nobody knows
  whether it was stored, and the command says so.
* Lines go through a producer with a new name for this run. It batches what arrives within a few
  milliseconds, keeps several requests in flight and retries failures, and the server drops
  duplicates. If the whole command fails, running it again stores the same messages again.
* With `--producer ID` a whole run can be repeated. The server accepts request number n of an ID and
  an epoch once, whatever is in it. So request n has to hold the same messages in every run. If line
  n is request n, that is so as long as the input begins the same: it may have been cut off the
  first time, or have grown since. With `--batch` a request holds several lines, divided only by
  their number and size, never by time. Then the input has to be complete and the same every time,
  because a last batch that was shorter before would be taken for the same. Different input under
  the same ID needs a higher epoch.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from headwater.cli import inputs
from headwater.cli.exits import CliError
from headwater.cli.inputs import Message
from headwater.cli.output import Progress, size, write_json
from headwater.cli.records import AppendRecord
from headwater.cli.shell import say
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
        """Batches that depend only on the messages: none waits for a time to pass."""
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

    The producer uses the same rule. Here it is only needed for counting.
    """

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self.batches = 0
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._messages = self._bytes = 0

    def begins_batch(self, length: int) -> bool:
        """Add the next message; True if it starts a batch."""
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
    """One run of `append`, and its outcome."""

    stream: str
    close: bool
    messages: int = 0
    size: int = 0
    stored: int = 0
    duplicates: int = 0
    next_offset: str | None = None
    # The last message of each batch in flight, and how many messages the batch has.
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
        """Send batch by batch, through a producer that retries failures."""
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
                # The lines before it are fine. But a batch that it has cut short must not be sent:
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
        """The stream is already closed. Did an earlier run of the same input close it?

        A closed stream refuses repetitions of everything but the request that closed it. That
        request's number is the number of batches before it, so if it is recognised, all of them
        were stored.
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
        """Report what was done: always if something was left out, otherwise only on a terminal."""
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
        """Record the batches that have been answered."""
        while self._marks and (wait or self._marks[0][0].done()):
            delivery, count = self._marks.popleft()
            try:
                receipt = delivery.result()
            except HeadwaterError:
                return  # leaving the producer raises the first error
            self._settle(receipt)
            self.stored += count
            self.duplicates += count if receipt.duplicate else 0

    def _settle(self, receipt: Receipt | None) -> None:
        if receipt is not None and receipt.next_offset is not None:
            self.next_offset = receipt.next_offset


def _one(stream: Stream, data: bytes) -> Any:
    """Input as one message: JSON text that is an array would otherwise be several."""
    return [data] if Unit.of(stream.content_type) is Unit.MESSAGE else data
