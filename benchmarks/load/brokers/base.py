"""The operations of every broker."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import cast

from benchmarks.load.http import HOST

Done = Callable[[], None]
Fetched = Callable[[list[bytes], bytes], None]
"""Called with a receipt for each message, and with the bytes that hold the messages."""

HELD_MAX = 100_000
"""How many messages the members of a group may hold at a time, in every system."""
ACK_SECONDS = 60
WAIT_SECONDS = 5


class Broker(asyncio.Protocol, ABC):
    """One connection, with one request in flight. Errors are passed to ``failed``."""

    def __init__(self, failed: Callable[[str], None]) -> None:
        self._failed = failed
        self._buffer = b""
        self._closed = False
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # ── Operations ───────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def create_stream(self, stream: str, done: Done) -> None: ...

    @abstractmethod
    def create_group(self, stream: str, group: str, done: Done) -> None: ...

    @abstractmethod
    def append(self, stream: str, messages: Sequence[bytes], done: Done) -> None:
        """Append messages in the system's best way; all are stored."""

    @abstractmethod
    def fetch(self, stream: str, group: str, consumer: str, most: int, done: Fetched) -> None:
        """Up to ``most`` messages; none if nothing arrives for ``WAIT_SECONDS``."""

    @abstractmethod
    def ack(self, stream: str, group: str, receipts: Sequence[bytes], done: Done) -> None:
        """Acknowledge, and wait for the system's confirmation."""

    def ack_and_fetch(
        self,
        stream: str,
        group: str,
        consumer: str,
        receipts: Sequence[bytes],
        most: int,
        done: Fetched,
    ) -> None:
        """Acknowledge and fetch with one message to the system; it confirms both."""
        raise NotImplementedError

    def transact(
        self, stream: str, group: str, receipt: bytes, target: str, message: bytes, done: Done
    ) -> None:
        """Acknowledge one message and append another, both or neither."""
        raise NotImplementedError

    # ── The connection ───────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._greet()

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._closed:
            self._failed(f"the connection was lost: {exc}")

    def close(self) -> None:
        self._closed = True
        self._transport.close()

    def _greet(self) -> None:
        self.ready.set_result(None)

    @abstractmethod
    def _advance(self) -> None:
        """Check whether the answer is complete."""


async def connect(
    kind: type[Broker], port: int, count: int, failed: Callable[[str], None]
) -> list[Broker]:
    loop = asyncio.get_running_loop()
    brokers: list[Broker] = []
    for _ in range(count):
        _, broker = await loop.create_connection(lambda: kind(failed), HOST, port)
        await broker.ready
        brokers.append(broker)
    return brokers
