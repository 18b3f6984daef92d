"""Long-poll: one answer for a request that waits at the tail.

`service.polls` knows who waits and whom to wake. Identical requests share one response, and all
requests share one body: thousands may wait, with many variants of headers.
"""

from __future__ import annotations

import asyncio

from headwater.core.errors import StreamError
from headwater.http.answers import NO_STORE
from headwater.http.errors import error_response
from headwater.http.feeds.readers import Cursors
from headwater.http.messages import Answer, Request, Response
from headwater.http.reads import ChunkBody, Packing, chunk_headers, read_response
from headwater.service.chunks import Chunk
from headwater.service.feeds import Feed
from headwater.service.following import Update


class _Shared:
    """What all requests that waited for the same chunk share."""

    __slots__ = ("answers", "body")

    def __init__(self, chunk: Chunk) -> None:
        self.body = ChunkBody(chunk)
        self.answers: dict[tuple[object, ...], Response | asyncio.Future[Response]] = {}


class LongPoll:
    """A waiting request."""

    __slots__ = ("_cursor", "_cursors", "_packing", "_request", "answer", "position", "timer")

    def __init__(
        self,
        request: Request,
        position: int,
        cursor: int | None,
        cursors: Cursors,
        packing: Packing,
    ) -> None:
        self._request = request
        self._cursor = cursor
        self._cursors = cursors
        self._packing = packing
        self.position = position
        self.timer: asyncio.TimerHandle | None = None
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def wait(self, feed: Feed, timeout_s: float) -> asyncio.Future[Answer]:
        try:
            self._request.wait(lambda: self._abandon(feed))
        except StreamError:
            # There is no room for it, and it may have been the only reader of this feed.
            feed.left(0)
            raise
        feed.polls.add(self, timeout_s)
        return self.answer

    def _abandon(self, feed: Feed) -> None:
        """The client is gone: drop the request, and any task that was to forward it."""
        feed.polls.leave(self)
        self.answer.cancel()

    def take(self, update: Update) -> None:
        shared: _Shared | None = update.shared
        if shared is None:
            shared = update.shared = _Shared(update.chunks[0])
        kind = self._kind
        answer = shared.answers.get(kind)
        if answer is None:
            answer = shared.answers[kind] = self._render(update.chunks[0], shared.body)
        if isinstance(answer, Response):
            self._settle(answer)
        else:
            answer.add_done_callback(self._pass_on)

    @property
    def _kind(self) -> tuple[object, ...]:
        headers = self._request.headers
        return self._cursor, headers.get(b"accept-encoding"), headers.get(b"if-none-match")

    def _render(self, chunk: Chunk, body: ChunkBody) -> Response | asyncio.Future[Response]:
        cursor = self._cursors.after(self._cursor)
        answer = read_response(self._request, chunk, cursor, self._packing, body=body)
        return answer if isinstance(answer, Response) else asyncio.ensure_future(answer)

    def nothing_new(self, at_tail: Chunk) -> None:
        self._settle(nothing_new(at_tail, self._cursors.after(self._cursor)))

    def failed(self, error: Exception) -> None:
        if isinstance(error, StreamError):
            self._settle(error_response(error))
        elif not self.answer.done():
            self.answer.set_exception(error)

    def _pass_on(self, done: asyncio.Future[Response]) -> None:
        error = done.exception()
        if error is None:
            self._settle(done.result())
        elif not self.answer.done():
            self.answer.set_exception(error)

    def _settle(self, response: Response) -> None:
        if not self.answer.done():
            self.answer.set_result(response)


def nothing_new(chunk: Chunk, cursor: int) -> Response:
    """A long-poll that ends without data."""
    headers = [*chunk_headers(chunk), NO_STORE]
    if not chunk.closed:
        headers.append(("Stream-Cursor", str(cursor)))
    return Response(204, headers)
