"""A message that a group has handed out, and transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from headwater.client.aio.link import GroupLink
from headwater.client.aio.sender import Sender
from headwater.client.errors import HeadwaterError, InvalidMessage, StaleReceipt
from headwater.client.protocol.groups import (
    Action,
    Committed,
    Delivered,
    DeliveredProducer,
    Lease,
    OnDuplicate,
    Publish,
    committed,
    milliseconds,
    stale_receipt,
    transaction_request,
)
from headwater.client.protocol.records import moment
from headwater.client.protocol.streams import NOTHING
from headwater.client.protocol.values import decode

T = TypeVar("T")


class AsyncTransaction:
    """Messages to publish together, and optionally one to acknowledge with them.

        transaction = client.transaction()
        transaction.publish("orders", {"id": 1, "item": "tea"})
        transaction.publish("orders", {"id": 2, "item": "cake"})
        await transaction.commit()

    Either everything happens or nothing. `async with` commits at the end of the block, unless the
    block raises.
    """

    def __init__(
        self,
        sender: Sender,
        root: str,
        *,
        ack: dict[str, Any] | None = None,
        on_commit: Callable[[], None] | None = None,
    ) -> None:
        self._sender = sender
        self._root = root
        self._ack = ack
        self._on_commit = on_commit
        self._publishes: list[Publish] = []
        self._committed = False

    def publish(
        self,
        stream: str,
        message: Any,
        *,
        id: str | None = None,
        on_duplicate: OnDuplicate | None = None,
        producer: tuple[str, int, int] | None = None,
    ) -> None:
        """Add a message. Nothing is sent before `commit`.

        Args:
            stream: the path of the stream, which must exist.
            message: any JSON value, or bytes for a stream that does not hold JSON.
            id: the message's id, for streams that take ids from outside the message.
            on_duplicate: whether an id that the stream knows should `"abort"` everything or count
                as stored (`"succeed"`). By default the stream decides: one created with
                `unique_ids="succeed"` treats it as stored.
            producer: id, epoch and sequence number, counted per stream like those of an append.
                What the stream already has from this producer is not stored again.
        """
        if self._committed:
            raise RuntimeError("the transaction is committed")
        self._publishes.append(
            Publish.of(
                stream.strip("/"), message, id=id, on_duplicate=on_duplicate, producer=producer
            )
        )

    async def commit(self) -> Committed:
        """Commit everything. If this raises, nothing was done (unless the error is `in_doubt`).

        If you no longer hold a message to acknowledge, this raises `StaleReceipt`; for a known id,
        `DuplicateId`; for a producer out of step, `SequenceConflict` or `StaleEpoch`. The error's
        `index` says which publish it was.

        After a lost answer, it is retried only if that cannot publish anything twice: if there is a
        message to acknowledge, or every publish has a producer.
        """
        if self._committed:
            raise RuntimeError("the transaction is committed")
        request = transaction_request(self._root, self._publishes, self._ack)
        outcome = committed((await self._sender.perform(request)).response)
        self._committed = True
        if self._on_commit is not None:
            self._on_commit()
        return outcome

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        if exc_type is None and not self._committed:
            await self.commit()


class AsyncMessage:
    """A message that you hold until you settle it or its time is up.

        for message in await stream.group("workers").fetch(max=10):
            async with message:
                await handle(message.value)

    At the end of the block, the message is acknowledged. After an exception, it is given back and
    delivered again. While the block runs, its time is extended as often as necessary. If you settle
    it inside the block, that stands.
    """

    def __init__(
        self, link: GroupLink, delivered: Delivered, lease: Lease, changed: Callable[[], None]
    ) -> None:
        self._link = link
        self._delivered = delivered
        self._lease = lease
        self._changed = changed
        self._data: bytes | None = None
        self._value: Any = NOTHING
        self._keeper: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """The id that the message was sent with or contains, otherwise its number in the stream."""
        return self._delivered.id

    @property
    def time(self) -> int | None:
        """When the message was stored, in milliseconds since 1970; None if the server is older."""
        return self._delivered.time

    @property
    def timestamp(self) -> datetime | None:
        """The same as a datetime in UTC."""
        return None if self.time is None else moment(self.time)

    @property
    def producer(self) -> DeliveredProducer | None:
        """The idempotent producer that sent the message, if one did."""
        return self._delivered.producer

    @property
    def offset(self) -> str:
        """Where the message's append begins."""
        return self._delivered.offset

    @property
    def deliveries(self) -> int:
        """How many times the message has been delivered, including this time."""
        return self._delivered.deliveries

    @property
    def receipt(self) -> str:
        """The name of this delivery."""
        return self._delivered.receipt

    @property
    def data(self) -> bytes:
        """The message, byte for byte as it was appended."""
        if self._data is None:
            self._data = self._delivered.content()
        return self._data

    @property
    def value(self) -> Any:
        """The message's JSON value, decoded on first use. `InvalidMessage` if it has none."""
        if self._value is NOTHING:
            self._value = self.as_(Any)
        return self._value

    def as_(self, type: type[T]) -> T:
        """The message as a dataclass, a pydantic model or anything else that JSON can be read as.

        `InvalidMessage` if it is not that.
        """
        try:
            value: T = decode(self.data, type, f"the message at {self.offset}")
        except InvalidMessage as error:
            error.where = urlsplit(self._link.stream_url).path
            raise
        return value

    @property
    def settled(self) -> bool:
        """Whether you are known to no longer hold the message."""
        return self._lease.settled or self._lease.lost

    async def ack(self, *, ignore_stale: bool = False) -> None:
        """Acknowledge the message: it is done and never comes back.

        Raises `StaleReceipt` if you no longer hold the message, unless `ignore_stale`.
        """
        await self._settle("ack", ignore_stale)

    async def nack(
        self, delay_s: float = 0.0, *, count: bool = True, ignore_stale: bool = False
    ) -> None:
        """Give the message back so that it is delivered again.

        Args:
            delay_s: deliver it no sooner than this many seconds from now.
            count: whether this delivery counts towards the group's `max_deliveries`.
            ignore_stale: do not raise if you no longer hold the message.
        """
        await self._settle("nack", ignore_stale, delay_ms=milliseconds(delay_s), count=count)

    async def reject(self, *, ignore_stale: bool = False) -> None:
        """Send the message straight to the dead letters, because nobody can process it."""
        await self._settle("reject", ignore_stale)

    async def extend(self, s: float, *, ignore_stale: bool = False) -> None:
        """Keep the message for this many seconds from now."""
        await extend_all(self._link, [self], s, ignore_stale=ignore_stale)

    def transaction(self) -> AsyncTransaction:
        """A transaction that acknowledges this message together with what it publishes:

        transaction = message.transaction()
        transaction.publish("out", {"done": message.id})
        await transaction.commit()
        """
        return transaction_of(self._link, [self])

    async def __aenter__(self) -> Self:
        timeout_s = await self._link.ack_timeout_s()
        self._keeper = asyncio.get_running_loop().create_task(self._keep(timeout_s))
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        await self._stop_keeping()
        if self._lease.settled:
            return
        if exc_type is None:
            await self.ack()
            return
        # The exception goes on its way whatever becomes of this. Being cancelled is not the
        # message's fault and does not count.
        with suppress(HeadwaterError):
            await self.nack(count=issubclass(exc_type, Exception))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self._link.path}>"

    # --- Inside ----------------------------------------------------------------------------------

    async def _settle(self, action: Action, ignore_stale: bool, **fields: Any) -> None:
        await settle_all(self._link, [self], action, ignore_stale=ignore_stale, **fields)

    def _is_settled(self) -> None:
        self._lease.settled = True
        self._changed()

    def _is_extended(self, since: float, length_s: float) -> None:
        self._lease.since, self._lease.length_s = since, length_s
        self._changed()

    def _is_lost(self) -> None:
        self._lease.lost = True
        self._changed()

    async def _keep(self, timeout_s: float) -> None:
        """Extend the lease whenever a third of it is over."""
        loop = asyncio.get_running_loop()
        while not self.settled:
            due = self._lease.until(timeout_s) - timeout_s * 2 / 3
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
                continue
            try:
                await self.extend(timeout_s)
            except StaleReceipt:
                return  # the end of the block will tell
            except HeadwaterError:
                await asyncio.sleep(timeout_s / 3)

    async def _stop_keeping(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)


# --- Several messages at a time ------------------------------------------------------------------


async def settle_all(
    link: GroupLink,
    messages: Sequence[AsyncMessage],
    action: Action,
    *,
    ignore_stale: bool,
    **fields: Any,
) -> None:
    """Say what shall become of messages. The stale ones do not keep the others from it."""
    receipts = [message.receipt for message in messages]
    answer, stale = await link.settle(action, receipts, **fields)
    for message in messages:
        message._is_settled()
    if stale and not ignore_stale:
        raise stale_receipt(
            answer.response, receipts=stale, of=len(messages), in_doubt=answer.in_doubt
        )


async def extend_all(
    link: GroupLink, messages: Sequence[AsyncMessage], s: float, *, ignore_stale: bool
) -> None:
    """Keep messages for so many seconds from now."""
    now = asyncio.get_running_loop().time()
    receipts = [message.receipt for message in messages]
    answer, stale = await link.settle("extend", receipts, ms=milliseconds(s))
    lost = set(stale)
    for message in messages:
        if message.receipt in lost:
            message._is_lost()
        else:
            message._is_extended(now, s)
    if stale and not ignore_stale:
        raise stale_receipt(answer.response, receipts=stale, of=len(messages), in_doubt=False)


def transaction_of(link: GroupLink, messages: Sequence[AsyncMessage]) -> AsyncTransaction:
    """A transaction that acknowledges messages of one group."""
    receipts = [message.receipt for message in messages]
    ack = {"stream": link.path, "group": link.name, "receipts": receipts}

    def on_commit() -> None:
        for message in messages:
            message._is_settled()

    return AsyncTransaction(
        link.sender, link.root, ack=ack if receipts else None, on_commit=on_commit
    )
