"""Everything that can go wrong when talking to a stream server, one class per failure.

    HeadwaterError
    ├── ResponseError             the server answered, and the answer is no
    │   ├── BadRequest            400 and other 4xx: the request itself is at fault
    │   │   └── TooLarge          413
    │   ├── Unauthorized          401: no token, or one the server does not know
    │   ├── Forbidden             403: the token does not reach this far
    │   │   └── StaleEpoch        403 naming a newer epoch: another instance took over
    │   ├── StreamNotFound        404
    │   ├── GroupNotFound         404: the stream has no such group
    │   ├── LiveNotEnabled        404: queries cannot wait on the stream
    │   ├── SubscriptionNotFound  404
    │   ├── StreamGone            410: deleted, kept only for its forks
    │   ├── Conflict              409
    │   │   ├── StreamExists      asked to create what is already there
    │   │   │   └── ConfigConflict    … with another configuration
    │   │   ├── StreamClosed      no more appends, ever
    │   │   ├── SequenceConflict  Producer-Seq or Stream-Seq out of order
    │   │   ├── DuplicateId       the stream knows the message's id
    │   │   ├── StaleReceipt      the message is no longer with this member of the group
    │   │   ├── Fenced            the wake is over
    │   │   ├── AlreadyClaimed    another worker has the wake
    │   │   └── NoPendingWork     there is no wake to claim
    │   ├── RateLimited           429, with `retry_after_s`
    │   ├── UpstreamRefused       502: what was to be fetched is an error itself
    │   ├── ServerUnavailable     5xx
    │   └── UnexpectedAnswer      an answer that the protocol does not allow here
    ├── ConnectionFailed          no complete answer came back
    │   ├── RequestTimedOut
    │   └── ServerUnreachable     … and none ever has: nobody is there
    ├── InvalidSignature          a request to a webhook is not genuine, or too old
    │   └── UnknownSigningKey     … or signed with a key that is not known here
    ├── NotSupported              the server does not offer this
    ├── ResponseIncomplete        a durable response ended early
    ├── InvalidMessage            stored data is not what the reader asked it to be
    ├── BufferFull                `Producer.append_nowait` without room
    └── ProducerStopped           the producer has ended and takes no more messages

Every failure says whether the request may have taken effect all the same: `in_doubt`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headwater.core.numbers import whole_number


class HeadwaterError(Exception):
    """Base class of every error this package raises.

    Attributes:
        in_doubt: True if the request may have succeeded although it failed here, as when a
            connection breaks before the answer arrives.
        where: the path that the error is about, such as `/v1/stream/orders`.
    """

    def __init__(self, message: str, *, in_doubt: bool = False, where: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.in_doubt = in_doubt
        self.where = where

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class ResponseError(HeadwaterError):
    """The server answered with an error status.

    Attributes:
        status: the HTTP status.
        code: the stable code of the error body, if the server sent one.
        headers: the answer's headers, names in lower case.
        retry_after_s: how many seconds the server asked the client to wait, if it did.
        help_url: the page about this error, if the server names one.
        index: which publish of a transaction was refused, counted from 0.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
        retry_after_s: float | None = None,
        help_url: str | None = None,
        index: int | None = None,
        in_doubt: bool = False,
        where: str = "",
    ) -> None:
        super().__init__(message, in_doubt=in_doubt, where=where)
        self.status = status
        self.code = code
        self.headers = dict(headers or {})
        self.retry_after_s = retry_after_s
        self.help_url = help_url
        self.index = index

    def __str__(self) -> str:
        label = f"{self.status} {self.code}" if self.code else str(self.status)
        return f"{super().__str__()} ({label})"

    def _integer_header(self, name: str) -> int | None:
        return whole_number(self.headers.get(name, ""))


class BadRequest(ResponseError):
    """The server refused the request; sending it again will not help."""


class TooLarge(BadRequest):
    """The body is larger than the server accepts; nothing was written."""


class Unauthorized(ResponseError):
    """The request has no valid credentials."""


class Forbidden(ResponseError):
    """The credentials do not allow this."""


class StaleEpoch(Forbidden):
    """Another instance of the producer has taken over with a newer epoch."""

    @property
    def current_epoch(self) -> int | None:
        """The epoch that the server holds for this producer."""
        return self._integer_header("producer-epoch")


class StreamNotFound(ResponseError):
    """There is no such stream."""


class GroupNotFound(ResponseError):
    """The stream has no group of this name."""


class LiveNotEnabled(ResponseError):
    """Queries cannot wait on this stream: its profile does not enable it."""


class SubscriptionNotFound(ResponseError):
    """There is no such subscription."""


class StreamGone(ResponseError):
    """The stream was deleted; only its forks can still be read."""


class Conflict(ResponseError):
    """The request conflicts with the stream's current state."""


class StreamExists(Conflict):
    """The stream already exists."""


class ConfigConflict(StreamExists):
    """The stream exists with another configuration, such as another content type."""


class StreamClosed(Conflict):
    """The stream is closed and takes no more appends."""

    @property
    def next_offset(self) -> str | None:
        """The final offset of the stream."""
        return self.headers.get("stream-next-offset")


class SequenceConflict(Conflict):
    """A `Producer-Seq` left a gap, or a `Stream-Seq` did not sort after the last one."""

    @property
    def expected_seq(self) -> int | None:
        """The producer sequence number that the server waits for."""
        return self._integer_header("producer-expected-seq")

    @property
    def received_seq(self) -> int | None:
        """The producer sequence number that the server got."""
        return self._integer_header("producer-received-seq")


class DuplicateId(Conflict):
    """The stream takes each id once, and already has this one; nothing was written."""


class StaleReceipt(Conflict):
    """This member of the group no longer holds the message: another may have it.

    Its time was up, or it is already settled. If `in_doubt` is True, an attempt whose answer was
    lost may have settled it.

    Attributes:
        receipts: which of several messages it was, by their receipts. The others were settled,
            except by a transaction, which then did nothing.
    """

    receipts: tuple[str, ...] = ()


class Fenced(Conflict):
    """The wake is over: it was done, released, or its lease expired. Nothing was changed."""


class AlreadyClaimed(Conflict):
    """Another worker has claimed the wake."""


class NoPendingWork(Conflict):
    """There is nothing to do, and so no wake to claim."""


class RateLimited(ResponseError):
    """The server is busy or the caller over its limit; nothing was written."""


class UpstreamRefused(ResponseError):
    """The upstream of a durable response answered with an error."""

    @property
    def upstream_status(self) -> int | None:
        """The status of that answer."""
        return self._integer_header("upstream-status")


class ServerUnavailable(ResponseError):
    """The server, or something in front of it, is unavailable."""


class UnexpectedAnswer(ResponseError):
    """The answer contradicts the protocol or the request that it claims to answer."""


class ConnectionFailed(HeadwaterError):
    """No complete answer arrived: refused, reset, cut short or lost."""


class RequestTimedOut(ConnectionFailed):
    """The server did not answer in time."""


class ServerUnreachable(ConnectionFailed):
    """No server has ever answered at this address."""


class InvalidSignature(HeadwaterError):
    """A request to a webhook is not from the server it claims to be from, or is too old."""


class UnknownSigningKey(InvalidSignature):
    """The key is not among those that were fetched; the server may have a new one."""


class NotSupported(HeadwaterError):
    """The server only speaks the public protocol, which does not include this."""


class ResponseIncomplete(HeadwaterError):
    """A durable response ended before the upstream had sent everything.

    Attributes:
        reason: why, such as `aborted`, `upstream_failed` or `interrupted`.
        body: what has arrived.
    """

    def __init__(self, reason: str, body: bytes) -> None:
        super().__init__(f"the response ended early: {reason}")
        self.reason = reason
        self.body = body


class InvalidMessage(HeadwaterError):
    """A stored message does not match the expected type."""


class BufferFull(HeadwaterError):
    """The producer's buffer has no room for this message right now."""


class ProducerStopped(HeadwaterError):
    """The producer was closed, or gave up; the reason is the exception's `__cause__`."""


_BY_STATUS: Final[Mapping[int, type[ResponseError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: StreamNotFound,
    409: Conflict,
    410: StreamGone,
    413: TooLarge,
    429: RateLimited,
}


def class_for_status(status: int) -> type[ResponseError]:
    """The most specific class that the status alone decides."""
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:
        return ServerUnavailable
    return BadRequest if 400 <= status < 500 else UnexpectedAnswer
