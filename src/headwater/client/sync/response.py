"""The blocking client. Written by scripts/make_sync.py from aio/response.py: DO NOT EDIT."""

from __future__ import annotations

from headwater.client.aio.response import AsyncDurableResponse
from headwater.client.protocol.batch import Position
from headwater.client.protocol.streams import START, Live
from headwater.client.sync.portal import Blocking
from headwater.client.sync.reader import Items, Reader


class DurableResponse(Blocking[AsyncDurableResponse]):
    """An answer that the server fetches for us, and keeps.

        answer = client.durable_request(url, json=question)
        save(answer.url)
        for text in answer.text():
            print(text, end="")

    `url` is a signed address: whoever has it can read the response, from the beginning or from a
    saved position, and abort it. `client.durable_response(url)` is the same response again, in
    another process or on another day.
    """

    @property
    def content_type(self) -> str | None:
        """What the upstream called it; None if only the address is known."""
        return self._async.content_type

    @property
    def url(self) -> str:
        """The signed address."""
        return self._async.url

    def follow(self, offset: str | Position = START, *, live: Live = "sse") -> Reader:
        """Read from an offset or a saved position on, until everything has arrived.

            for piece in answer.follow().bytes():
                file.write(piece)

        The reader goes on by itself when a connection is lost. At its end, `close_reason` says
        whether that was all.
        """
        return Reader(self._portal, self._async.follow(offset, live=live))

    def text(self, offset: str | Position = START) -> Items[str]:
        """The body as pieces of text, never cut inside a character, as they arrive."""
        return Items(self._portal, self._async.text(offset))

    def read(self) -> bytes:
        """Wait for the whole body. Raises `ResponseIncomplete` if it ended early."""
        return self._portal.call(self._async.read())

    def abort(self) -> None:
        """End the request to the upstream. What has arrived stays. May be repeated."""
        self._portal.call(self._async.abort())

    def delete(self) -> None:
        """End it and drop what it holds. Needs a token; may be repeated."""
        self._portal.call(self._async.delete())

    def __repr__(self) -> str:
        return repr(self._async).replace("AsyncDurableResponse", type(self).__name__)
