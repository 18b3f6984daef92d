"""Long-poll requests that wait at the tail of one stream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headwater.core.errors import StreamError
from headwater.http.errors import error_response
from headwater.http.messages import Answer, Request, Response
from headwater.http.reads import chunk_headers, read_response
from headwater.service.entries import View
from headwater.service.reading import Chunk

if TYPE_CHECKING:
    from headwater.http.live import Feed


class Waiter:
    __slots__ = ("cursor", "future", "position", "request", "timer")

    def __init__(self, request: Request, position: int, cursor: int | None) -> None:
        self.request = request
        self.position = position
        self.cursor = cursor
        self.future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.timer: asyncio.TimerHandle | None = None

    @property
    def kind(self) -> tuple[object, ...]:
        """Waiters of one kind get the very same response."""
        headers = self.request.headers
        encoding, tag = headers.get(b"accept-encoding"), headers.get(b"if-none-match")
        return self.position, self.cursor, encoding, tag

    def answer(self, response: Answer) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if not self.future.done():
            self.future.set_result(response)


class Polls:
    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._waiters: dict[Waiter, None] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def wait(self, request: Request, view: View, cursor: int | None) -> Awaitable[Answer]:
        """Wait at the tail for news, or for the time-out."""
        waiter = Waiter(request, view.tail, cursor)
        try:
            request.wait(lambda: self._leave(waiter))
        except StreamError:
            # There is no room for it. It may have been the only one to come.
            self._feed.left(0)
            raise
        self._waiters[waiter] = None
        self._feed.population += 1
        loop, timeout_s = asyncio.get_running_loop(), self._feed.hub.long_poll_timeout_s
        waiter.timer = loop.call_later(timeout_s, self._time_out, waiter)
        if self._feed.hub.stopping:
            self._time_out(waiter)
        return waiter.future

    def _leave(self, waiter: Waiter) -> None:
        if waiter.timer is not None:
            waiter.timer.cancel()
        if waiter in self._waiters:
            del self._waiters[waiter]
            self._feed.left()

    def _time_out(self, waiter: Waiter) -> None:
        view = self._feed.entry.view
        self._leave(waiter)
        if view is None or view.config.id != self._feed.config.id:
            waiter.answer(error_response(self._feed.deleted_error()))
            return
        at_tail = Chunk(view.config, view.tail, view.tail, [], True, view.closed)
        waiter.answer(nothing_new(at_tail, self._feed.hub.cursor(waiter.cursor)))

    def release(self) -> None:
        """Nobody is kept waiting any longer."""
        for waiter in list(self._waiters):
            self._time_out(waiter)

    def dissolve(self) -> None:
        """The stream is gone."""
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            waiter.answer(error_response(self._feed.deleted_error()))

    def answer(self, view: View) -> None:
        """There is news for everyone who waits."""
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, {}
        answers: dict[tuple[object, ...], Response | asyncio.Future[Answer]] = {}
        for waiter in waiters:
            kind = waiter.kind
            if kind not in answers:
                answers[kind] = self._render(view, waiter)
            _deliver(answers[kind], waiter)
        self._feed.left(len(waiters))

    def _render(self, view: View, waiter: Waiter) -> Response | asyncio.Future[Answer]:
        log, cursor = self._feed.hub.log, self._feed.hub.cursor(waiter.cursor)
        chunk = log.chunk_at(view, waiter.position)
        if chunk is None:
            return asyncio.ensure_future(self._render_cold(waiter, cursor))
        if not chunk.bodies:
            return nothing_new(chunk, cursor)
        answer = read_response(waiter.request, chunk, cursor, log.in_thread)
        return answer if isinstance(answer, Response) else asyncio.ensure_future(answer)

    async def _render_cold(self, waiter: Waiter, cursor: int) -> Answer:
        feed, log = self._feed, self._feed.hub.log
        chunk = await log.read_cold(feed.entry, feed.config.lineage.offset_at(waiter.position))
        answer = read_response(waiter.request, chunk, cursor, log.in_thread)
        return answer if isinstance(answer, Response) else await answer


def nothing_new(chunk: Chunk, cursor: int) -> Response:
    """A long-poll that ends without data."""
    headers = [*chunk_headers(chunk), ("Cache-Control", "no-store")]
    if not chunk.closed:
        headers.append(("Stream-Cursor", str(cursor)))
    return Response(204, headers)


def _deliver(answer: Response | asyncio.Future[Answer], waiter: Waiter) -> None:
    if isinstance(answer, Response):
        waiter.answer(answer)
    else:
        answer.add_done_callback(lambda done: _pass_on(done, waiter))


def _pass_on(done: asyncio.Future[Answer], waiter: Waiter) -> None:
    error = done.exception()
    if error is None:
        waiter.answer(done.result())
    elif not waiter.future.done():
        waiter.future.set_exception(error)
