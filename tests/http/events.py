"""Reading Server-Sent Events the way a browser does."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections import deque
from dataclasses import dataclass
from typing import Any

from tests.http.wire import Headers, Wire

# A CR at the very end may be the first half of a CRLF, so it waits for what follows.
_LINE_END = re.compile(r"\r\n|\r(?!\Z)|\n")


@dataclass(frozen=True)
class Event:
    kind: str
    data: str

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class EventParser:
    """The parsing rules of the HTML standard, without retry and id, which nobody sends here."""

    def __init__(self) -> None:
        self._text = ""
        self._kind = ""
        self._data: list[str] = []
        self.comments = 0

    def feed(self, data: bytes) -> list[Event]:
        self._text += data.decode()
        *lines, self._text = _LINE_END.split(self._text)
        return [event for line in lines if (event := self._line(line)) is not None]

    def _line(self, line: str) -> Event | None:
        if not line:
            event = Event(self._kind, "\n".join(self._data)) if self._data else None
            self._kind, self._data = "", []
            return event
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not name:
            self.comments += 1
        elif name == "event":
            self._kind = value
        elif name == "data":
            self._data.append(value)
        else:
            raise AssertionError(f"an unexpected field: {line!r}")
        return None


class Events:
    """An open event stream."""

    def __init__(self, wire: Wire, headers: Headers, *, is_chunked: bool = True) -> None:
        self.wire = wire
        self.headers = headers
        self._is_chunked = is_chunked
        self._parser = EventParser()
        self._ready: deque[Event] = deque()

    def next(self) -> Event | None:
        """The next event, or None at the orderly end. A cut raises `EndedError`."""
        while not self._ready:
            data = self.wire.chunk() if self._is_chunked else self.wire.receive()
            if not data:
                return None
            self._ready.extend(self._parser.feed(data))
        return self._ready.popleft()

    def expect(self, kind: str) -> Event:
        event = self.next()
        assert event is not None, f"the stream ended where a {kind} event was expected"
        assert event.kind == kind, event
        return event

    def pair(self) -> tuple[str, Any]:
        """A data event and the control event that belongs to it."""
        return self.expect("data").data, self.expect("control").json

    def rest(self) -> list[Event]:
        """Everything up to the orderly end."""
        events = []
        while (event := self.next()) is not None:
            events.append(event)
        return events

    def until_caught_up(self) -> tuple[list[str], Any]:
        """Data events up to the tail, and the control event that says so."""
        data: list[str] = []
        while True:
            event = self.next()
            assert event is not None
            if event.kind == "data":
                data.append(event.data)
            elif event.kind == "control" and event.json.get("upToDate"):
                return data, event.json


def unpack(data: list[str]) -> bytes:
    """The bytes that base64 data events carry."""
    return b"".join(b64decode(part, validate=True) for part in data)
