"""What was asked for, what was answered, and what therefore has to be there.

Every append of the crash test says who sent it and which one it is, so a stream's bytes can be
told apart again into the appends they came from. A `Tape` is one stream as far as it was read
back after a crash. Reading on, it checks every append against its record:

- it was sent, in exactly these bytes, and it is there once;
- it was not refused, and it did not turn up after it had been found missing;
- it stands behind the earlier appends of its writer.

When nothing more is to come, every acknowledged append must have been found.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final

_TAG: Final = re.compile(rb'(?:\{"id":"|<)([\w.-]+?)[" ]')
_ALPHABET: Final = b"abcdefghijklmnopqrstuvwxyz0123456789"


class Violation(AssertionError):
    """The server broke a promise."""


class Kind(Enum):
    JSON = "application/json"
    TEXT = "text/plain"

    @property
    def content_type(self) -> str:
        return self.value

    def stored(self, response_body: bytes) -> bytes:
        """The bytes of a read as they lie in the stream: offsets count those."""
        if self is Kind.TEXT:
            return response_body
        if response_body[:1] + response_body[-1:] != b"[]":
            raise Violation(f"a JSON read is not an array: {response_body[:80]!r}")
        inner = response_body[1:-1]
        return inner + b"," if inner else b""


class Fate(Enum):
    OPEN = "unanswered: may be there or not"
    ACKED = "acknowledged: must be there"
    REFUSED = "refused: must not be there"
    ABSENT = "unanswered and found missing: must not come back"


@dataclass(slots=True, eq=False)
class Append:
    id: str
    writer: str
    number: int
    body: bytes
    stored: bytes
    closes: bool = False
    fate: Fate = Fate.OPEN
    token: str = ""
    """The offset behind this append; unknown when it was acknowledged as a duplicate."""
    found: bool = False


def padding(rng: Random) -> bytes:
    """Mostly small, now and then larger than a database page."""
    size = rng.randrange(5_000, 20_000) if rng.random() < 0.01 else rng.randrange(10, 200)
    return bytes(rng.choices(_ALPHABET, k=size))


def compose(kind: Kind, id_: str, rng: Random, least_bytes: int = 0) -> tuple[bytes, bytes]:
    """A body to send, and its bytes in the stream."""
    if least_bytes:
        body = b"<%b %b %b>\n" % (id_.encode(), padding(rng), b"x" * least_bytes)
        return body, body
    parts = rng.choice((1, 1, 1, 2, 5))
    if kind is Kind.JSON:
        messages = [
            b'{"id":"%b","part":%d,"pad":"%b"}' % (id_.encode(), part, padding(rng))
            for part in range(parts)
        ]
        body = messages[0] if parts == 1 else b"[" + b",".join(messages) + b"]"
        return body, b"".join(message + b"," for message in messages)
    body = b"<%b %b>\n" % (id_.encode(), b"\n".join(padding(rng) for _ in range(parts)))
    return body, body


class Tape:
    """One stream: its appends as recorded, its bytes as read back."""

    def __init__(self, path: str, kind: Kind, least_bytes: int = 0) -> None:
        self.path = path
        self.kind = kind
        self.least_bytes = least_bytes
        """How large its appends are, if they are large."""
        self.created = False
        self.offset = "-1"
        """How far it was read back."""
        self.content = bytearray()
        self.closed = False
        self.ends: list[tuple[Append, int]] = []
        self._appends: dict[str, Append] = {}
        self._expected: set[Append] = set()
        self._numbers: dict[str, int] = {}

    def record(self, append: Append) -> Append:
        self._appends[append.id] = append
        self._expected.add(append)
        return append

    def read_on(self, more: bytes, offset: str) -> None:
        """Take in the bytes behind the last offset, and check each append in them."""
        start, at = len(self.content), 0
        while at < len(more):
            append = self._recognise(more, at)
            at += len(append.stored)
            append.found = True
            self.ends.append((append, start + at))
        self.content += more
        self.offset = offset

    def _recognise(self, data: bytes, at: int) -> Append:
        where = f"{self.path} at {len(self.content) + at}"
        tag = _TAG.match(data, at)
        append = self._appends.get(tag[1].decode()) if tag else None
        if append is None:
            raise Violation(f"{where}: nobody sent {bytes(data[at : at + 60])!r}")
        if not data.startswith(append.stored, at):
            raise Violation(f"{where}: append {append.id} is torn or changed")
        if append.found:
            raise Violation(f"{where}: append {append.id} is there twice")
        if append.fate in (Fate.REFUSED, Fate.ABSENT):
            raise Violation(f"{where}: append {append.id} is there, although {append.fate.value}")
        if append.number <= self._numbers.get(append.writer, -1):
            raise Violation(f"{where}: append {append.id} stands behind a later one of its writer")
        if self.ends and self.ends[-1][0].closes:
            raise Violation(f"{where}: append {append.id} follows the one that closed the stream")
        self._numbers[append.writer] = append.number
        return append

    def settle(self, closed: bool) -> None:
        """All was read and nothing is under way: what is not there now must never be."""
        self.closed = closed
        for append in self._expected:
            if append.found:
                continue
            if append.fate is Fate.ACKED:
                raise Violation(f"{self.path}: append {append.id} was acknowledged and is lost")
            if append.fate is Fate.OPEN:
                append.fate = Fate.ABSENT
        self._expected.clear()
        last_closes = bool(self.ends) and self.ends[-1][0].closes
        if closed != last_closes:
            raise Violation(f"{self.path}: closed is {closed}, expected {last_closes}")

    def expect_again(self, append: Append) -> None:
        """A missing append is about to be sent once more."""
        append.fate = Fate.OPEN
        self._expected.add(append)
