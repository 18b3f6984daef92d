"""From PostgreSQL's texts to JSON values. No IO.

PostgreSQL sends every value as text; its type determines the JSON value:

- `smallint`, `integer`, `bigint`, `oid`: a JSON number with exactly these digits;
- `real`, `double precision`: a JSON number; `NaN` and the infinities, which JSON lacks, as text;
- `numeric`: **text**, because most readers would round a number, and money must not be rounded;
- `boolean`: true or false;
- `timestamptz`: `2026-01-31T12:00:00.5Z`, always UTC; `timestamp` the same without a zone;
- `json`, `jsonb`: as they are, embedded;
- `bytea`: text, in base64;
- arrays: JSON arrays of the above, nested when they have several dimensions;
- a domain: like its base type;
- everything else (`text`, `uuid`, `date`, `interval`, enums, ranges, rows, …): PostgreSQL's text.

A `json` value that a strict reader would refuse (half of a surrogate pair, very deep nesting)
becomes a text with the same content: a record that the server refuses would block all records
behind it.
"""

from __future__ import annotations

import re
from base64 import b64encode
from binascii import unhexlify
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

Convert = Callable[[str], Any]

# Deeper than any document made by hand, and shallow enough for every reader.
JSON_DEPTH_MAX: Final = 128

_NUMBER: Final = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_TIMESTAMP: Final = re.compile(r"(\d{4,}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?)(\+00)?")
_BOUNDS: Final = re.compile(r"(?:\[[-+]?\d+:[-+]?\d+\])+=")
_JSON_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]')
_strict: Final = msgspec.json.Decoder(msgspec.Raw)


class TypeInfo(NamedTuple):
    """What the catalogue says about a type."""

    base: int = 0
    """The base type of a domain."""
    element: int = 0
    """The type of an array's elements."""
    delimiter: str = ","


def converter(oid: int, types: Mapping[int, TypeInfo]) -> Convert:
    """The function that turns texts of a type into JSON values."""
    seen: set[int] = set()
    while oid not in SCALARS and oid in types and oid not in seen:
        seen.add(oid)
        info = types[oid]
        if info.element:
            return _array(converter(info.element, types), info.delimiter)
        oid = info.base
    return SCALARS.get(oid, str)


def key_text(values: list[Any]) -> str:
    """The text of a key: one value as it is, several unambiguously.

    Several values are a JSON array of their texts. One value is its own text, except that an empty
    text (which is not a key) and texts that look like such an array are wrapped in one, too.

    >>> key_text([7]), key_text(["a"]), key_text([""]), key_text([7, "a,b"])
    ('7', 'a', '[""]', '["7","a,b"]')
    """
    texts = [None if value is None else _text(value) for value in values]
    first = texts[0] if len(texts) == 1 else None
    if first and not first.startswith("["):
        return first
    return msgspec.json.encode(texts).decode()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _float(text: str) -> Any:
    return msgspec.Raw(text.encode()) if _NUMBER.fullmatch(text) else text


def _timestamp(text: str) -> str:
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return text  # infinity, and dates before Christ
    return f"{found[1]}T{found[2]}{'Z' if found[3] else ''}"


def _bytea(text: str) -> str:
    return b64encode(unhexlify(text.removeprefix("\\x"))).decode()


def _json(text: str) -> Any:
    try:
        _strict.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    return text if _is_deep(text) else msgspec.Raw(text.encode())


def _is_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= JSON_DEPTH_MAX:
        return False
    depth = 0
    for token in _JSON_TOKEN.finditer(text):
        match token[0]:
            case "[" | "{":
                depth += 1
                if depth > JSON_DEPTH_MAX:
                    return True
            case "]" | "}":
                depth -= 1
    return False


SCALARS: Final[Mapping[int, Convert]] = {
    16: lambda text: text == "t",
    17: _bytea,
    20: int,
    21: int,
    23: int,
    26: int,
    700: _float,
    701: _float,
    114: _json,
    3802: _json,
    1114: _timestamp,
    1184: _timestamp,
    25: str,
    1043: str,
    1042: str,
    1700: str,
    1082: str,
    2950: str,
}
"""By the OIDs of built-in types, which never change."""


# --- Arrays --------------------------------------------------------------------------------------


def _array(convert: Convert, delimiter: str) -> Convert:
    # A quoted text, a bracket, a delimiter, or anything that is none of these.
    token = re.compile(
        rf'"((?:[^"\\]|\\.)*)"|([{{}}{re.escape(delimiter)}])|((?:[^{{}}"\\{delimiter}]|\\.)+)',
        re.DOTALL,
    )

    def parse(text: str) -> Any:
        items = _nested(text, token, convert)
        return text if items is None else items

    return parse


def _nested(text: str, token: re.Pattern[str], convert: Convert) -> list[Any] | None:
    """The elements of an array; None if the text is not an array."""
    bounds = _BOUNDS.match(text)
    start = bounds.end() if bounds else 0
    outermost: list[Any] = []
    path = [outermost]
    for quoted, mark, bare in token.findall(text[start:]):
        if mark == "{":
            inner: list[Any] = []
            path[-1].append(inner)
            path.append(inner)
        elif mark == "}":
            if len(path) == 1:
                return None
            path.pop()
        elif not mark:
            if bare == "NULL":
                path[-1].append(None)
            else:
                path[-1].append(convert(re.sub(r"\\(.)", r"\1", bare or quoted, flags=re.DOTALL)))
    if len(path) != 1 or len(outermost) != 1 or not isinstance(outermost[0], list):
        return None
    return outermost[0]
