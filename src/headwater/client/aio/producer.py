"""Writing every message exactly once."""

from __future__ import annotations

import asyncio
import random
import threading
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

from headwater.client.aio.sender import Sender
from headwater.client.errors import BufferFull, HeadwaterError, ProducerStopped
from headwater.client.protocol.producer_buffer import MessageBuffer, Parcel
from headwater.client.protocol.producer_state import Entry, Outcome, ProducerState
from headwater.client.protocol.retry import RetryPolicy, check_options
from headwater.client.protocol.streams import (
    NOTHING,
    ProducerTag,
    Receipt,
    append_request,
    check_number,
    check_producer_id,
    producer_receipt,
)
from headwater.core.content_types import DEFAULT
from headwater.core.payloads import encode_append, encode_body

AsyncDelivery = asyncio.Future[Receipt]
"""What `append` returns: await it to learn that the message is stored."""


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """How a producer batches, buffers and waits.

    Attributes:
        linger_s: how long a message may wait for others to share its request.
        max_batch_bytes: a batch is sent when it has this many bytes.
        max_batch_messages: … or this many messages.
        max_in_flight: how many requests may be in flight at a time.
        max_buffer_bytes: how much may be unconfirmed, sent or not, before `append` waits.
        retry: how long to retry. When it gives up, the producer stops.
    """

    linger_s: float = 0.005
    max_batch_bytes: int = 1 << 20
    max_batch_messages: int = 10_000
    max_in_flight: int = 5
    max_buffer_bytes: int = 16 << 20
    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(give_up_after_s=120.0))

    def __post_init__(self) -> None:
        sizes = ("max_batch_bytes", "max_batch_messages", "max_in_flight", "max_buffer_bytes")
        check_options(self, positive=sizes, natural=("linger_s",))


class AsyncProducer:
    """Appends messages in order, in batches, each exactly once.

        async with stream.producer("checkout-1") as producer:
            for order in orders:
                await producer.append(order)

    `append` returns as soon as the message is in the buffer, and waits while the buffer is full.
    Its result tells you when the message is stored. You can ignore it: leaving the block (or
    `flush`) waits for everything and raises if anything failed.

    A failure that retrying cannot fix stops the producer: the messages after it fail too, because
    writing them would leave a gap. The error's `in_doubt` says whether a failed message may still
    have been stored.
    """

    def __init__(
        self,
        sender: Sender,
        url: str,
        content_type: Callable[[], Awaitable[str]],
        *,
        producer_id: str | None,
        epoch: int | None,
        auto_claim: bool,
        options: ProducerOptions,
    ) -> None:
        self._sender = sender
        self._url = url
        self._where = urlsplit(url).path
        self._resolve_content_type = content_type
        self._content_type = DEFAULT
        self._producer_id = uuid.uuid4().hex
        if producer_id is not None:
            self._producer_id = check_producer_id(producer_id)
        # A name that has been used may have any epoch. One from the clock is most likely above it.
        claims = epoch is None and producer_id is not None
        if epoch is None:
            epoch = time.time_ns() // 1_000_000 if claims else 0
        self._state: ProducerState[Parcel[AsyncDelivery]] = ProducerState(
            epoch=check_number("epoch", epoch),
            claims=claims,
            max_in_flight=options.max_in_flight,
            auto_claim=auto_claim,
            retry=options.retry,
        )
        self._buffer: MessageBuffer[AsyncDelivery] = MessageBuffer(
            max_bytes=options.max_buffer_bytes,
            max_batch_bytes=options.max_batch_bytes,
            max_batch_messages=options.max_batch_messages,
            linger_s=options.linger_s,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._closed = False
        self._unreported: HeadwaterError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._requests: set[asyncio.Task[None]] = set()
        self._waiters: set[asyncio.Future[None]] = set()

    @property
    def producer_id(self) -> str:
        """The name under which the server knows this producer."""
        return self._producer_id

    @property
    def epoch(self) -> int:
        """The epoch in use; it grows when this producer has to take over."""
        return self._state.epoch

    # --- Writing ---------------------------------------------------------------------------------

    async def append(self, message: Any) -> AsyncDelivery:
        """Put a message into the buffer, waiting while it is full.

        A list is several messages, as for `Stream.append`; they are stored together. If this is
        cancelled, the message has not been accepted.
        """
        if self._loop is None:
            await self._prepare()
        self._check_open()
        encoded = encode_append(message, self._content_type)
        while not self._buffer.has_room(len(encoded)):
            await self._wait_for_room(len(encoded))
        return self._add(encoded)

    def append_nowait(self, message: Any) -> AsyncDelivery:
        """Put a message into the buffer; `BufferFull` when there is no room.

        The producer must have been entered (`async with`) or have appended before.
        """
        if self._loop is None:
            raise RuntimeError("enter the producer or use `append` before append_nowait")
        self._check_open()
        encoded = encode_append(message, self._content_type)
        if not self._buffer.has_room(len(encoded)):
            raise BufferFull("the producer's buffer is full", where=self._where)
        return self._add(encoded)

    async def flush(self) -> None:
        """Wait until all messages appended so far are stored; raise if any failed."""
        if self._loop is None:
            return  # nothing was ever appended
        target = self._buffer.added
        self._buffer.flush()
        self._pump()
        while self._settled_before() < target:
            await self._something_settles()
        error, self._unreported = self._unreported, None
        if error is not None:
            raise error

    async def close(self) -> None:
        """Flush, then accept no more messages. The stream stays open for others."""
        if self._closed:
            return
        self._closed = True
        try:
            await self.flush()
        finally:
            await self._shut_down()

    async def close_stream(self, final: Any = NOTHING) -> Receipt:
        """Flush, then close the stream for good, with a last message in the same step."""
        await self._prepare()
        messages = [] if final is NOTHING else [encode_append(final, self._content_type)]
        body = encode_body(messages, self._content_type) if messages else b""
        self._check_open()
        self._closed = True
        try:
            await self.flush()
            delivery: AsyncDelivery = asyncio.get_running_loop().create_future()
            self._state.add(body, Parcel(self._buffer.added, [], [delivery], 0), closes=True)
            self._pump()
            receipt = await delivery
            self._unreported = None
            return receipt
        finally:
            await self._shut_down()

    async def __aenter__(self) -> Self:
        await self._prepare()
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        if exc_type is None:
            await self.close()
        elif issubclass(exc_type, Exception):
            # What was appended before the error should still arrive; the error itself goes first.
            with suppress(HeadwaterError):
                await self.close()
        else:
            self._closed = True
            await self._shut_down()

    # --- Inside ----------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        """Find out what every append needs to know."""
        if self._loop is None:
            self._content_type = await self._resolve_content_type()
            self._loop = asyncio.get_running_loop()
            self._loop_thread = threading.get_ident()

    def _check_open(self) -> None:
        if self._state.stopped_by is not None:
            raise ProducerStopped(
                f"the producer has stopped: {self._state.stopped_by}"
            ) from self._state.stopped_by
        if self._closed:
            raise ProducerStopped("the producer is closed", where=self._where)

    def _add(self, encoded: bytes) -> AsyncDelivery:
        """Take an encoded message. This is safe from any thread."""
        loop = self._loop
        assert loop is not None
        delivery: AsyncDelivery = asyncio.Future(loop=loop)
        if self._buffer.add(encoded, delivery, now=loop.time()):
            if threading.get_ident() == self._loop_thread:
                self._pump()
            else:
                loop.call_soon_threadsafe(self._pump)
        return delivery

    def _pump(self) -> None:
        """Send what is due, and come back when the next thing will be."""
        if self._state.stopped_by is not None:
            self._give_up_buffer(self._state.stopped_by)
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._seal_batches(now)
        for entry in self._state.take_due(now):
            task = loop.create_task(self._deliver(entry))
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)
        self._set_timer(loop, now)

    def _seal_batches(self, now: float) -> None:
        while self._state.can_take():
            due_at = self._buffer.due_at()
            if due_at is None or due_at > now:
                return
            parcel = self._buffer.take()
            self._state.add(encode_body(parcel.messages, self._content_type), parcel)
            parcel.messages.clear()  # they live on in the body

    def _set_timer(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # For the same moment as `take_due`: what was not due then must not be forgotten now.
        moments = [self._state.next_due_at(now)]
        if self._state.can_take():
            moments.append(self._buffer.due_at())
        times = [moment for moment in moments if moment is not None]
        if times:
            self._timer = loop.call_at(min(times), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._pump()

    async def _deliver(self, entry: Entry[Parcel[AsyncDelivery]]) -> None:
        tag = ProducerTag(self._producer_id, self._state.epoch, entry.seq)
        request = append_request(
            self._url, entry.body, content_type=self._content_type, close=entry.closes, producer=tag
        )
        try:
            receipt = producer_receipt(await self._sender.once(request), tag)
        except HeadwaterError as error:
            self._failed(entry, error)
        except Exception as error:
            # Not ours to interpret (the caller's token function, say), and nothing to repeat.
            stopped = ProducerStopped(f"could not send: {error!r}", in_doubt=True)
            stopped.__cause__ = error
            self._failed(entry, stopped)
        else:
            self._report(self._state.accepted(entry, receipt))
        try:
            if self._state.distrusts_connections:
                self._state.distrusts_connections = False
                await self._sender.distrust()
        finally:
            self._pump()

    def _failed(self, entry: Entry[Parcel[AsyncDelivery]], error: HeadwaterError) -> None:
        now = asyncio.get_running_loop().time()
        self._report(self._state.failed(entry, error, now=now, random=random.random()))

    def _report(self, outcomes: list[Outcome[Parcel[AsyncDelivery]]]) -> None:
        for outcome in outcomes:
            self._settle(outcome.entry.payload, outcome.result)
        if self._state.stopped_by is not None:
            self._give_up_buffer(self._state.stopped_by)
        if outcomes:
            self._wake_waiters()

    def _settle(self, parcel: Parcel[AsyncDelivery], result: Receipt | HeadwaterError) -> None:
        self._buffer.release(parcel)
        for delivery in parcel.payloads:
            if delivery.done():
                continue  # its owner has cancelled it, which does not take the message back
            if isinstance(result, Receipt):
                delivery.set_result(result)
            else:
                self._unreported = self._unreported or result
                delivery.set_exception(result)
                delivery.exception()  # seen: flush reports it to those who ignore deliveries

    def _give_up_buffer(self, cause: HeadwaterError) -> None:
        while self._buffer.due_at() is not None:
            error = ProducerStopped(f"the producer has stopped: {cause}")
            error.__cause__ = cause
            self._settle(self._buffer.take(), error)
            self._wake_waiters()

    def _settled_before(self) -> int:
        """All messages with a lower number than this are settled."""
        entries = self._state.entries
        return entries[0].payload.first if entries else self._buffer.first

    async def _wait_for_room(self, size: int) -> None:
        while not self._buffer.has_room(size):
            await self._something_settles()
            self._check_open()

    async def _something_settles(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def _wake_waiters(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _shut_down(self) -> None:
        """End everything that is still going on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        requests = tuple(self._requests)
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
        self._report(self._state.abort(ProducerStopped("the producer is closed")))
