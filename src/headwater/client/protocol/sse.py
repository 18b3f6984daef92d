"""An incremental parser for `text/event-stream`.

Bytes go in as the network cuts them, events come out when their closing blank line has arrived. An
event that is cut off by the end of the connection never comes out: its reader starts again from
the last offset that it was told, so half an event must not count.

Lines end with CR LF, CR or LF, and a CR at the end of one chunk may have its LF in the next. Data
stays bytes: it is the stream's content, and only the caller knows what that is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event: its name and its data lines, joined by LF."""

    name: str
    data: bytes


class SseParser:
    """Turns chunks of bytes into events.

    >>> parser = SseParser()
    >>> parser.feed(b"event: data\\ndata: [1,")
    []
    >>> parser.feed(b"2]\\n\\n")
    [SseEvent(name='data', data=b'[1,2]')]
    """

    def __init__(self) -> None:
        self._partial_line: list[bytes] = []
        self._skip_line_feed = False
        self._at_start = True
        self._name = "message"
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Take the next bytes and return the events that they complete."""
        if not chunk:
            return []
        if self._skip_line_feed:
            chunk = chunk.removeprefix(b"\n")
        events: list[SseEvent] = []
        for line in chunk.splitlines(keepends=True):
            content = line.rstrip(b"\r\n")
            if len(content) == len(line):
                self._partial_line.append(line)
                continue
            if self._partial_line:
                self._partial_line.append(content)
                content = b"".join(self._partial_line)
                self._partial_line.clear()
            if (event := self._end_line(content)) is not None:
                events.append(event)
        self._skip_line_feed = chunk.endswith(b"\r")
        return events

    def _end_line(self, line: bytes) -> SseEvent | None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line:
            return self._end_event()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode(errors="replace")
        # Everything else (comments, `id`, `retry`) has no meaning here.
        return None

    def _end_event(self) -> SseEvent | None:
        name, data = self._name, self._data
        self._name, self._data = "message", []
        return SseEvent(name, b"\n".join(data)) if data else None
