"""Reading messages together with their times, ids and producers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Generic, Self, TypeVar
from urllib.parse import urlsplit

from headwater.client.aio.reader import Begin
from headwater.client.aio.sender import Sender
from headwater.client.errors import HeadwaterError
from headwater.client.protocol.batch import Position
from headwater.client.protocol.records import Line, Record, lines_of, records_request
from headwater.client.protocol.streams import read_request, unexpected

T = TypeVar("T")


class AsyncRecords(Generic[T]):
    """The messages of a stream with what the server knows of them, one at a time.

    async for record in stream.records(since=timedelta(minutes=10)):
        print(record.timestamp, record.id, record.value)
    """

    def __init__(
        self,
        sender: Sender,
        url: str,
        *,
        start: Position,
        begin: Begin | None,
        follow: bool,
        type: Any,
    ) -> None:
        self._sender = sender
        self._url = url
        self._begin = begin
        self._follow = follow
        self._type = type
        self._next = start
        self._up_to_date = self._closed = False
        self._ready: Iterator[tuple[Line, Position]] = iter(())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record[T]:
        while True:
            for line, after in self._ready:
                return self._record(line, after)
            if not await self._fetch():
                raise StopAsyncIteration

    def _record(self, line: Line, after: Position) -> Record[T]:
        try:
            return line.record(after, self._type)
        except HeadwaterError as error:
            error.where = urlsplit(self._url).path
            raise

    async def _fetch(self) -> bool:
        """Ask for more; False at the end."""
        if self._begin is not None:
            self._next, self._begin = await self._begin(), None
        elif self._up_to_date and (self._closed or not self._follow):
            return False
        elif self._up_to_date:
            # A server that was there once is worth waiting for.
            patient = replace(self._sender, retry=self._sender.retry.forever())
            await patient.perform(
                read_request(self._url, offset=self._next.offset, live="long-poll")
            )
        response = await self._sender.extra(records_request(self._url, self._next.offset))
        asked = self._next.offset
        found, self._next = lines_of(response, self._next.skip)
        if self._next.offset == asked and not response.up_to_date:
            raise unexpected(response, f"asked from {asked} on, and got no further")
        self._ready = iter(found)
        self._up_to_date, self._closed = response.up_to_date, response.closed
        return True
