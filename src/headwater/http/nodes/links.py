"""Connections to other nodes: HTTP/1.1, kept alive, for forwarded requests.

The other end is a Headwater of the same cluster, which it has to prove before it is sent anything
(`core.peers`). So there are no redirects, proxies or content codings here: responses are passed on
as they are. A response of known length is received as a whole; a chunked one is read chunk by
chunk, no faster than it is consumed. Both are limited to the largest answer of a node, and hardly
anything is accepted before the other end has proved its identity. TCP detects a dead machine within
about ten seconds.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from time import monotonic
from typing import Final, cast
from urllib.parse import urlsplit

import structlog

from headwater.core import peers
from headwater.service import replies

_IDLE_MAX: Final = 64
# Shorter than a server waits for the next request, so that the two do not race.
_IDLE_S_MAX: Final = 30.0
_CONNECT_S_MAX: Final = 3.0
_HEAD_BYTES_MAX: Final = 256 * 1024
_HELLO_BYTES_MAX: Final = 1024
_UNTAKEN_BYTES_MAX: Final = 256 * 1024
_SIZE_LINE_MAX: Final = 20
# Larger bodies are passed on without a copy, which would be memory that nobody counts.
_COPIED_BYTES_MAX: Final = 16 * 1024
_BODILESS: Final = frozenset({204, 304})
_STATUSES: Final = frozenset(status.value for status in HTTPStatus if status.value >= 200)
# Those that the system supports.
_TCP_OPTIONS: Final = {
    "TCP_KEEPIDLE": 5,
    "TCP_KEEPINTVL": 2,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 10_000,
}
HELLO: Final = b"/v1/cluster/hello"

log = structlog.get_logger()


class LinkBroken(Exception):
    """The other end cannot be reached, or hung up. `sent`: it may have received the request.
    `waited`: the wait was long enough.
    """

    def __init__(self, reason: str, *, sent: bool, waited: bool = False) -> None:
        super().__init__(reason)
        self.sent = sent
        self.waited = waited


class Reply:
    """A response: its status, its header lines, and its body, or where to get it."""

    __slots__ = ("_link", "body", "chunked", "lines", "status")

    def __init__(self, link: Link, status: int, lines: list[bytes], *, chunked: bool) -> None:
        self._link = link
        self.status = status
        self.lines = lines
        self.chunked = chunked
        self.body = b""

    def header(self, name: bytes) -> bytes:
        """A header by its lower-case name."""
        for line in self.lines:
            found, _, value = line.partition(b":")
            if found.lower() == name:
                return value.strip()
        return b""

    async def chunk(self) -> bytes:
        """The next chunk; empty at the end. Raises LinkBroken."""
        return await self._link.next_chunk()

    def close(self) -> None:
        self._link.close()


class Link(asyncio.Protocol):
    """One connection, used by one request at a time."""

    def __init__(self, rest: Callable[[Link], None]) -> None:
        self._rest = rest
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._reply: Reply | None = None
        self._answered: replies.Reply[Reply] | None = None
        self._bodiless = False
        self._left = 0
        """How much of a body is still to come."""
        self._keep_alive = True
        self._chunks: deque[bytes] = deque()
        self._untaken = 0
        self._wanted: asyncio.Future[None] | None = None
        self._paused = False
        self.is_closed = False
        self.rested_s = 0.0
        self.asked_s = 0.0
        self.answer_bytes_max = _HELLO_BYTES_MAX
        """The limit for a body, or for a chunk."""

    # ── The connection ───────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        _keep_watch(transport.get_extra_info("socket"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        if self._answered is not None:
            self._answered.settle(LinkBroken(str(exc or "hung up"), sent=True))
        self._wake()

    def close(self) -> None:
        if not self.is_closed and self._transport is not None:
            self.is_closed = True
            self._transport.abort()

    def hang_up(self) -> None:
        """Nobody waits for the answer any more; the other end still gets what was sent."""
        if not self.is_closed and self._transport is not None:
            self.is_closed = True
            self._transport.close()

    def give_up(self) -> None:
        """Drop a connection to an unresponsive node."""
        if self._answered is not None:
            self._answered.settle(LinkBroken("says nothing", sent=True, waited=True))
        self.close()

    @property
    def is_usable(self) -> bool:
        return not self.is_closed and monotonic() - self.rested_s < _IDLE_S_MAX

    def is_kept_waiting(self, since_s: float) -> bool:
        """Whether a request sent before that time has not been answered."""
        answered = self._answered
        return answered is not None and not answered.done() and self.asked_s < since_s

    # ── A request ────────────────────────────────────────────────────────────────────────────

    async def request(self, head: bytes, body: bytes = b"", *, bodiless: bool = False) -> Reply:
        """Send a request, and wait for its response, or for the head of a chunked one."""
        answered = self.ask(head, body, bodiless=bodiless)
        try:
            return await answered
        except BaseException:
            self.close()
            raise

    def ask(
        self, head: bytes, body: bytes = b"", *, bodiless: bool = False
    ) -> replies.Reply[Reply]:
        """The same, for callers with a callback. Raises LinkBroken if nothing was sent."""
        if self.is_closed or self._transport is None:
            raise LinkBroken("hung up", sent=False)
        self._bodiless, self._reply = bodiless, None
        answered: replies.Reply[Reply] = replies.Reply()
        self._answered = answered
        self.asked_s = monotonic()
        if len(body) <= _COPIED_BYTES_MAX:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)
        return answered

    def release(self) -> None:
        """The response was received as a whole: the next request may use the connection."""
        self._answered = self._reply = None
        if self._keep_alive and not self._data and not self._chunks:
            self.rested_s = monotonic()
            self._rest(self)
        else:
            self.close()

    # ── A response ───────────────────────────────────────────────────────────────────────────

    def data_received(self, data: bytes) -> None:
        self._data += data
        try:
            self._parse()
        except ValueError as error:
            self._fail(f"this is no answer of a node: {error}")

    def _fail(self, reason: str) -> None:
        if self._answered is not None:
            self._answered.settle(LinkBroken(reason, sent=True))
        self.close()
        self._wake()

    def _parse(self) -> None:
        answered = self._answered
        if answered is None:
            raise ValueError("nothing was asked")
        if self._reply is None and not self._parse_head():
            return
        reply = self._reply
        assert reply is not None
        if reply.chunked:
            self._parse_chunks()
            answered.settle(reply)
        elif len(self._data) >= self._left and not answered.done():
            if self._left:
                reply.body = bytes(self._data[: self._left])
                del self._data[: self._left]
            # The callback may send the next request at once.
            answered.settle(reply)

    def _parse_head(self) -> bool:
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            if len(self._data) > _HEAD_BYTES_MAX:
                raise ValueError("its head is too large")
            return False
        first, *lines = bytes(self._data[:end]).split(b"\r\n")
        del self._data[: end + 4]
        version, _, rest = first.partition(b" ")
        if not version.startswith(b"HTTP/1."):
            raise ValueError("it is not HTTP")
        status = int(rest[:3])
        if status not in _STATUSES:
            raise ValueError(f"there is no status {status}")
        reply = self._reply = Reply(self, status, lines, chunked=False)
        self._keep_alive = reply.header(b"connection").lower() != b"close"
        self._left = 0
        if not self._bodiless and status not in _BODILESS:
            reply.chunked = reply.header(b"transfer-encoding").lower() == b"chunked"
            if not reply.chunked:
                self._left = self._size(int(reply.header(b"content-length") or 0))
        return True

    def _size(self, said: int) -> int:
        if not 0 <= said <= self.answer_bytes_max:
            raise ValueError(f"{said} bytes are not what a node answers")
        return said

    # ── Chunks ───────────────────────────────────────────────────────────────────────────────

    def _parse_chunks(self) -> None:
        data = self._data
        while (end := data.find(b"\r\n", 0, _SIZE_LINE_MAX)) >= 0:
            size = self._size(int(data[:end], 16))
            if len(data) < end + size + 4:
                break
            self._chunks.append(bytes(data[end + 2 : end + 2 + size]))
            del data[: end + size + 4]
            self._untaken += size
        if end < 0 and len(data) >= _SIZE_LINE_MAX:
            raise ValueError("these are no chunks")
        if self._untaken > _UNTAKEN_BYTES_MAX and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    async def next_chunk(self) -> bytes:
        while not self._chunks:
            if self.is_closed:
                raise LinkBroken("hung up", sent=True)
            self._wanted = asyncio.get_running_loop().create_future()
            await self._wanted
        chunk = self._chunks.popleft()
        self._untaken -= len(chunk)
        if self._paused and not self._untaken and not self.is_closed:
            self._paused = False
            assert self._transport is not None
            self._transport.resume_reading()
        if not chunk:
            self.release()
        return chunk

    def _wake(self) -> None:
        wanted, self._wanted = self._wanted, None
        if wanted is not None and not wanted.done():
            wanted.set_result(None)


class Links:
    """The connections to one node."""

    def __init__(
        self,
        address: str,
        node_id: int,
        secret: bytes,
        answer_bytes_max: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(address)
        self.address = address
        self._host = parts.hostname or ""
        is_secure = parts.scheme == "https"
        self._port = parts.port or (443 if is_secure else 80)
        self._tls = (tls or ssl.create_default_context()) if is_secure else None
        self._node_id = node_id
        self._secret = secret
        self._answer_bytes_max = answer_bytes_max
        self._trouble: str | None = None
        self.pass_line = b"headwater-node: %b\r\n" % peers.pass_for(secret, node_id)
        self._idle: list[Link] = []
        self._closed = False

    def idle(self) -> Link | None:
        """An existing connection."""
        while self._idle:
            link = self._idle.pop()
            if link.is_usable:
                return link
            link.close()
        return None

    async def connect(self) -> Link:
        """A new connection, verified to lead to the right node."""
        loop = asyncio.get_running_loop()
        connecting = loop.create_connection(
            lambda: Link(self._take_back), self._host, self._port, ssl=self._tls
        )
        try:
            async with asyncio.timeout(_CONNECT_S_MAX):
                _, link = await connecting
                is_proved = await self._is_proved(link)
        except (OSError, ValueError, LinkBroken) as error:
            reason = str(error) or "does not answer"
            raise self._in_vain("node_unreachable", reason) from None
        if not is_proved:
            link.close()
            raise self._in_vain(
                "not_that_node",
                "something else answers at the address of this node: a node of another cluster, "
                "another program, or a newer node; nothing was sent there",
            )
        link.answer_bytes_max = self._answer_bytes_max
        self._trouble = None
        return link

    async def _is_proved(self, link: Link) -> bool:
        """Check that this is the expected node."""
        challenge = secrets.token_hex(peers.CHALLENGE_BYTES).encode()
        head = b"GET %b?challenge=%b HTTP/1.1\r\nhost: localhost\r\n\r\n" % (HELLO, challenge)
        reply = await link.request(head)
        found = reply.body.strip()
        return reply.status == 200 and peers.is_proved(
            found, self._secret, challenge, self._node_id
        )

    def _in_vain(self, what: str, reason: str) -> LinkBroken:
        """Log the failure: once, and not for every retried request."""
        if self._trouble != what:
            self._trouble = what
            log.warning(what, address=self.address, node=self._node_id, reason=reason)
        return LinkBroken(reason, sent=False)

    def _take_back(self, link: Link) -> None:
        if self._closed or len(self._idle) >= _IDLE_MAX:
            link.close()
        else:
            self._idle.append(link)

    def close(self) -> None:
        self._closed = True
        for link in self._idle:
            link.close()
        self._idle.clear()


def _keep_watch(connection: socket.socket | None) -> None:
    if connection is None:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _TCP_OPTIONS.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
