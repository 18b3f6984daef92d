"""The blocking client. Written by scripts/make_sync.py from aio/consumer.py: DO NOT EDIT."""

from __future__ import annotations

from typing import Self

from headwater.client.aio.consumer import AsyncConsumer
from headwater.client.sync.message import Message
from headwater.client.sync.portal import BlockingContext


class Consumer(BlockingContext[AsyncConsumer]):
    """The messages of a group, as they come. It ends when it is closed, or empty if so asked.

        group = stream.group("workers")
        group.ensure()
        with group.consume() as messages:
            for message in messages:
                with message:
                    handle(message.value)
                break

    What was fetched and not handed out goes back to the group, uncounted, when the block is left,
    when the iteration is interrupted, and when nothing refers to the iterator. Lost
    connections and restarts of the server are ridden out; what it raises is final.
    """

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        message = self._portal.call(self._async._inbox.next_message())
        if message is None:
            raise StopIteration
        return Message(self._portal, message)

    def close(self) -> None:
        """Stop, and give back what was not handed out. What was is still with us."""
        self._portal.call(self._async.aclose())
