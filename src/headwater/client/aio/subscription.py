"""A handle for one subscription, and a wake that was claimed from it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Self
from urllib.parse import quote

from headwater.client.aio.sender import Sender
from headwater.client.errors import Fenced, SubscriptionNotFound
from headwater.client.protocol.streams import Request
from headwater.client.protocol.subscriptions import (
    Claimed,
    LinkedStream,
    SubscriptionInfo,
    WebhookWake,
    action_request,
    claimed,
    create_request,
    next_wake,
    report_fields,
    subscription_info,
    subscription_url,
)


class AsyncClaim:
    """A wake that this worker holds until it is done, gives it back, or does not report for too
    long.

        async with await client.subscription("mail").claim() as claim:
            for linked in claim.pending:
                stream = client.stream(linked.path)
                print(await stream.read_json(offset=linked.acked_offset))

    At the end of the block, everything that the claim listed is acknowledged, except streams that
    were acknowledged within it. After an exception, the wake is released.
    """

    def __init__(self, sender: Sender, url: str, claimed: Claimed) -> None:
        self._sender = sender
        self._url = url
        self._claimed = claimed
        self._acked: set[str] = set()
        self._over = False

    @property
    def wake_id(self) -> str:
        """Names the wake."""
        return self._claimed.wake_id

    @property
    def generation(self) -> int:
        """The number of the wake."""
        return self._claimed.generation

    @property
    def lease_ttl_s(self) -> float:
        """How long the worker may go without reporting; each `ack` starts it over."""
        return self._claimed.lease_ttl_ms / 1000

    @property
    def streams(self) -> tuple[LinkedStream, ...]:
        """The linked streams, those with pending messages first."""
        return self._claimed.streams

    @property
    def pending(self) -> tuple[LinkedStream, ...]:
        """The streams with pending messages."""
        return tuple(stream for stream in self.streams if stream.has_pending)

    async def ack(self, acks: Mapping[str, str] | None = None, *, done: bool = False) -> bool:
        """Report progress; True if another wake follows at once.

        Args:
            acks: the last offset that was processed, by stream. None only extends the lease.
            done: give the wake up; what is not acknowledged wakes again.
        """
        fields = report_fields(self.wake_id, self.generation, acks, done=done)
        request = action_request(self._url, "ack", fields, token=self._claimed.token)
        answer = await self._sender.perform(request)
        self._acked.update(acks or {})
        self._over = self._over or done
        return next_wake(answer.response)

    async def release(self) -> None:
        """Give the wake back unfinished, so that another worker can have it."""
        fields = {"wake_id": self.wake_id, "generation": self.generation}
        request = action_request(self._url, "release", fields, token=self._claimed.token)
        try:
            await self._sender.perform(request)
        except Fenced as error:
            # An attempt whose answer was lost has done it already.
            if not error.in_doubt:
                raise
        self._over = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        if self._over:
            return
        if exc_type is not None:
            await self.release()
        else:
            left = [each for each in self.pending if each.path not in self._acked]
            await self.ack({each.path: each.tail_offset for each in left}, done=True)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._url} generation {self.generation}>"


class AsyncSubscription:
    """Wakes a webhook or a worker when streams have new messages.

        mail = client.subscription("mail")
        await mail.create(pattern="inbox/*", wake_stream="mail-wakes")

    Making a handle costs nothing and sends nothing.
    """

    def __init__(self, sender: Sender, root: str, name: str) -> None:
        self._sender = sender
        self._name = name
        self._url = subscription_url(root, name)
        self._worker = uuid.uuid4().hex

    @property
    def name(self) -> str:
        """The subscription's name."""
        return self._name

    @property
    def url(self) -> str:
        """The subscription's full address."""
        return self._url

    async def create(
        self,
        *,
        webhook: str | None = None,
        wake_stream: str | None = None,
        pattern: str | None = None,
        streams: Iterable[str] = (),
        lease_ttl_s: float | None = None,
        description: str | None = None,
    ) -> SubscriptionInfo:
        """Create the subscription, unless it exists with the same settings.

        Args:
            webhook: the https address to call.
            wake_stream: or the stream to which each wake appends an event, for workers to claim.
            pattern: which streams to watch: `*` is one segment of a path, `**` any number.
            streams: more streams, by name.
            lease_ttl_s: how long a worker may go without reporting; 30 seconds by default.
            description: what it is for.
        """
        request = create_request(
            self._url,
            webhook=webhook,
            wake_stream=wake_stream,
            pattern=pattern,
            streams=streams,
            lease_ttl_s=lease_ttl_s,
            description=description,
        )
        return subscription_info((await self._sender.perform(request)).response)

    async def info(self) -> SubscriptionInfo:
        """What the server knows about it; `SubscriptionNotFound` if there is none."""
        answer = await self._sender.perform(Request("GET", self._url))
        return subscription_info(answer.response)

    async def delete(self) -> None:
        """Delete it; `SubscriptionNotFound` if there is none. The streams stay as they are."""
        try:
            await self._sender.perform(Request("DELETE", self._url))
        except SubscriptionNotFound as error:
            # An attempt whose answer was lost has done it already.
            if not error.in_doubt:
                raise

    async def add_streams(self, paths: Iterable[str]) -> None:
        """Add streams by name. Existing ones start at their end."""
        fields = {"streams": list(paths)}
        await self._sender.perform(action_request(self._url, "streams", fields))

    async def remove_stream(self, path: str) -> None:
        """Remove a stream by name. A stream that matches the pattern stays."""
        url = f"{self._url}/streams/{quote(path, safe='')}"
        await self._sender.perform(Request("DELETE", url))

    async def claim(self, worker: str | None = None) -> AsyncClaim:
        """Claim the pending wake.

        Raises `NoPendingWork` if there is nothing to do, `AlreadyClaimed` if another worker has it.

        Args:
            worker: the name of the worker; by default, a random name that belongs to this handle.
        """
        fields = {"worker": worker or self._worker}
        # If the answer is lost, so is the token, and asking again would say that we hold it.
        request = action_request(self._url, "claim", fields, repeatable=False)
        answer = await self._sender.perform(request)
        return AsyncClaim(self._sender, self._url, claimed(answer.response))

    async def report(
        self, wake: WebhookWake, acks: Mapping[str, str] | None = None, *, done: bool = False
    ) -> bool:
        """Report progress with a wake that a webhook got; True if another one follows at once.

        Args:
            wake: the wake, as `WebhookKeys.verify` returns it.
            acks: the last offset that was processed, by stream. None only extends the lease.
            done: the work is over; what is not acknowledged wakes again.
        """
        fields = report_fields(wake.wake_id, wake.generation, acks, done=done)
        request = action_request(self._url, "callback", fields, token=wake.callback_token)
        return next_wake((await self._sender.perform(request)).response)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._url}>"
