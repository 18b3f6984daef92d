"""The blocking client. Written by scripts/make_sync.py from aio/group.py: DO NOT EDIT."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.client.aio.group import AsyncGroup
from headwater.client.protocol.batch import Position
from headwater.client.protocol.groups import GroupInfo
from headwater.client.sync.consumer import Consumer
from headwater.client.sync.message import Message, Transaction
from headwater.client.sync.portal import Blocking


class Group(Blocking[AsyncGroup]):
    """A group gives the messages of a stream to its members, each to one member at a time.

        group = client.stream("orders").group("workers")
        client.stream("orders").ensure(content_type="application/json")
        group.ensure(ack_timeout_s=60)
        for message in group.fetch(max=10):
            with message:
                print(message.value)

    Creating a handle sends nothing.
    """

    @property
    def name(self) -> str:
        """The group's name."""
        return self._async.name

    @property
    def url(self) -> str:
        """The group's full address."""
        return self._async.url

    def ensure(
        self,
        *,
        durable: bool | None = None,
        start: str | Position | None = None,
        max_in_flight: int | None = None,
        ack_timeout_s: float | None = None,
        max_deliveries: int | None = None,
        dead_letter: str | None = None,
        order_by: str | None = None,
        version: int | None = None,
    ) -> GroupInfo:
        """Create the group, or change its settings. Settings you leave out stay as they are.

        Args:
            durable: keep the group's position across restarts (the default).
            start: where a new group starts: `"first"` (the default), `"latest"`, an offset or a
                saved position of a reader.
            max_in_flight: how many messages members may hold at a time; 1000 by default.
            ack_timeout_s: how long a member may keep a message; 30 seconds by default.
            max_deliveries: give up on a message after this many deliveries; never by default.
            dead_letter: the stream for messages that are given up.
            order_by: a JSON pointer to a key. Messages with the same key are delivered one at a
                time, in order.
            version: the version of these settings. With a version, settings you leave out get their
                defaults. They are applied if the group has an older version. If it has a newer one,
                nothing changes, and the answer shows the settings in force. The same version with
                other settings is a `Conflict` that names the difference.
        """
        return self._portal.call(
            self._async.ensure(
                durable=durable,
                start=start,
                max_in_flight=max_in_flight,
                ack_timeout_s=ack_timeout_s,
                max_deliveries=max_deliveries,
                dead_letter=dead_letter,
                order_by=order_by,
                version=version,
            )
        )

    def info(self) -> GroupInfo:
        """What the server knows about the group; `GroupNotFound` if there is none."""
        return self._portal.call(self._async.info())

    def delete(self) -> None:
        """Delete the group; `GroupNotFound` if there is none. The stream stays as it is."""
        self._portal.call(self._async.delete())

    def seek(self, to: str | Position) -> None:
        """Continue at `"first"`, `"latest"`, an offset, or a saved position of a reader.

        The group forgets all current deliveries.
        """
        self._portal.call(self._async.seek(to))

    def pause(self) -> None:
        """Deliver nothing until `resume`."""
        self._portal.call(self._async.pause())

    def resume(self) -> None:
        """Deliver messages again."""
        self._portal.call(self._async.resume())

    def fetch(
        self,
        *,
        consumer: str | None = None,
        max: int = 1,
        wait_s: float = 0.0,
        ack: Iterable[Message] = (),
    ) -> list[Message]:
        """Ask for messages, and wait for the first one if there are none.

        Args:
            consumer: the name of the member; by default, a random name that belongs to this handle.
            max: how many messages at most (up to 1000).
            wait_s: how long to wait (up to 60).
            ack: messages to acknowledge first, in the same request. Stale ones are left out, as
                with `ignore_stale`.
        """
        found = self._portal.call(
            self._async.fetch(
                consumer=consumer,
                max=max,
                wait_s=wait_s,
                ack=[each._async for each in ack],
            )
        )
        return [Message(self._portal, each) for each in found]

    def ack(self, messages: Iterable[Message], *, ignore_stale: bool = False) -> None:
        """Acknowledge all of these in one request.

        Raises `StaleReceipt` if you no longer hold some of them, unless `ignore_stale`; its
        `receipts` say which. The others are still acknowledged. `nack`, `reject` and `extend` work
        the same way.
        """
        self._portal.call(
            self._async.ack([each._async for each in messages], ignore_stale=ignore_stale)
        )

    def nack(
        self,
        messages: Iterable[Message],
        delay_s: float = 0.0,
        *,
        count: bool = True,
        ignore_stale: bool = False,
    ) -> None:
        """Give messages back so that they are delivered again; see `Message.nack`."""
        self._portal.call(
            self._async.nack(
                [each._async for each in messages],
                delay_s,
                count=count,
                ignore_stale=ignore_stale,
            )
        )

    def reject(self, messages: Iterable[Message], *, ignore_stale: bool = False) -> None:
        """Send these straight to the dead letters, because nobody can process them."""
        self._portal.call(
            self._async.reject([each._async for each in messages], ignore_stale=ignore_stale)
        )

    def extend(self, messages: Iterable[Message], s: float, *, ignore_stale: bool = False) -> None:
        """Keep messages for this many seconds from now."""
        self._portal.call(
            self._async.extend([each._async for each in messages], s, ignore_stale=ignore_stale)
        )

    def transaction(self, messages: Iterable[Message]) -> Transaction:
        """A transaction that acknowledges all of these together with what it publishes."""
        return Transaction(
            self._portal,
            self._async.transaction([each._async for each in messages]),
        )

    def consume(
        self,
        *,
        consumer: str | None = None,
        concurrency: int = 1,
        batch: int | None = None,
        until_empty: bool = False,
    ) -> Consumer:
        """Messages as they arrive, without end.

        You get the next one when fewer than `concurrency` are unsettled, so settle each before you
        ask for the next, or hand them to threads.

        Args:
            consumer: the name of the member; a new random name by default.
            concurrency: how many messages may be unsettled at a time. A message whose time is up no
                longer counts.
            batch: how many to fetch at once; as many as `concurrency` by default. The client
                extends the time of waiting messages, and gives them back when the iteration ends.
            until_empty: end when there are no more messages and all are settled, instead of waiting
                for more.
        """
        return Consumer(
            self._portal,
            self._async.consume(
                consumer=consumer,
                concurrency=concurrency,
                batch=batch,
                until_empty=until_empty,
            ),
        )

    def __repr__(self) -> str:
        return repr(self._async).replace("AsyncGroup", type(self).__name__)
