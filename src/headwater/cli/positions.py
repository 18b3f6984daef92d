"""`--from`: where to start reading.

    start           the first message
    now             what comes from now on
    -10             the last ten
    @1h             everything since an hour ago (ms, s, m, h, d, w; also @1h30m)
    @2026-01-31T12:00:00Z   everything since then
    OFFSET          a position from a server or this command

The unit depends on the stream: messages in a JSON stream, lines in a text stream, bytes in any
other. Headwater knows where the last messages begin and what was stored when. On other servers, the
last ones are found by reading everything, and times are not supported.

Groups (`--start`, `group seek`) count messages in every stream, and call its two ends `first` and
`latest`. Both names are accepted everywhere.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from typing import Final

from headwater.cli import remote
from headwater.cli.exits import CliError, usage
from headwater.cli.quantities import is_span, parse_moment, parse_span_ms
from headwater.cli.units import Unit, find_tail
from headwater.client import NOW, START, Headwater, Position, Stream
from headwater.core.numbers import whole_number

GRAMMAR: Final = "start, now, -10 (the last ten), @1h or @2026-01-31T12:00:00Z (since then), OFFSET"
PLACES: Final = (
    "first, latest, -10 (the last ten messages), @1h or @2026-01-31T12:00:00Z (since then), OFFSET"
)

_OFFSET = re.compile(r"[0-9]+_[0-9]+")
# More than any stream has, with as many digits as the server accepts.
_ALL: Final = 10**15 - 1


@dataclass(frozen=True, slots=True)
class Last:
    """The last `count` items."""

    count: int


@dataclass(frozen=True, slots=True)
class Since:
    """Everything since a time."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class At:
    """A position as the client library takes it."""

    text: str


Where = Last | Since | At


def parse_where(text: str, *, now_ms: int | None = None) -> Where:
    """Parse the value of `--from`."""
    begin, slash, skip = text.partition("/")
    if begin in ("start", "first"):
        return At(START + slash + skip)
    if text in ("now", "latest"):
        return At(NOW)
    if text.startswith("-"):
        last = whole_number(text[1:], digits_max=15)
        if last is None:
            raise usage(f"{text!r} is not a position; use {GRAMMAR}")
        return Last(last)
    if text.startswith("@"):
        return Since(_moment_ms(text[1:], now_ms))
    if not text or not text.isprintable() or " " in text:
        raise usage(f"{text!r} is not a position; use {GRAMMAR}")
    return At(text)


def parse_since(text: str, *, now_ms: int | None = None) -> Since:
    """Parse the value of `--since`: a time, or how long ago it was."""
    return Since(_moment_ms(text.removeprefix("@"), now_ms))


def parse_until(text: str, *, now_ms: int | None = None) -> Since | At:
    """Parse the value of `--until`: a time, how long ago it was, or an offset."""
    if _OFFSET.fullmatch(text):
        return At(text)
    return parse_since(text, now_ms=now_ms)


def show(position: Position) -> str:
    """A position as `--from` accepts it: the protocol's -1 would mean the last message there."""
    return str(replace(position, offset="start" if position.offset == START else position.offset))


def _moment_ms(text: str, now_ms: int | None) -> int:
    if is_span(text):
        now = int(time.time() * 1000) if now_ms is None else now_ms
        return now - parse_span_ms(text)
    return int(parse_moment(text, also="1h, 2d or ").timestamp() * 1000)


def locate(client: Headwater, stream: Stream, where: Where, unit: Unit) -> Position:
    """Turn a place into a position to read from."""
    if isinstance(where, At):
        try:
            return Position.parse(where.text)
        except ValueError:
            raise usage(f"{where.text!r} is not a position; use {GRAMMAR}") from None
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
    """Turn a place into one where a group can continue: at a message, in any stream."""
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
