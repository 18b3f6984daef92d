"""The blocking client. Written by scripts/make_sync.py from aio/message.py: DO NOT EDIT."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

from headwater.client.aio.message import AsyncMessage, AsyncTransaction
from headwater.client.protocol.groups import Committed, DeliveredProducer, OnDuplicate
from headwater.client.sync.portal import BlockingContext

T = TypeVar("T")


class Transaction(BlockingContext[AsyncTransaction]):
    """Messages to be published together, and maybe one to be acknowledged with them.

        transaction = client.transaction()
        transaction.publish("orders", {"id": 1, "item": "tea"})
        transaction.publish("orders", {"id": 2, "item": "cake"})
        transaction.commit()

    Either everything happens or nothing. `with` commits at the end of the block, unless an
    exception leaves it.
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
            stream: the path of the stream, which must be there.
            message: bytes for a stream that does not hold JSON, else any JSON value.
            id: the message's id, for streams that take ids from outside the message.
            on_duplicate: whether an id that the stream knows is a reason to `"abort"`
                everything, or as good as stored (`"succeed"`). By default the stream says:
                one made with `unique_ids="succeed"` takes it as stored.
            producer: id, epoch and sequence number, counted per stream as those of an append.
                What the stream has from this producer already is a duplicate and not stored again.
        """
        self._async.publish(stream, message, id=id, on_duplicate=on_duplicate, producer=producer)

    def commit(self) -> Committed:
        """Do it all. When this raises, nothing was done (unless the error is `in_doubt`).

        A message to be acknowledged that is no longer ours is a `StaleReceipt`, a known id a
        `DuplicateId`, a producer out of step a `SequenceConflict` or `StaleEpoch`. The `index` of
        the error tells which publish it was.

        After a lost answer it is tried again only if that cannot publish anything twice: if there
        is a message to acknowledge, or every publish has a producer.
        """
        return self._portal.call(self._async.commit())


class Message(BlockingContext[AsyncMessage]):
    """A message that is with us until it is settled or its time is over.

        for message in stream.group("workers").fetch(max=10):
            with message:
                handle(message.value)

    At the end of the block the message is acknowledged. After an exception it is given back, to
    be delivered again. While the block runs, its time is extended as often as necessary. What was
    settled inside the block stays as it is.
    """

    @property
    def id(self) -> str:
        """The id that the message was given or has inside, else its number in the stream."""
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
        """The idempotent producer that the message came from, if it did."""
        return self._async.producer

    @property
    def offset(self) -> str:
        """Where the append that the message came with begins."""
        return self._async.offset

    @property
    def deliveries(self) -> int:
        """How many times the message has been handed out, this time included."""
        return self._async.deliveries

    @property
    def receipt(self) -> str:
        """The name of this very delivery."""
        return self._async.receipt

    @property
    def data(self) -> bytes:
        """The message, byte for byte as it was appended."""
        return self._async.data

    @property
    def value(self) -> Any:
        """The message's JSON value, decoded when asked for. `InvalidMessage` if it has none."""
        return self._async.value

    def as_(self, type: type[T]) -> T:
        """The message as a dataclass, a pydantic model or anything else that JSON can be read as.

        `InvalidMessage` if it is not that.
        """
        return self._async.as_(type)

    @property
    def settled(self) -> bool:
        """Whether the message is known to be out of our hands."""
        return self._async.settled

    def ack(self, *, ignore_stale: bool = False) -> None:
        """The message is done and never comes back.

        Raises `StaleReceipt` if the message is no longer ours, unless `ignore_stale`.
        """
        self._portal.call(self._async.ack(ignore_stale=ignore_stale))

    def nack(self, delay_s: float = 0.0, *, count: bool = True, ignore_stale: bool = False) -> None:
        """Give the message back, to be delivered again.

        Args:
            delay_s: not before this many seconds from now.
            count: whether this delivery counts towards the group's `max_deliveries`.
            ignore_stale: do not mind if the message is no longer ours.
        """
        self._portal.call(self._async.nack(delay_s, count=count, ignore_stale=ignore_stale))

    def reject(self, *, ignore_stale: bool = False) -> None:
        """Nobody can work on this message: it goes to the dead letters at once."""
        self._portal.call(self._async.reject(ignore_stale=ignore_stale))

    def extend(self, s: float, *, ignore_stale: bool = False) -> None:
        """Keep the message for so many seconds from now."""
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
