"""What a group, its consumers and its messages share: the way to the server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from headwater.client.aio.sender import Answer, Sender
from headwater.client.protocol.groups import (
    RECEIPTS_MAX,
    Action,
    action_request,
    group_info,
    group_url,
    stale_receipts,
)
from headwater.client.protocol.streams import Request

Settled = tuple[Answer, list[str]]
"""The server's answer, and those of the receipts that were stale."""

SendAcks = Callable[[list[str]], Awaitable[Settled]]

_GATHERED_MAX: Final = 1_000


class GroupLink:
    """One group as its handle, its consumers and its messages see it."""

    def __init__(self, sender: Sender, root: str, path: str, stream_url: str, name: str) -> None:
        self.sender = sender
        self.root = root
        self.path = path
        self.stream_url = stream_url
        self.name = name
        self.url = group_url(stream_url, name)
        self.known_ack_timeout_s: float | None = None
        self._gathered: list[tuple[str, asyncio.Future[Settled]]] = []
        self._acking: asyncio.Task[None] | None = None

    async def ack_timeout_s(self) -> float:
        """How long a member may keep a message. Asked for once."""
        if self.known_ack_timeout_s is None:
            answer = await self.sender.perform(Request("GET", self.url))
            self.known_ack_timeout_s = group_info(answer.response).settings.ack_timeout_s
        return self.known_ack_timeout_s

    async def settle(self, action: Action, receipts: Sequence[str], **fields: Any) -> Settled:
        """Send a word about some deliveries, in as few requests as the server allows."""
        if action == "ack" and len(receipts) == 1:
            return await self._ack(receipts[0])
        return await self.send(action, receipts, fields)

    async def send(
        self, action: Action, receipts: Sequence[str], fields: dict[str, Any]
    ) -> Settled:
        answers: list[Answer] = []
        for first in range(0, len(receipts), RECEIPTS_MAX):
            part = receipts[first : first + RECEIPTS_MAX]
            request = action_request(self.url, action, {"receipts": part, **fields})
            answers.append(await self.sender.perform(request))
        stale = [receipt for answer in answers for receipt in stale_receipts(answer.response)]
        return Answer(answers[-1].response, any(answer.in_doubt for answer in answers)), stale

    # --- Acknowledging one by one ----------------------------------------------------------------

    async def _ack(self, receipt: str) -> Settled:
        """While one request is under way, others gather here and go together in the next."""
        future: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self._gathered.append((receipt, future))
        if self._acking is None:
            self._acking = self.sender.in_background(self._send_gathered())
        return await future

    async def _send_gathered(self) -> None:
        try:
            while self._gathered:
                some = self._gathered[:_GATHERED_MAX]
                del self._gathered[:_GATHERED_MAX]
                await self._send_some(some)
        finally:
            self._acking = None

    async def _send_some(self, some: list[tuple[str, asyncio.Future[Settled]]]) -> None:
        try:
            answer, stale = await self._send_acks([receipt for receipt, _ in some])
        except Exception as error:
            for _, future in some:
                if not future.done():
                    future.set_exception(error)
            return
        except asyncio.CancelledError:
            for _, future in some:
                future.cancel()
            raise
        for receipt, future in some:
            if not future.done():
                future.set_result((answer, [receipt] if receipt in stale else []))

    async def _send_acks(self, receipts: list[str]) -> Settled:
        return await self.send("ack", receipts, {})


class ConsumerLink(GroupLink):
    """The link of one consumer and its messages, whose acknowledgements go its own way."""

    def __init__(self, link: GroupLink, send_acks: SendAcks) -> None:
        super().__init__(link.sender, link.root, link.path, link.stream_url, link.name)
        self._link = link
        self._own_way = send_acks

    async def ack_timeout_s(self) -> float:
        return await self._link.ack_timeout_s()

    async def _send_acks(self, receipts: list[str]) -> Settled:
        return await self._own_way(receipts)
