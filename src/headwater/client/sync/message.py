"""The blocking client. Written by scripts/make_sync.py from aio/message.py: DO NOT EDIT."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

from headwater.client.aio.message import AsyncMessage, AsyncTransaction
from headwater.client.protocol.groups import Committed, DeliveredProducer, OnDuplicate
from headwater.client.sync.portal import BlockingContext

T = TypeVar("T")


class Transaction(BlockingContext[AsyncTransaction]):
    """Messages to publish together, and optionally one to acknowledge with them.

        transaction = client.transaction()
        transaction.publish("orders", {"id": 1, "item": "tea"})
        transaction.publish("orders", {"id": 2, "item": "cake"})
        transaction.commit()

    Either everything happens or nothing. `with` commits at the end of the block, unless the
    block raises.
    """

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
        self._async.publish(stream, message, id=id, on_duplicate=on_duplicate, producer=producer)

    def commit(self) -> Committed:
        """Commit everything. If this raises, nothing was done (unless the error is `in_doubt`).

        If you no longer hold a message to acknowledge, this raises `StaleReceipt`; for a known id,
        `DuplicateId`; for a producer out of step, `SequenceConflict` or `StaleEpoch`. The error's
        `index` says which publish it was.

        After a lost answer, it is retried only if that cannot publish anything twice: if there is a
        message to acknowledge, or every publish has a producer.
        """
        return self._portal.call(self._async.commit())


class Message(BlockingContext[AsyncMessage]):
    """A message that you hold until you settle it or its time is up.

        for message in stream.group("workers").fetch(max=10):
            with message:
                handle(message.value)

    At the end of the block, the message is acknowledged. After an exception, it is given back and
    delivered again. While the block runs, its time is extended as often as necessary. If you settle
    it inside the block, that stands.
    """

    @property
    def id(self) -> str:
        """The id that the message was sent with or contains, otherwise its number in the stream."""
        return self._async.id

    @property
    def time(self) -> int | None:
        """When the message was stored, in milliseconds since 1970; None if the server is older."""
        return self._async.time

    @property
    def timestamp(self) -> datetime | None:
        """The same as a datetime in UTC."""
        return self._async.timestamp

    @property
    def producer(self) -> DeliveredProducer | None:
        """The idempotent producer that sent the message, if one did."""
        return self._async.producer

    @property
    def offset(self) -> str:
        """Where the message's append begins."""
        return self._async.offset

    @property
    def deliveries(self) -> int:
        """How many times the message has been delivered, including this time."""
        return self._async.deliveries

    @property
    def receipt(self) -> str:
        """The name of this delivery."""
        return self._async.receipt

    @property
    def data(self) -> bytes:
        """The message, byte for byte as it was appended."""
        return self._async.data

    @property
    def value(self) -> Any:
        """The message's JSON value, decoded on first use. `InvalidMessage` if it has none."""
        return self._async.value

    def as_(self, type: type[T]) -> T:
        """The message as a dataclass, a pydantic model or anything else that JSON can be read as.

        `InvalidMessage` if it is not that.
        """
        return self._async.as_(type)

    @property
    def settled(self) -> bool:
        """Whether you are known to no longer hold the message."""
        return self._async.settled

    def ack(self, *, ignore_stale: bool = False) -> None:
        """Acknowledge the message: it is done and never comes back.

        Raises `StaleReceipt` if you no longer hold the message, unless `ignore_stale`.
        """
        self._portal.call(self._async.ack(ignore_stale=ignore_stale))

    def nack(self, delay_s: float = 0.0, *, count: bool = True, ignore_stale: bool = False) -> None:
        """Give the message back so that it is delivered again.

        Args:
            delay_s: deliver it no sooner than this many seconds from now.
            count: whether this delivery counts towards the group's `max_deliveries`.
            ignore_stale: do not raise if you no longer hold the message.
        """
        self._portal.call(self._async.nack(delay_s, count=count, ignore_stale=ignore_stale))

    def reject(self, *, ignore_stale: bool = False) -> None:
        """Send the message straight to the dead letters, because nobody can process it."""
        self._portal.call(self._async.reject(ignore_stale=ignore_stale))

    def extend(self, s: float, *, ignore_stale: bool = False) -> None:
        """Keep the message for this many seconds from now."""
        self._portal.call(self._async.extend(s, ignore_stale=ignore_stale))

    def transaction(self) -> Transaction:
        """A transaction that acknowledges this message together with what it publishes:

        transaction = message.transaction()
        transaction.publish("out", {"done": message.id})
        transaction.commit()
        """
        return Transaction(self._portal, self._async.transaction())

    def __repr__(self) -> str:
        return repr(self._async).replace("AsyncMessage", type(self).__name__)
