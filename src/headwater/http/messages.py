"""What passes between the connection and the handlers.

Handlers know nothing about sockets. They take a `Request` and return a `Response`, an awaitable of
one, or an `EventStream` that is fed over time through a `Sink`.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv6Address, ip_address
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

from headwater.core.access import Caller, Permission
from headwater.core.errors import InvalidHeader
from headwater.http.headers import REQUEST_ID
from headwater.http.wire.body_budget import Claim
from headwater.http.wire.reader_budget import NODES, ReaderBudget
from headwater.service.replies import Reply, Waiter
from headwater.store.engine.appends import Piece

if TYPE_CHECKING:
    from headwater.http.routes.matching import Match
    from headwater.http.wire.known_heads import KnownHead

Headers = list[tuple[str, str]]
_PROXY_HEADERS: Final = (b"forwarded", b"via", b"x-forwarded-for", b"x-real-ip")
# Other ids could corrupt a log: too long, or with characters that are special there.
_SANE_ID: Final = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_PROCESS: Final = secrets.token_hex(4)
_numbers: Final = count(1)


class Peer(NamedTuple):
    """The other end of a connection, and what all its requests share."""

    address: str = ""
    scheme: str = "http"
    readers: ReaderBudget | None = None


NOBODY: Final = Peer()


class Request(msgspec.Struct, eq=False):
    method: str
    path: bytes
    """As sent, still percent-encoded."""
    query: bytes
    headers: dict[bytes, bytes]
    """Names in lower case; for a repeated header, the first value."""
    body: bytes = b""
    hops: int = 0
    """How often other nodes of a cluster have forwarded it."""
    is_of_node: bool = False
    """Whether another node of the cluster sent it on its own behalf."""
    keep_alive: bool = True
    on_disconnect: Callable[[], None] | None = None
    """Set by `wait`: called when the client hangs up."""
    is_abandoned: bool = False
    """Whether the client has hung up: nobody waits for the answer any more."""
    peer: Peer = NOBODY
    caller: Caller | None = None
    """Who sent it, if the gate checked."""
    charge: Callable[[int], None] | None = None
    """Called with the size of the answer, if there is a byte rate limit."""
    claim: Claim | None = None
    """The memory reserved for a large body."""
    waits: bool = False
    route: str = "other"
    """The path template of its resource, for figures, logs and traces."""
    began_s: float = 0.0
    """When its turn came, by `time.perf_counter`."""
    match: Match | None = None
    """Its resource, once looked up."""
    head: KnownHead | None = None
    """What it shares with requests that have nearly the same head."""
    _id: str | None = None

    @property
    def id(self) -> str:
        """The id of this request in logs: the client's, or one made here."""
        if self._id is None:
            self._id = request_id(self.headers.get(REQUEST_ID))
        return self._id

    @property
    def holder(self) -> str:
        """Whom its body and its live read are counted for."""
        if self.is_of_node:
            return NODES
        return self.peer.address if self.caller is None else self.caller.name

    @property
    def is_local(self) -> bool:
        """Whether it was sent from this machine, and not through a proxy."""
        if any(name in self.headers for name in _PROXY_HEADERS):
            return False
        try:
            address = ip_address(self.peer.address)
        except ValueError:
            return False
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return (mapped or address).is_loopback

    def demand(self, permission: Permission, path: str) -> None:
        """Refuse the request if its sender lacks a permission for a stream that it names."""
        if self.caller is not None:
            self.caller.demand(permission, path)

    def may(self, permission: Permission, path: str) -> bool:
        return self.caller is None or self.caller.grants.allow(permission, path)

    def demand_group(self, path: str, group: str) -> None:
        if self.caller is not None:
            self.caller.demand_group(path, group)

    def wait(self, on_disconnect: Callable[[], None]) -> None:
        """Count it as a live read, if there is room; `on_disconnect` is called on hang-up."""
        readers = self.peer.readers
        if readers is not None and not self.waits:
            readers.enter(self.holder, self.peer.address)
            self.waits = True
        self.on_disconnect = on_disconnect

    def leave_room(self) -> None:
        """It no longer waits."""
        if self.waits and self.peer.readers is not None:
            self.waits = False
            self.peer.readers.leave(self.holder)

    def release(self) -> None:
        """Its body is no longer needed."""
        if self.claim is not None:
            self.claim.release()

    def header(self, name: bytes) -> str | None:
        """A header that the protocol reads. Those are plain ASCII."""
        value = self.headers.get(name)
        if value is None:
            return None
        try:
            return value.decode("ascii")
        except UnicodeDecodeError:
            raise InvalidHeader(name.decode(), "must be plain ASCII") from None

    def flag(self, name: bytes) -> bool:
        """Whether a header is `true`. Any other value counts as absent."""
        value = self.headers.get(name)
        return value is not None and value.strip().lower() == b"true"


def request_id(given: bytes | None) -> str:
    """The client's id, if it is safe to log, or a new one: unique enough and cheap."""
    if given is not None and _SANE_ID.fullmatch(given):
        return given.decode("ascii")
    return f"{_PROCESS}-{next(_numbers):x}"


class FileBody:
    """A body that is partly or wholly in files, for the kernel to send."""

    __slots__ = ("_length", "parts")

    def __init__(self, parts: Sequence[Piece]) -> None:
        self.parts = tuple(parts)
        self._length = sum(map(len, parts))

    def __len__(self) -> int:
        return self._length

    def read(self) -> bytes:
        """The whole body. Not for the event loop: it may have to be read from disk."""
        return b"".join(part if isinstance(part, bytes) else part.read() for part in self.parts)


class Response(msgspec.Struct):
    status: int
    headers: Headers = []
    body: bytes | FileBody = b""
    close: bool = False
    """Close the connection after this response."""
    code: str = ""
    """The error code, for figures and logs."""
    lines: bytes = b""
    """Further headers, already encoded, for frequent answers."""


class Payload:
    """Bytes for many readers, framed for the wire once."""

    __slots__ = ("framed", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.framed = b"%x\r\n%b\r\n" % (len(raw), raw)


class Sink(Protocol):
    """The writing end of an event stream."""

    ended_here: bool
    """Whether the server ended it, not the reader."""
    cut_off: bool
    """Whether it ended before the reader had received everything that was sent."""

    @property
    def paused(self) -> bool:
        """Whether the reader has so much unread data that the sender should wait."""

    def send(self, payload: Payload) -> bool:
        """Send an event without waiting. False if the reader is gone or too slow: a reader with too
        much unread data is cut off, and reconnects from its offset.
        """

    async def drained(self) -> bool:
        """Wait until the reader has received most of what was sent. False if it is gone."""

    def end(self) -> None:
        """End the stream; the response ends cleanly."""


class EventStream(msgspec.Struct):
    headers: Headers
    start: Callable[[Sink], None]
    """Called once the response has started."""
    stopped: Callable[[], None]
    """Called when the reader is gone, for whatever reason."""


Answer = Response | EventStream


class Deferred(msgspec.Struct, frozen=True):
    """An answer that is rendered once a commit is done, without a task that waits for it."""

    future: asyncio.Future[Any] | Reply[Any]
    render: Callable[[Any], Answer]

    async def resolve(self) -> Answer:
        return self.render(await self.future)


class Shortcut(Protocol):
    """The way from a body to a commit and back, for the most frequent requests.

    Everything that a request says but for its body is known, and so is that it may be answered.
    """

    status: int
    """Of every answer that is not an error."""

    def take(self, request: Request, waiter: Waiter) -> bool:
        """Pass it on: the waiter is settled once. False if this has done nothing."""

    def render(self, outcome: Any) -> tuple[bytes, bytes]:
        """The headers and the body of the answer, for what the waiter was settled with."""


Handler = Callable[[Request], Answer | Deferred | Awaitable[Answer]]
Screen = Callable[[Request, int], Response | int]
"""Checks a request before its body is read. Returns how much body it may have (at most the number
given, and 0 if it needs none), or the response that refuses it.
"""
