"""Frames: messages between nodes on a connection that stays open.

Each is its size on a line, followed by its content. An empty frame is a sign of life, and so is a
comment line, which event streams are sent from time to time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_LINE_MAX: Final = 20


class OutOfStep(Exception):
    """A message that does not follow from the current state."""


def frame(body: bytes) -> bytes:
    return b"%d\n%b" % (len(body), body)


class Frames:
    """Splits a byte stream into frames, however it was cut in transit."""

    def __init__(self, bytes_max: int) -> None:
        self._rest = bytearray()
        self._bytes_max = bytes_max

    def take(self, data: bytes) -> Iterator[bytes]:
        rest = self._rest
        rest += data
        while (end := rest.find(b"\n", 0, _LINE_MAX)) >= 0:
            line = bytes(rest[:end])
            size = 0 if not line or line.startswith(b":") else int(line)
            if not 0 <= size <= self._bytes_max:
                raise OutOfStep(f"no frame has {size} bytes")
            if len(rest) < end + 1 + size:
                return
            body = bytes(rest[end + 1 : end + 1 + size])
            del rest[: end + 1 + size]
            if size:
                yield body
        if len(rest) >= _LINE_MAX:
            raise OutOfStep("these are no frames")
