"""Durations, sizes and times, as people write them on the command line."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from headwater.cli.exits import usage

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
_SIZE = re.compile(r"([0-9]+) ?(?:([kKMGT])(i)?)?B?")


def parse_span_ms(text: str) -> int:
    """A duration, in milliseconds.

    >>> parse_span_ms("1h30m")
    5400000
    """
    if not is_span(text):
        raise usage(f"{text!r} is not a length of time; write 30s, 5m, 1h30m, 2d or 1w")
    span = sum(int(count) * _UNITS_MS[unit] for count, unit in _PART.findall(text[:100]))
    if span > _SPAN_MAX_MS:
        raise usage(f"{text!r} is too long; use at most a thousand years")
    return span


def parse_seconds(text: str) -> float:
    """A duration in seconds; a bare number means seconds.

    >>> parse_seconds("1m30s"), parse_seconds("90"), parse_seconds("250ms")
    (90.0, 90.0, 0.25)
    """
    return parse_span_ms(f"{text}s" if text.isascii() and text.isdigit() else text) / 1000


def parse_size(text: str) -> int:
    """A number of bytes; a bare number means bytes.

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


def is_span(text: str) -> bool:
    return _SPAN.fullmatch(text) is not None


def parse_moment(text: str, also: str = "") -> datetime:
    """A time with its time zone; `also` says what else would have been accepted."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise usage(f"{text!r} is not a time; write {also}2026-01-31T12:00:00Z with its zone")
    return moment
