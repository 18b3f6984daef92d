"""Durable responses: answers of other servers that survive a lost connection."""

from __future__ import annotations

from headwater.client.aio.reader import AsyncItems, AsyncReader
from headwater.client.aio.sender import Sender
from headwater.client.errors import ResponseIncomplete
from headwater.client.protocol.batch import Position
from headwater.client.protocol.responses import ABORT, join_address, split_address
from headwater.client.protocol.streams import START, Live, Request


class AsyncDurableResponse:
    """An answer that the server fetches for us, and keeps.

        answer = await client.durable_request(url, json=question)
        save(answer.url)
        async for text in answer.text():
            print(text, end="")

    `url` is a signed address: whoever has it can read the response, from the beginning or from a
    saved position, and abort it. `client.durable_response(url)` is the same response again, in
    another process or on another day.
    """

    def __init__(self, sender: Sender, url: str, *, content_type: str | None = None) -> None:
        self._content_type = content_type
        self._url, self._signature = split_address(url)
        self._sender = sender.accompanied(params=self._signature)

    @property
    def content_type(self) -> str | None:
        """What the upstream called it; None if only the address is known."""
        return self._content_type

    @property
    def url(self) -> str:
        """The signed address."""
        return join_address(self._url, self._signature)

    def follow(self, offset: str | Position = START, *, live: Live = "sse") -> AsyncReader:
        """Read from an offset or a saved position on, until everything has arrived.

            async for piece in answer.follow().bytes():
                file.write(piece)

        The reader goes on by itself when a connection is lost. At its end, `close_reason` says
        whether that was all.
        """
        start = Position.parse(offset)
        return AsyncReader(self._sender, self._url, start=start, live=live)

    def text(self, offset: str | Position = START) -> AsyncItems[str]:
        """The body as pieces of text, never cut inside a character, as they arrive."""
        return self.follow(offset).text()

    async def read(self) -> bytes:
        """Wait for the whole body. Raises `ResponseIncomplete` if it ended early."""
        reader = self.follow()
        body = b"".join([piece async for piece in reader.bytes()])
        if reader.close_reason is not None:
            raise ResponseIncomplete(reader.close_reason, body)
        return body

    async def abort(self) -> None:
        """End the request to the upstream. What has arrived stays. May be repeated."""
        await self._sender.perform(Request("PATCH", self._url, params=ABORT))

    async def delete(self) -> None:
        """End it and drop what it holds. Needs a token; may be repeated."""
        await self._sender.perform(Request("DELETE", self._url))

    def __repr__(self) -> str:
        # The signature is as good as a key.
        return f"<{type(self).__name__} {self._url}>"
