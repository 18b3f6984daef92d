"""The blocking client. Written by scripts/make_sync.py from aio/subscription.py: DO NOT EDIT."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.client.aio.subscription import AsyncClaim, AsyncSubscription
from headwater.client.protocol.subscriptions import LinkedStream, SubscriptionInfo, WebhookWake
from headwater.client.sync.portal import Blocking, BlockingContext


class Claim(BlockingContext[AsyncClaim]):
    """A wake that this worker holds until it is done, gives it back, or does not report for too
    long.

        with client.subscription("mail").claim() as claim:
            for linked in claim.pending:
                stream = client.stream(linked.path)
                print(stream.read_json(offset=linked.acked_offset))

    At the end of the block, everything that the claim listed is acknowledged, except streams that
    were acknowledged within it. After an exception, the wake is released.
    """

    @property
    def wake_id(self) -> str:
        """Names the wake."""
        return self._async.wake_id

    @property
    def generation(self) -> int:
        """The number of the wake."""
        return self._async.generation

    @property
    def lease_ttl_s(self) -> float:
        """How long the worker may go without reporting; each `ack` starts it over."""
        return self._async.lease_ttl_s

    @property
    def streams(self) -> tuple[LinkedStream, ...]:
        """The linked streams, those with pending messages first."""
        return self._async.streams

    @property
    def pending(self) -> tuple[LinkedStream, ...]:
        """The streams with pending messages."""
        return self._async.pending

    def ack(self, acks: Mapping[str, str] | None = None, *, done: bool = False) -> bool:
        """Report progress; True if another wake follows at once.

        Args:
            acks: the last offset that was processed, by stream. None only extends the lease.
            done: give the wake up; what is not acknowledged wakes again.
        """
        return self._portal.call(self._async.ack(acks, done=done))

    def release(self) -> None:
        """Give the wake back unfinished, so that another worker can have it."""
        self._portal.call(self._async.release())

    def __repr__(self) -> str:
        return repr(self._async).replace("AsyncClaim", type(self).__name__)


class Subscription(Blocking[AsyncSubscription]):
    """Wakes a webhook or a worker when streams have new messages.

        mail = client.subscription("mail")
        mail.create(pattern="inbox/*", wake_stream="mail-wakes")

    Making a handle costs nothing and sends nothing.
    """

    @property
    def name(self) -> str:
        """The subscription's name."""
        return self._async.name

    @property
    def url(self) -> str:
        """The subscription's full address."""
        return self._async.url

    def create(
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
        return self._portal.call(
            self._async.create(
                webhook=webhook,
                wake_stream=wake_stream,
                pattern=pattern,
                streams=streams,
                lease_ttl_s=lease_ttl_s,
                description=description,
            )
        )

    def info(self) -> SubscriptionInfo:
        """What the server knows about it; `SubscriptionNotFound` if there is none."""
        return self._portal.call(self._async.info())

    def delete(self) -> None:
        """Delete it; `SubscriptionNotFound` if there is none. The streams stay as they are."""
        self._portal.call(self._async.delete())

    def add_streams(self, paths: Iterable[str]) -> None:
        """Add streams by name. Existing ones start at their end."""
        self._portal.call(self._async.add_streams(paths))

    def remove_stream(self, path: str) -> None:
        """Remove a stream by name. A stream that matches the pattern stays."""
        self._portal.call(self._async.remove_stream(path))

    def claim(self, worker: str | None = None) -> Claim:
        """Claim the pending wake.

        Raises `NoPendingWork` if there is nothing to do, `AlreadyClaimed` if another worker has it.

        Args:
            worker: the name of the worker; by default, a random name that belongs to this handle.
        """
        return Claim(self._portal, self._portal.call(self._async.claim(worker)))

    def report(
        self,
        wake: WebhookWake,
        acks: Mapping[str, str] | None = None,
        *,
        done: bool = False,
    ) -> bool:
        """Report progress with a wake that a webhook got; True if another one follows at once.

        Args:
            wake: the wake, as `WebhookKeys.verify` returns it.
            acks: the last offset that was processed, by stream. None only extends the lease.
            done: the work is over; what is not acknowledged wakes again.
        """
        return self._portal.call(self._async.report(wake, acks, done=done))

    def __repr__(self) -> str:
        return repr(self._async).replace("AsyncSubscription", type(self).__name__)
