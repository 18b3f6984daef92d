"""Patterns: which streams a subscription is about.

A pattern is written like a path. A segment `*` stands for any one segment and `**` for any number
of them, none included; every other segment stands for itself. So `chats/*` takes in `chats/7` but
neither `chats` nor `chats/7/files`, and `chats/**` takes in all three. A `*` within a longer
segment has no meaning of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headwater.core.errors import InvalidPath
from headwater.core.paths import check_path
from headwater.core.subscriptions.errors import InvalidSubscription

ONE: Final = "*"
ANY: Final = "**"

Chunk = tuple[str, ...]


class Pattern:
    """A pattern taken apart once, to be matched often."""

    __slots__ = ("_chunks", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        # The parts between one `**` and the next. The first one is bound to the beginning of a
        # path, the last one to its end, and those between them take the first place that fits,
        # which leaves the most room for the others. So there is no need to ever go back.
        chunks: list[list[str]] = [[]]
        for segment in text.split("/"):
            if segment == ANY:
                chunks.append([])
            else:
                chunks[-1].append(segment)
        self._chunks: Sequence[Chunk] = [tuple(chunk) for chunk in chunks]

    @property
    def prefix(self) -> str:
        """What every match begins with, to find them in a sorted list of paths."""
        literal: list[str] = []
        for segment in self.text.split("/"):
            if segment in (ONE, ANY):
                # `a/**` takes in `a` itself, `a/*` does not.
                return "/".join([*literal, ""] if segment == ONE and literal else literal)
            literal.append(segment)
        return "/".join(literal)

    def matches(self, path: str) -> bool:
        segments = path.split("/")
        head, *middle = self._chunks
        if not middle:
            return len(segments) == len(head) and _fits(head, segments, 0)
        tail = middle.pop()
        start, end = len(head), len(segments) - len(tail)
        if start > end or not (_fits(head, segments, 0) and _fits(tail, segments, end)):
            return False
        for chunk in middle:
            last = end - len(chunk)
            while start <= last and not _fits(chunk, segments, start):
                start += 1
            if start > last:
                return False
            start += len(chunk)
        return True


def _fits(chunk: Chunk, segments: Sequence[str], at: int) -> bool:
    """Whether a part of a pattern fits the segments from a place on."""
    return all(part in (ONE, segment) for part, segment in zip(chunk, segments[at:], strict=False))


def parse_pattern(text: str) -> Pattern:
    """A pattern as a client sends it, if there can be streams that it matches."""
    text = text.strip("/")
    try:
        check_path(text)
    except InvalidPath as error:
        raise InvalidSubscription(f"pattern: {error.message}") from None
    return Pattern(text)
