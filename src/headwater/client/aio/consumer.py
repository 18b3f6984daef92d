"""Working through the messages of a group, one after the other or several at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Final, Self

from headwater.client.aio.link import ConsumerLink, GroupLink, Settled
from headwater.client.aio.message import AsyncMessage
from headwater.client.errors import HeadwaterError
from headwater.client.protocol.groups import (
    Delivered,
    Lease,
    action_request,
    deliveries,
    fetch_request,
    milliseconds,
    stale_receipts,
)
from headwater.client.protocol.retry import Retries

WAIT_S: Final = 25.0


class AsyncConsumer:
    """The messages of a group as they arrive, until it is closed or, if you ask for it, empty.

        group = stream.group("workers")
        await group.ensure()
        async with group.consume() as messages:
            async for message in messages:
                async with message:
                    await handle(message.value)
                break

    Messages that were fetched but not given to you go back to the group, and do not count as
    delivered. That happens when you leave the block, when the iteration is cancelled, and when
    nothing refers to the iterator. It survives lost connections and server restarts; an error it
    raises is final.
    """

    def __init__(
        self, link: GroupLink, *, consumer: str, concurrency: int, batch: int, until_empty: bool
    ) -> None:
        self._inbox = Inbox(
            link, consumer=consumer, concurrency=concurrency, batch=batch, until_empty=until_empty
        )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncMessage:
        message = await self._inbox.next_message()
        if message is None:
            raise StopAsyncIteration
        return message

    async def aclose(self) -> None:
        """Stop, and give back messages you have not received. Those you have stay with you."""
        self._inbox.closed = True
        await self._inbox.give_back()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        self._inbox.abandon()


class Inbox:
    """What a consumer has fetched. It does not know the consumer, so that may be forgotten."""

    def __init__(
        self, link: GroupLink, *, consumer: str, concurrency: int, batch: int, until_empty: bool
    ) -> None:
        self.closed = False
        self._link = ConsumerLink(link, self._send_acks)
        self._consumer = consumer
        self._concurrency = concurrency
        self._batch = batch
        self._until_empty = until_empty
        self._retries = Retries(link.sender.retry)
        self._waiting: deque[tuple[AsyncMessage, Lease]] = deque()
        self._handed_out: set[Lease] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ack_timeout_s = 0.0
        self._fetching: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._bringing: asyncio.Future[None] | None = None
        """Done when an acknowledgement that fetches on its way is answered."""
        self._asked = False
        """Whether someone waits for the next message right now."""
        self._changes = asyncio.Event()

    async def next_message(self) -> AsyncMessage | None:
        """The next message, as soon as there is one and few enough are unsettled."""
        self._asked = True
        try:
            if self._loop is None:
                self._ack_timeout_s = await self._link.ack_timeout_s()
                self._loop = asyncio.get_running_loop()
            while not self.closed:
                await self._wait_for_turn()
                message = self._take()
                if message is not None:
                    return message
                await self._fetch_more()
        except BaseException:
            # Cancelled, or a failure that is final. We may never be asked again.
            self._asked = False
            await self.give_back()
            raise
        finally:
            self._asked = False
        return None

    async def give_back(self) -> None:
        """Stop fetching and return what waits, uncounted. Fetching may begin again."""
        await asyncio.shield(self._link.sender.in_background(self._give_back()))

    def abandon(self) -> None:
        """The same when nobody can wait for it; from any thread."""
        loop, self.closed = self._loop, True
        idle = not (self._waiting or self._fetching or self._bringing)
        if loop is None or loop.is_closed() or idle:
            return

        def begin() -> None:
            self._link.sender.in_background(self._give_back())

        # On the loop's own thread at once: the client may be about to close.
        with suppress(RuntimeError):
            if asyncio.get_running_loop() is loop:
                begin()
                return
        with suppress(RuntimeError):  # the loop was closed in this very moment
            loop.call_soon_threadsafe(begin)

    # --- Handing out -----------------------------------------------------------------------------

    async def _wait_for_turn(self) -> None:
        """Wait until fewer messages are with the caller than may be."""
        await self._wait_for_fewer_than(self._concurrency)

    async def _wait_for_fewer_than(self, count: int) -> None:
        loop = asyncio.get_running_loop()
        while not self.closed:
            self._changes.clear()
            now, timeout_s = loop.time(), self._ack_timeout_s
            self._handed_out = {
                lease for lease in self._handed_out if not lease.is_over(timeout_s, now)
            }
            if len(self._handed_out) < count:
                return
            first = min(lease.until(timeout_s) for lease in self._handed_out)
            with suppress(TimeoutError):
                async with asyncio.timeout(first - now):
                    await self._changes.wait()

    def _take(self) -> AsyncMessage | None:
        now = asyncio.get_running_loop().time()
        while self._waiting:
            message, lease = self._waiting.popleft()
            # One that could not be kept is on its way to someone else.
            if not lease.is_over(self._ack_timeout_s, now):
                self._handed_out.add(lease)
                return message
        return None

    # --- Fetching --------------------------------------------------------------------------------

    async def _fetch_more(self) -> None:
        if self._bringing is not None:
            await asyncio.wait({self._bringing})
            return
        if self._fetching is None:
            self._fetching = asyncio.get_running_loop().create_task(self._fetch())
        task = self._fetching
        await asyncio.wait({task})
        if self._fetching is task:
            self._fetching = None
            task.result()

    async def _fetch(self) -> None:
        """Ask once; a failure that can pass is waited out."""
        link = self._link
        wait_s = 0.0 if self._until_empty else WAIT_S
        request = fetch_request(link.url, consumer=self._consumer, most=self._batch, wait_s=wait_s)
        try:
            delivered = deliveries(await link.sender.once(request))
        except HeadwaterError as error:
            await link.sender.pause_or_raise(self._retries, error)
            return
        self._retries.succeeded()
        # A server that was there once is worth waiting for.
        self._retries.policy = link.sender.retry.forever()
        self._put(delivered)
        if self._until_empty and not delivered:
            await self._end_unless_some_may_follow()

    async def _send_acks(self, receipts: list[str]) -> Settled:
        """Acknowledge, and fetch in the same request what would be asked for next anyway."""
        link = self._link
        if not self._asked or self._waiting or self._fetching or self._bringing or self.closed:
            return await link.send("ack", receipts, {})
        # This fetch waits for the acknowledgement, not for messages: it takes what is there.
        request = fetch_request(
            link.url, consumer=self._consumer, most=self._batch, wait_s=0.0, ack=receipts
        )
        bringing = self._bringing = asyncio.get_running_loop().create_future()
        try:
            answer = await link.sender.perform(request)
            self._put(deliveries(answer.response))
            return answer, stale_receipts(answer.response)
        finally:
            self._bringing = None
            bringing.set_result(None)

    def _put(self, delivered: list[Delivered]) -> None:
        loop = asyncio.get_running_loop()
        for each in delivered:
            lease = Lease(each.receipt, loop.time())
            self._waiting.append((AsyncMessage(self._link, each, lease, self._changes.set), lease))
        if len(delivered) > 1 and self._keeping is None:
            self._keeping = loop.create_task(self._keep())

    async def _end_unless_some_may_follow(self) -> None:
        """Nothing was there. What is with the caller may hold up more, or be returned."""
        held = len(self._handed_out)
        if held == 0:
            self.closed = True
        else:
            await self._wait_for_fewer_than(held)

    async def _keep(self) -> None:
        """Extend what waits for its turn, whenever a third of its time is over."""
        timeout_s = self._ack_timeout_s
        loop = asyncio.get_running_loop()
        while self._waiting:
            await asyncio.sleep(timeout_s / 3)
            leases = {lease.receipt: lease for _, lease in self._waiting}
            if not leases:
                break
            now = loop.time()
            # The next turn comes soon enough to make up for a failure.
            with suppress(HeadwaterError):
                _, stale = await self._link.settle(
                    "extend", list(leases), ms=milliseconds(timeout_s)
                )
                for receipt, lease in leases.items():
                    lease.lost = lease.lost or receipt in stale
                    lease.since = now
        self._keeping = None

    async def _give_back(self) -> None:
        tasks = [task for task in (self._fetching, self._keeping) if task is not None]
        self._fetching = self._keeping = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._bringing is not None:
            await asyncio.wait({self._bringing})
        receipts = [lease.receipt for _, lease in self._waiting if not lease.lost]
        self._waiting.clear()
        self._changes.set()
        if receipts:
            fields = {"receipts": receipts, "delay_ms": 0, "count": False}
            # Without an answer, they come back when their time is over.
            with suppress(HeadwaterError):
                await self._link.sender.once(action_request(self._link.url, "nack", fields))
