"""Fields of JSON objects as columns of a table: which there are, their names and types. No Spark.

What a column holds follows from the JSON and from the kinds of values that its field ever had, and
a table keeps both. Kinds only ever join: a field with integers that later has fractions becomes a
column of doubles, one that later has anything else a column of text, and the rows that were there
are rebuilt from their JSON. So a column never holds a wrong value and never loses one.

Text is what fits always: strings as they are, and the JSON of everything else. Integers that a
double would round never become doubles.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa

COLUMNS_MAX: Final = 1_000
NAME_CHARS_MAX: Final = 128
"""A field with a longer name stays in the JSON."""

ColumnType = Literal["boolean", "long", "double", "string"]
ARROW_TYPES: Final[Mapping[ColumnType, Any]] = {
    "boolean": pa.bool_(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
}
_LONG_DIGITS_MAX: Final = 19
_EXACT_IN_A_DOUBLE: Final = 2**53


# What a field has been seen to hold: bits, so that kinds join with `|`. They are in the schemas of
# tables, and plain numbers because every value of every row is asked for its own.
Kind = int
NOTHING: Final[Kind] = 0
BOOLEAN: Final[Kind] = 1
INTEGER: Final[Kind] = 2
LARGE_INTEGER: Final[Kind] = 4
"""An integer that a double cannot hold exactly."""
FRACTION: Final[Kind] = 8
TEXT: Final[Kind] = 16
"""Strings, objects, arrays, and numbers that are too large for all else."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: the field it is made of, its name, and what the field ever held."""

    field: str
    name: str
    kinds: Kind

    @property
    def type(self) -> ColumnType:
        if self.kinds == BOOLEAN:
            return "boolean"
        if not self.kinds & ~(INTEGER | LARGE_INTEGER):
            return "long"
        if not self.kinds & ~(INTEGER | FRACTION):
            return "double"
        return "string"


Columns = tuple[Column, ...]

# --- Reading values ------------------------------------------------------------------------------

_decoder: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def fields_of(text: str | None) -> dict[str, bytes]:
    """The fields of an object, each as the JSON it was sent as; none if it is no object."""
    if not text:
        return {}
    try:
        return {name: bytes(raw) for name, raw in _decoder.decode(text).items()}
    except msgspec.DecodeError:
        return {}


_BY_FIRST_BYTE: Final[Mapping[int, Kind]] = {
    ord("n"): NOTHING,
    ord("t"): BOOLEAN,
    ord("f"): BOOLEAN,
    ord('"'): TEXT,
    ord("{"): TEXT,
    ord("["): TEXT,
}


def kind_of(raw: bytes) -> Kind:
    """What a value is. Null is nothing, and no reason for a column."""
    kind = _BY_FIRST_BYTE.get(raw[0])
    if kind is not None:
        return kind
    digits = raw.removeprefix(b"-")
    if not digits.isdigit():
        return FRACTION if math.isfinite(float(raw)) else TEXT
    if len(digits) > _LONG_DIGITS_MAX or not -(2**63) <= int(raw) < 2**63:
        return TEXT
    return INTEGER if abs(int(raw)) <= _EXACT_IN_A_DOUBLE else LARGE_INTEGER


def news_in(values: Iterable[str | None], known: Mapping[str, Kind]) -> dict[str, tuple[Kind, int]]:
    """Fields whose values the known columns have no place for: their kinds, and how many values."""
    found: dict[str, tuple[Kind, int]] = {}
    for text in values:
        for name, raw in fields_of(text).items():
            kind = kind_of(raw)
            if not kind or known.get(name, NOTHING) & (kind | TEXT) or len(name) > NAME_CHARS_MAX:
                continue
            kinds, count = found.get(name, (NOTHING, 0))
            found[name] = (kinds | kind, count + 1)
    return found


def arrays_of(values: Iterable[str | None], columns: Columns) -> list[Any]:
    """The columns of some rows."""
    rows = [fields_of(text) for text in values]
    return [_array([row.get(column.field) for row in rows], column.type) for column in columns]


def _array(raws: Sequence[bytes | None], kind: ColumnType) -> Any:
    read = _READ[kind]
    values = [None if raw is None or raw == b"null" else read(raw) for raw in raws]
    return pa.array(values, ARROW_TYPES[kind])


def _text(raw: bytes) -> str:
    if raw.startswith(b'"'):
        try:
            return msgspec.json.decode(raw, type=str)
        except msgspec.DecodeError:
            # JSON lets a string name half a character, which no table can hold.
            pass
    return raw.decode()


_READ: Final[Mapping[ColumnType, Callable[[bytes], Any]]] = {
    "boolean": lambda raw: raw == b"true",
    "long": int,
    "double": float,
    "string": _text,
}

# --- Growing -------------------------------------------------------------------------------------


def grown(columns: Columns, news: Mapping[str, Kind], taken: Iterable[str]) -> Columns:
    """The columns with room for what is new; `taken` are names that are not to be had."""
    after = [replace(one, kinds=one.kinds | news.get(one.field, NOTHING)) for one in columns]
    names = {_folded(name) for name in taken} | {_folded(one.name) for one in columns}
    new = sorted(news.keys() - {one.field for one in columns})
    for field in new[: max(0, COLUMNS_MAX - len(after))]:
        name = _free_name(field, names)
        names.add(_folded(name))
        after.append(Column(field, name, news[field]))
    return tuple(after)


def must_rewrite(before: Columns, after: Columns) -> bool:
    """Whether rows that are there would no longer fit the type of their columns."""
    types = {one.field: one.type for one in after}
    return any(one.type != types[one.field] for one in before)


def _free_name(field: str, names: set[str]) -> str:
    """A name that every reader takes, and that differs from the others by more than its case."""
    plain = re.sub(r"\W", "_", field) or "_"
    name, number = plain, 1
    while _folded(name) in names:
        number += 1
        name = f"{plain}_{number}"
    return name


def _folded(name: str) -> str:
    return name.upper().casefold()
