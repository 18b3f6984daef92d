"""The writing end of an open event stream.

There are thousands of these, most of them idle, so each is small and runs nothing.
"""

from __future__ import annotations

import asyncio
from typing import Final

from headwater.http.messages import EventStream, Payload
from headwater.http.wire.flow_control import UNSENT_BYTES_HIGH, FlowControl
from headwater.http.wire.outcomes import report
from headwater.http.wire.reader_budget import ReaderBudget

_LAST_CHUNK: Final = b"0\r\n\r\n"


class EventSink:
    """Implements `messages.Sink`."""

    __slots__ = (
        "_chunked",
        "_events",
        "_holder",
        "_host",
        "_readers",
        "_transport",
        "cut_off",
        "ended_here",
    )

    def __init__(
        self,
        host: FlowControl,
        transport: asyncio.Transport,
        readers: ReaderBudget,
        holder: str,
        events: EventStream,
        *,
        chunked: bool,
    ) -> None:
        self._host = host
        self._transport = transport
        self._readers = readers
        self._holder = holder
        self._events: EventStream | None = events
        # HTTP/1.0 has no chunks: there, the response ends with the connection.
        self._chunked = chunked
        self.ended_here = False
        self.cut_off = False

    def start(self, head: bytes, unread_bytes_max: int) -> None:
        if unread_bytes_max < UNSENT_BYTES_HIGH:
            # Readers that can be paused are paused before they have so much unread that they are
            # cut off.
            self._transport.set_write_buffer_limits(high=unread_bytes_max)
        self._transport.write(head)
        if self._events is not None:
            self._events.start(self)

    def send(self, payload: Payload) -> bool:
        if self._events is None:
            return False
        transport = self._transport
        unread = transport.get_write_buffer_size()
        if unread:
            readers = self._readers
            readers.measured(self._host, unread)
            if readers.is_too_much(self._host.address, unread):
                readers.cut_off += 1
                self.ended_here = self.cut_off = True
                transport.abort()
                return False
        transport.write(payload.framed if self._chunked else payload.raw)
        return True

    @property
    def paused(self) -> bool:
        return self._host.paused

    async def drained(self) -> bool:
        return await self._host.drained()

    def end(self) -> None:
        if self._events is not None:
            self.ended_here = True
            # Data that has not been sent yet may never arrive.
            self.cut_off = self._transport.get_write_buffer_size() > 0
            if self._chunked:
                self._transport.write(_LAST_CHUNK)
            self._transport.close()
            self.over()

    def over(self) -> None:
        """The reader is gone, or was disconnected."""
        events, self._events = self._events, None
        if events is None:
            return
        self._readers.leave(self._holder)
        try:
            events.stopped()
        except Exception as error:
            report(error)
