"""The blocking client. Written by scripts/make_sync.py from aio/consumer.py: DO NOT EDIT."""

from __future__ import annotations

from typing import Self

from headwater.client.aio.consumer import AsyncConsumer
from headwater.client.sync.message import Message
from headwater.client.sync.portal import BlockingContext


class Consumer(BlockingContext[AsyncConsumer]):
    """The messages of a group as they arrive, until it is closed or, if you ask for it, empty.

        group = stream.group("workers")
        group.ensure()
        with group.consume() as messages:
            for message in messages:
                with message:
                    handle(message.value)
                break

    Messages that were fetched but not given to you go back to the group, and do not count as
    delivered. That happens when you leave the block, when the iteration is interrupted, and when
    nothing refers to the iterator. It survives lost connections and server restarts; an error it
    raises is final.
    """

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        message = self._portal.call(self._async._inbox.next_message())
        if message is None:
            raise StopIteration
        return Message(self._portal, message)

    def close(self) -> None:
        """Stop, and give back messages you have not received. Those you have stay with you."""
        self._portal.call(self._async.aclose())
