"""How the value of a field becomes part of a key.

The change record and the query must encode the same value the same way. So each encoding has one
canonical text per value and refuses everything else:

- string:   text as it is; numbers and booleans in their JSON text
- int64:    whole numbers from −2^63 to 2^63 − 1 in decimal digits, exact however they were written
- bool:     1 or 0, from JSON booleans only
- datetime: RFC 3339 or an ISO date, in UTC with milliseconds (the rest is cut off); without a zone
            it is UTC
- bytes:    text as it is

Null, objects, arrays and values that do not fit have no encoding (None): such a change cannot name
its rows, and touches the whole template instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, Literal, get_args

import msgspec

Encoder = Callable[[bytes], bytes | None]
Encoding = Literal["string", "int64", "bool", "datetime", "bytes"]
ENCODINGS: Final[tuple[Encoding, ...]] = get_args(Encoding)

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
# Longer than any sensible form of 19 digits; anything longer is not worth parsing.
_NUMBER_CHARS_MAX: Final = 64
_INTEGER: Final = re.compile(r"-?[0-9]+")
_INSTANT: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?\s?([Zz]|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
_QUOTE: Final = ord('"')
_NO_TEXT: Final = (b"{", b"[", b"n")
_text = msgspec.json.Decoder(str)


def encoder(encoding: Encoding) -> Encoder:
    """A function that returns the canonical text of a JSON value, or None if it has none."""
    return _ENCODERS[encoding]


def encode(raw: bytes, encoding: Encoding) -> bytes | None:
    return _ENCODERS[encoding](raw)


def _string(raw: bytes) -> bytes | None:
    if raw[0] == _QUOTE:
        # Most texts have no escapes and are simply the bytes between the quotes.
        return _text.decode(raw).encode() if b"\\" in raw else raw[1:-1]
    return None if raw[:1] in _NO_TEXT else raw


def _bytes(raw: bytes) -> bytes | None:
    return _string(raw) if raw[0] == _QUOTE else None


def _bool(raw: bytes) -> bytes | None:
    return {b"true": b"1", b"false": b"0"}.get(raw)


def _int64(raw: bytes) -> bytes | None:
    text = _text.decode(raw) if raw[:1] == b'"' else raw.decode()
    if len(text) > _NUMBER_CHARS_MAX:
        return None
    if _INTEGER.fullmatch(text):
        number = int(text)
    elif raw[:1] in b"-0123456789":
        exact = Decimal(text)
        # Check a huge exponent before it becomes a huge number.
        if exact.adjusted() > 18 or exact != exact.to_integral_value():
            return None
        number = int(exact)
    else:
        return None
    return str(number).encode() if _INT64_MIN <= number <= _INT64_MAX else None


def _datetime(raw: bytes) -> bytes | None:
    found = _INSTANT.fullmatch(_text.decode(raw).strip()) if raw[:1] == b'"' else None
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    try:
        moment = datetime(
            int(year),
            int(month),
            int(day),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            int(((fraction or "") + "000")[:3]) * 1000,
            UTC,
        ) - _zone(zone)
    except (ValueError, OverflowError):
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z".rjust(24, "0").encode()


def _zone(text: str | None) -> timedelta:
    if text is None or text in "Zz":
        return timedelta()
    hours, minutes = int(text[1:3]), int(text[-2:]) if len(text) > 3 else 0
    if hours > 23 or minutes > 59:
        raise ValueError(text)
    ahead = timedelta(hours=hours, minutes=minutes)
    return ahead if text[0] == "+" else -ahead


_ENCODERS: Final[dict[Encoding, Encoder]] = {
    "string": _string,
    "int64": _int64,
    "bool": _bool,
    "datetime": _datetime,
    "bytes": _bytes,
}
