"""The blocking client. Written by scripts/make_sync.py from aio/subscription.py: DO NOT EDIT."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.client.aio.subscription import AsyncClaim, AsyncSubscription
from headwater.client.protocol.subscriptions import LinkedStream, SubscriptionInfo, WebhookWake
from headwater.client.sync.portal import Blocking, BlockingContext


class Claim(BlockingContext[AsyncClaim]):
    """A wake that this worker holds until it is done, gives it back, or is silent for too long.

        with client.subscription("mail").claim() as claim:
            for linked in claim.pending:
                stream = client.stream(linked.path)
                print(stream.read_json(offset=linked.acked_offset))

    At the end of the block everything that the claim showed is acknowledged, but for streams that
    were acknowledged within it. If it ends with an exception, the wake goes back.
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
        """How long the worker may be silent; each `ack` starts it over."""
        return self._async.lease_ttl_s

    @property
    def streams(self) -> tuple[LinkedStream, ...]:
        """The linked streams, those with something to do first."""
        return self._async.streams

    @property
    def pending(self) -> tuple[LinkedStream, ...]:
        """The streams with something to do."""
        return self._async.pending

    def ack(self, acks: Mapping[str, str] | None = None, *, done: bool = False) -> bool:
        """Report progress; True if another wake follows at once.

        Args:
            acks: the last offset that was processed, by stream. None only extends the lease.
            done: give the wake up; what is not acknowledged wakes again.
        """
        return self._portal.call(self._async.ack(acks, done=done))

    def release(self) -> None:
        """Give the wake back undone, so that another worker can have it."""
        self._portal.call(self._async.release())

    def __repr__(self) -> str:
        return repr(self._async).replace("AsyncClaim", type(self).__name__)


class Subscription(Blocking[AsyncSubscription]):
    """Someone is woken when streams have something new.

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
        """Create the subscription, or find it with the same settings.

        Args:
            webhook: the https address to wake.
            wake_stream: or the stream to put an event into for each wake, for workers to claim.
            pattern: which streams it is about: `*` is one segment of a path, `**` any number.
            streams: more streams, by name.
            lease_ttl_s: how long whoever is woken may be silent; 30 seconds by default.
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
        """Remove it; `SubscriptionNotFound` if there is none. The streams stay as they are."""
        self._portal.call(self._async.delete())

    def add_streams(self, paths: Iterable[str]) -> None:
        """Name more streams. Those that are there begin at their end."""
        self._portal.call(self._async.add_streams(paths))

    def remove_stream(self, path: str) -> None:
        """Take a name back. A stream that the pattern takes in stays."""
        self._portal.call(self._async.remove_stream(path))

    def claim(self, worker: str | None = None) -> Claim:
        """Take the wake that is there.

        Raises `NoPendingWork` if there is nothing to do, `AlreadyClaimed` if someone is at it.

        Args:
            worker: who claims; a random name that belongs to this handle by default.
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
