"""`--from`: where to begin reading.

    start           the first message
    now             what comes from now on
    -10             the last ten
    @1h             everything since an hour ago (ms, s, m, h, d, w; also @1h30m)
    @2026-01-31T12:00:00Z   everything since then
    OFFSET          a position that a server or this command gave out

What is counted depends on the stream: messages in a JSON stream, lines in a text stream, bytes in
any other. Headwater knows where the last messages begin and what was there at a time. On other
servers, the last ones are found by reading everything, and times are not found.

Groups (`--start`, `group seek`) have messages in every stream, and call its two ends `first` and
`latest`. Either name is understood everywhere.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from headwater.cli import remote
from headwater.cli.exits import CliError, usage
from headwater.cli.units import Unit, find_tail
from headwater.client import NOW, START, Headwater, Position, Stream

GRAMMAR: Final = "start, now, -10 (the last ten), @1h or @2026-01-31T12:00:00Z (since then), OFFSET"
PLACES: Final = (
    "first, latest, -10 (the last ten messages), @1h or @2026-01-31T12:00:00Z (since then), OFFSET"
)

_UNITS_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_SPAN_MAX_MS: Final = 1_000 * 366 * 86_400_000
_SPAN = re.compile(r"(?:\d+(?:ms|[smhdw]))+")
_PART = re.compile(r"(\d+)(ms|[smhdw])")
_OFFSET = re.compile(r"[0-9]+_[0-9]+")
_SIZE = re.compile(r"([0-9]+) ?(?:([kKMGT])(i)?)?B?")
# More than any stream has, and as many digits as the server reads.
_ALL: Final = 10**15 - 1


@dataclass(frozen=True, slots=True)
class Last:
    """The last so many."""

    count: int


@dataclass(frozen=True, slots=True)
class Since:
    """Everything since a moment."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class At:
    """A position as the client library reads it."""

    text: str


Where = Last | Since | At


def parse_span_ms(text: str) -> int:
    """A length of time, in milliseconds.

    >>> parse_span_ms("1h30m")
    5400000
    """
    if _SPAN.fullmatch(text) is None:
        raise usage(f"{text!r} is not a length of time; write 30s, 5m, 1h30m, 2d or 1w")
    span = sum(int(count) * _UNITS_MS[unit] for count, unit in _PART.findall(text[:100]))
    if span > _SPAN_MAX_MS:
        raise usage(f"{text!r} is too long; a thousand years will do")
    return span


def parse_seconds(text: str) -> float:
    """A length of time in seconds; a number alone counts those.

    >>> parse_seconds("1m30s"), parse_seconds("90"), parse_seconds("250ms")
    (90.0, 90.0, 0.25)
    """
    return parse_span_ms(f"{text}s" if text.isascii() and text.isdigit() else text) / 1000


def parse_size(text: str) -> int:
    """A number of bytes; a number alone counts those.

    >>> parse_size("10GiB"), parse_size("500 kB"), parse_size("1000")
    (10737418240, 500000, 1000)
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise usage(f"{text!r} is not a size; write 500MB, 10GiB, or a number of bytes")
    count, prefix, binary = found.groups()
    power = "kmgt".index(prefix.lower()) + 1 if prefix else 0
    unit: int = (1024 if binary else 1000) ** power
    return int(count) * unit


def parse_where(text: str, *, now_ms: int | None = None) -> Where:
    """Read the value of `--from`."""
    begin, slash, skip = text.partition("/")
    if begin in ("start", "first"):
        return At(START + slash + skip)
    if text in ("now", "latest"):
        return At(NOW)
    if text.startswith("-"):
        if not (text[1:].isascii() and text[1:].isdigit() and len(text) <= 16):
            raise usage(f"{text!r} is no place to begin; use {GRAMMAR}")
        return Last(int(text[1:]))
    if text.startswith("@"):
        return Since(_parse_moment(text[1:], now_ms))
    if not text or not text.isprintable() or " " in text:
        raise usage(f"{text!r} is no place to begin; use {GRAMMAR}")
    return At(text)


def parse_since(text: str, *, now_ms: int | None = None) -> Since:
    """Read the value of `--since`: a moment, or how long ago it was."""
    return Since(_parse_moment(text.removeprefix("@"), now_ms))


def parse_until(text: str, *, now_ms: int | None = None) -> Since | At:
    """Read the value of `--until`: a moment, how long ago it was, or an offset."""
    if _OFFSET.fullmatch(text):
        return At(text)
    return parse_since(text, now_ms=now_ms)


def show(position: Position) -> str:
    """A position as `--from` reads it: the protocol's -1 would be the last message there."""
    return str(replace(position, offset="start" if position.offset == START else position.offset))


def _parse_moment(text: str, now_ms: int | None) -> int:
    if _SPAN.fullmatch(text):
        now = int(time.time() * 1000) if now_ms is None else now_ms
        return now - parse_span_ms(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise usage(f"{text!r} is no moment; write 1h, 2d or 2026-01-31T12:00:00Z with its zone")
    return int(moment.timestamp() * 1000)


def locate(client: Headwater, stream: Stream, where: Where, unit: Unit) -> Position:
    """Turn a place into a position that can be read from."""
    if isinstance(where, At):
        try:
            return Position.parse(where.text)
        except ValueError:
            raise usage(f"{where.text!r} is no place to begin; use {GRAMMAR}") from None
    if isinstance(where, Since):
        position = remote.find_time(stream, where.at_ms)
        if position is None:
            raise CliError(
                f"{remote.server_url(client)} cannot find a moment in a stream; "
                "use start, now, -10 or an offset"
            )
        return position
    if where.count == 0:
        return Position(NOW)
    if unit is Unit.MESSAGE:
        position = remote.find_last(stream, where.count)
        if position is not None:
            return position
        return find_tail(stream.read(START), unit, where.count) or Position(START)
    return _locate_in_bytes(client, stream, where.count, unit)


def find_place(client: Headwater, stream: Stream, where: Where) -> str:
    """Turn a place into one where a group can go on: at a message, whatever the stream holds."""
    position = None
    if isinstance(where, Last) and where.count > 0:
        position = remote.find_last(stream, where.count)
    text = str(position or locate(client, stream, where, Unit.MESSAGE))
    return {START: "first", NOW: "latest"}.get(text, text)


def _locate_in_bytes(client: Headwater, stream: Stream, count: int, unit: Unit) -> Position:
    """Find the last lines or bytes: read the last append, then more, until there are enough."""
    beginning = remote.find_last(stream, _ALL)
    appends = 1
    while beginning is not None:
        position = remote.find_last(stream, appends)
        if position is None or position == beginning:
            break
        found = find_tail(stream.read(position), unit, count, whole=False)
        if found is not None:
            return found
        appends *= 8
    return find_tail(stream.read(START), unit, count) or Position(START)
