"""The blocking client. Written by scripts/make_sync.py from aio/producer.py: DO NOT EDIT."""

from __future__ import annotations

from typing import Any

from headwater.client.aio.producer import AsyncProducer
from headwater.client.errors import BufferFull
from headwater.client.protocol.streams import NOTHING, Receipt
from headwater.client.sync.portal import BlockingContext, Delivery
from headwater.core.payloads import encode_append


class Producer(BlockingContext[AsyncProducer]):
    """Appends messages in order, in batches, each exactly once.

        with stream.producer("checkout-1") as producer:
            for order in orders:
                producer.append(order)

    `append` returns as soon as the message is in the buffer, and waits while the buffer is full.
    Its result tells you when the message is stored. You can ignore it: leaving the block (or
    `flush`) waits for everything and raises if anything failed.

    A failure that retrying cannot fix stops the producer: the messages after it fail too, because
    writing them would leave a gap. The error's `in_doubt` says whether a failed message may still
    have been stored.
    """

    @property
    def producer_id(self) -> str:
        """The name under which the server knows this producer."""
        return self._async.producer_id

    @property
    def epoch(self) -> int:
        """The epoch in use; it grows when this producer has to take over."""
        return self._async.epoch

    def append(self, message: Any) -> Delivery:
        """Put a message into the buffer, waiting while it is full.

        A list is several messages, as for `Stream.append`; they are stored together. If this is
        interrupted, the message has not been accepted.
        """
        if self._async._loop is None:
            self._portal.call(self._async._prepare())
        self._async._check_open()
        encoded = encode_append(message, self._async._content_type)
        while not self._async._buffer.has_room(len(encoded)):
            self._portal.call(self._async._wait_for_room(len(encoded)))
        return Delivery(self._portal, self._async._add(encoded))

    def append_nowait(self, message: Any) -> Delivery:
        """Put a message into the buffer; `BufferFull` when there is no room.

        The producer must have been entered (`with`) or have appended before.
        """
        if self._async._loop is None:
            raise RuntimeError("enter the producer or use `append` before append_nowait")
        self._async._check_open()
        encoded = encode_append(message, self._async._content_type)
        if not self._async._buffer.has_room(len(encoded)):
            raise BufferFull("the producer's buffer is full", where=self._async._where)
        return Delivery(self._portal, self._async._add(encoded))

    def flush(self) -> None:
        """Wait until all messages appended so far are stored; raise if any failed."""
        self._portal.call(self._async.flush())

    def close(self) -> None:
        """Flush, then accept no more messages. The stream stays open for others."""
        self._portal.call(self._async.close())

    def close_stream(self, final: Any = NOTHING) -> Receipt:
        """Flush, then close the stream for good, with a last message in the same step."""
        return self._portal.call(self._async.close_stream(final))
