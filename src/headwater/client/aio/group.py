"""A handle for one group of a stream: who works on its messages."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable

from headwater.client.aio.consumer import AsyncConsumer
from headwater.client.aio.link import GroupLink
from headwater.client.aio.message import (
    AsyncMessage,
    AsyncTransaction,
    extend_all,
    settle_all,
    transaction_of,
)
from headwater.client.errors import GroupNotFound
from headwater.client.protocol.batch import Position
from headwater.client.protocol.groups import (
    GroupInfo,
    Lease,
    action_request,
    deliveries,
    fetch_request,
    group_info,
    milliseconds,
    settings_request,
)
from headwater.client.protocol.streams import Request, Response


class AsyncGroup:
    """A group gives the messages of a stream to its members, each to one member at a time.

        group = client.stream("orders").group("workers")
        await client.stream("orders").ensure(content_type="application/json")
        await group.ensure(ack_timeout_s=60)
        for message in await group.fetch(max=10):
            async with message:
                print(message.value)

    Creating a handle sends nothing.
    """

    def __init__(self, link: GroupLink) -> None:
        self._sender = link.sender
        self._link = link
        self._consumer = uuid.uuid4().hex

    @property
    def name(self) -> str:
        """The group's name."""
        return self._link.name

    @property
    def url(self) -> str:
        """The group's full address."""
        return self._link.url

    # --- The group -------------------------------------------------------------------------------

    async def ensure(
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
        settings = {
            "durable": durable,
            "start": None if start is None else str(start),
            "max_in_flight": max_in_flight,
            "ack_timeout_s": ack_timeout_s,
            "max_deliveries": max_deliveries,
            "dead_letter": dead_letter,
            "order_by": order_by,
            "version": version,
        }
        answer = await self._sender.perform(settings_request(self._link.url, settings))
        return self._learned(answer.response)

    async def info(self) -> GroupInfo:
        """What the server knows about the group; `GroupNotFound` if there is none."""
        answer = await self._sender.perform(Request("GET", self._link.url))
        return self._learned(answer.response)

    async def delete(self) -> None:
        """Delete the group; `GroupNotFound` if there is none. The stream stays as it is."""
        try:
            await self._sender.perform(Request("DELETE", self._link.url))
        except GroupNotFound as error:
            # An attempt whose answer was lost has done it already.
            if not error.in_doubt:
                raise

    async def seek(self, to: str | Position) -> None:
        """Continue at `"first"`, `"latest"`, an offset, or a saved position of a reader.

        The group forgets all current deliveries.
        """
        await self._sender.perform(action_request(self._link.url, "seek", {"to": str(to)}))

    async def pause(self) -> None:
        """Deliver nothing until `resume`."""
        await self._sender.perform(action_request(self._link.url, "pause"))

    async def resume(self) -> None:
        """Deliver messages again."""
        await self._sender.perform(action_request(self._link.url, "resume"))

    # --- Work ------------------------------------------------------------------------------------

    async def fetch(
        self,
        *,
        consumer: str | None = None,
        max: int = 1,
        wait_s: float = 0.0,
        ack: Iterable[AsyncMessage] = (),
    ) -> list[AsyncMessage]:
        """Ask for messages, and wait for the first one if there are none.

        Args:
            consumer: the name of the member; by default, a random name that belongs to this handle.
            max: how many messages at most (up to 1000).
            wait_s: how long to wait (up to 60).
            ack: messages to acknowledge first, in the same request. Stale ones are left out, as
                with `ignore_stale`.
        """
        done = self._own(ack)
        request = fetch_request(
            self._link.url,
            consumer=self._consumer if consumer is None else consumer,
            most=max,
            wait_s=wait_s,
            ack=[message.receipt for message in done],
        )
        answer = await self._sender.perform(request)
        for message in done:
            message._is_settled()
        now = asyncio.get_running_loop().time()
        return [
            AsyncMessage(self._link, each, Lease(each.receipt, now), _nothing)
            for each in deliveries(answer.response)
        ]

    async def ack(self, messages: Iterable[AsyncMessage], *, ignore_stale: bool = False) -> None:
        """Acknowledge all of these in one request.

        Raises `StaleReceipt` if you no longer hold some of them, unless `ignore_stale`; its
        `receipts` say which. The others are still acknowledged. `nack`, `reject` and `extend` work
        the same way.
        """
        if held := self._own(messages):
            await settle_all(self._link, held, "ack", ignore_stale=ignore_stale)

    async def nack(
        self,
        messages: Iterable[AsyncMessage],
        delay_s: float = 0.0,
        *,
        count: bool = True,
        ignore_stale: bool = False,
    ) -> None:
        """Give messages back so that they are delivered again; see `AsyncMessage.nack`."""
        if held := self._own(messages):
            await settle_all(
                self._link,
                held,
                "nack",
                ignore_stale=ignore_stale,
                delay_ms=milliseconds(delay_s),
                count=count,
            )

    async def reject(self, messages: Iterable[AsyncMessage], *, ignore_stale: bool = False) -> None:
        """Send these straight to the dead letters, because nobody can process them."""
        if held := self._own(messages):
            await settle_all(self._link, held, "reject", ignore_stale=ignore_stale)

    async def extend(
        self, messages: Iterable[AsyncMessage], s: float, *, ignore_stale: bool = False
    ) -> None:
        """Keep messages for this many seconds from now."""
        if held := self._own(messages):
            await extend_all(self._link, held, s, ignore_stale=ignore_stale)

    def transaction(self, messages: Iterable[AsyncMessage]) -> AsyncTransaction:
        """A transaction that acknowledges all of these together with what it publishes."""
        return transaction_of(self._link, self._own(messages))

    def consume(
        self,
        *,
        consumer: str | None = None,
        concurrency: int = 1,
        batch: int | None = None,
        until_empty: bool = False,
    ) -> AsyncConsumer:
        """Messages as they arrive, without end.

        You get the next one when fewer than `concurrency` are unsettled, so settle each before you
        ask for the next, or start a task for each.

        Args:
            consumer: the name of the member; a new random name by default.
            concurrency: how many messages may be unsettled at a time. A message whose time is up no
                longer counts.
            batch: how many to fetch at once; as many as `concurrency` by default. The client
                extends the time of waiting messages, and gives them back when the iteration ends.
            until_empty: end when there are no more messages and all are settled, instead of waiting
                for more.
        """
        if concurrency < 1 or (batch is not None and batch < 1):
            raise ValueError("concurrency and batch must be at least 1")
        if consumer == "":
            raise ValueError("a consumer needs a name; leave it out for a random one")
        return AsyncConsumer(
            self._link,
            consumer=consumer or uuid.uuid4().hex,
            concurrency=concurrency,
            batch=batch or min(concurrency, 1000),
            until_empty=until_empty,
        )

    def _own(self, messages: Iterable[AsyncMessage]) -> list[AsyncMessage]:
        held = list(messages)
        if any(message._link.url != self._link.url for message in held):
            raise ValueError(f"some of the messages are not from the group {self.name!r}")
        return held

    def _learned(self, response: Response) -> GroupInfo:
        info = group_info(response)
        self._link.known_ack_timeout_s = info.settings.ack_timeout_s
        return info

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._link.url}>"


def _nothing() -> None:
    """Nobody needs to know when a fetched message is settled."""
