"""JSON object fields as columns of a table: which there are, their names and types. No Spark.

The content of a column follows from the JSON and from all kinds of values that its field ever had,
and a table keeps both. Kinds only accumulate: a field with integers that later has fractions
becomes a column of doubles, one that later has anything else a column of text, and existing rows
are rebuilt from their JSON. So a column never holds a wrong value and never loses one.

Text always fits: strings as they are, and the JSON of everything else. Integers that a double would
round never become doubles.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal

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


# What a field has been seen to hold: bits, so that kinds combine with `|`. They are in the schemas
# of tables, and plain numbers because this is computed for every value of every row.
Kind = int
NOTHING: Final[Kind] = 0
BOOLEAN: Final[Kind] = 1
INTEGER: Final[Kind] = 2
LARGE_INTEGER: Final[Kind] = 4
"""An integer that a double cannot hold exactly."""
FRACTION: Final[Kind] = 8
TEXT: Final[Kind] = 16
"""Strings, objects, arrays, and numbers too large for any other type."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its field, its name, and everything the field ever held."""

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
    """The fields of an object, each in the JSON as sent; empty if it is not an object."""
    if not text:
        return {}
    try:
        return {name: bytes(raw) for name, raw in _decoder.decode(text).items()}
    except (msgspec.DecodeError, RecursionError):
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
    """The kind of a value. Null has none, and needs no column."""
    kind = _BY_FIRST_BYTE.get(raw[0])
    if kind is not None:
        return kind
    digits = raw.removeprefix(b"-")
    if not digits.isdigit():
        return FRACTION if math.isfinite(float(raw)) else TEXT
    if len(digits) > _LONG_DIGITS_MAX or not -(2**63) <= int(raw) < 2**63:
        return TEXT
    return INTEGER if abs(int(raw)) <= _EXACT_IN_A_DOUBLE else LARGE_INTEGER


News = dict[str, tuple[Kind, int]]
"""Fields whose values have no fitting column: their kinds, and how many values."""


def fits(kind: Kind, column: ColumnType) -> bool:
    """Whether a column can hold a value exactly."""
    return column == "string" or bool(kind & _HELD[column])


_HELD: Final[Mapping[ColumnType, Kind]] = {
    "boolean": BOOLEAN,
    "long": INTEGER | LARGE_INTEGER,
    "double": INTEGER | FRACTION,
}


class Reader:
    """Reads the columns of rows, and counts what has no fitting column.

    Most rows match the columns and are decoded in one go. Other rows are examined value by value.
    Both give the same result.

    Attributes:
        news: the fields without a fitting column, of all rows so far.
    """

    def __init__(self, columns: Columns) -> None:
        self.news: News = {}
        self._columns = columns
        self._places = {one.field: place for place, one in enumerate(columns)}
        self._empty: list[str] = []
        self._mixed = False
        self._expect()

    def arrays(self, values: Iterable[str | None]) -> list[Any]:
        """The columns of some rows. A value that does not fit is null."""
        rows = [self._row(text) for text in values]
        columns = zip(*rows, strict=True) if rows else [()] * len(self._columns)
        return [
            pa.array(found, ARROW_TYPES[one.type])
            for found, one in zip(columns, self._columns, strict=True)
        ]

    def _expect(self) -> None:
        """Create the decoder for what is expected: the columns, and fields that are always null."""
        kinds = [_expected(one, mixed=self._mixed) for one in self._columns]
        kinds += [(None, None)] * len(self._empty)
        names = [*self._places, *self._empty]
        shape = msgspec.defstruct(
            "Expected",
            [(f"f{place}", *kind) for place, kind in enumerate(kinds)],
            rename={f"f{place}": name for place, name in enumerate(names)},
            forbid_unknown_fields=True,
            gc=False,
        )
        self._decode = msgspec.json.Decoder(shape).decode
        self._texts = [
            place for place, one in enumerate(self._columns) if self._mixed and one.type == "string"
        ]

    def _row(self, text: str | None) -> Sequence[Any]:
        if not text:
            return [None] * len(self._columns)
        if not self._columns:
            return self._looked_at(text)
        try:
            found = msgspec.structs.astuple(self._decode(text))
        except (msgspec.DecodeError, RecursionError):
            return self._looked_at(text)
        if not self._texts:
            return found[: len(self._columns)] if self._empty else found
        row = [*found[: len(self._columns)]]
        for place in self._texts:
            raw = bytes(row[place])
            row[place] = None if raw == b"null" else _text(raw)
        return row

    def _looked_at(self, text: str) -> Sequence[Any]:
        row: list[Any] = [None] * len(self._columns)
        empty: list[str] = []
        for name, raw in fields_of(text).items():
            kind = kind_of(raw)
            place = self._places.get(name)
            if place is None:
                if kind:
                    self._count(name, kind)
                elif name not in self._empty:
                    empty.append(name)
                continue
            column = self._columns[place]
            if kind and fits(kind, column.type):
                row[place] = _READ[column.type](raw)
            if kind and not column.kinds & (kind | TEXT):
                self._count(name, kind)
            if kind and column.type == "string" and raw[0] != _QUOTE:
                self._mixed = True
        self._learn(empty)
        return row

    def _learn(self, empty: list[str]) -> None:
        """Add what was unexpected in a row to the decoder, if that is cheap."""
        room = len(self._empty) + len(empty) <= _EMPTY_MAX
        if room:
            self._empty += empty
        if (empty and room) or (self._mixed and not self._texts):
            self._expect()

    def _count(self, name: str, kind: Kind) -> None:
        if len(name) <= NAME_CHARS_MAX:
            join_news(self.news, {name: (kind, 1)})


def _expected(column: Column, *, mixed: bool) -> tuple[Any, Any]:
    """The expected type of a field, and its value when missing."""
    match column.type:
        case "boolean":
            return bool | None, None
        case "long":
            large = column.kinds & LARGE_INTEGER
            low, high = (
                (-(2**63), 2**63 - 1) if large else (-_EXACT_IN_A_DOUBLE, _EXACT_IN_A_DOUBLE)
            )
            return Annotated[int, msgspec.Meta(ge=low, le=high)] | None, None
        case "double":
            # Not one more: the next integer would be rounded to it.
            most = _EXACT_IN_A_DOUBLE - 1
            return Annotated[float, msgspec.Meta(ge=-most, le=most)] | None, None
        case "string":
            return (msgspec.Raw, _NULL) if mixed else (str | None, None)


def join_news(held: News, more: News) -> None:
    """Add the news of other rows, limited to the most frequent fields."""
    for name, (kinds, count) in more.items():
        before = held.get(name, (NOTHING, 0))
        held[name] = (before[0] | kinds, before[1] + count)
    if len(held) > _NEWS_MAX:
        for name in heapq.nsmallest(len(held) - _NEWS_MAX, held, lambda name: held[name][1]):
            del held[name]


def news_in(values: Iterable[str | None], columns: Columns = ()) -> News:
    """The values in some rows that have no fitting column."""
    reader = Reader(columns)
    for _ in map(reader._row, values):
        pass
    return reader.news


def arrays_of(values: Iterable[str | None], columns: Columns) -> list[Any]:
    """The columns of some rows."""
    return Reader(columns).arrays(values)


def _text(raw: bytes) -> str:
    if raw.startswith(b'"'):
        try:
            return msgspec.json.decode(raw, type=str)
        except msgspec.DecodeError:
            # JSON lets a string contain half a character, which no table can hold.
            pass
    return raw.decode()


_READ: Final[Mapping[ColumnType, Callable[[bytes], Any]]] = {
    "boolean": lambda raw: raw == b"true",
    "long": int,
    "double": float,
    "string": _text,
}
_NULL: Final = msgspec.Raw(b"null")
_QUOTE: Final = ord('"')
_EMPTY_MAX: Final = 100
"""How many always-null fields are remembered by name."""
_NEWS_MAX: Final = 4 * COLUMNS_MAX

# --- Adding columns ------------------------------------------------------------------------------


def grown(columns: Columns, news: Mapping[str, Kind], taken: Iterable[str]) -> Columns:
    """The columns extended for what is new; `taken` are names that cannot be used."""
    after = [replace(one, kinds=one.kinds | news.get(one.field, NOTHING)) for one in columns]
    names = {_folded(name) for name in taken} | {_folded(one.name) for one in columns}
    new = sorted(news.keys() - {one.field for one in columns})
    for field in new[: max(0, COLUMNS_MAX - len(after))]:
        name = _free_name(field, names)
        names.add(_folded(name))
        after.append(Column(field, name, news[field]))
    return tuple(after)


def room_for(news: News, columns: Columns) -> dict[str, Kind]:
    """The fields without a column of the right type.

    At most as many as a table may have columns: first those of columns that have to change, then
    the most frequent ones.
    """
    known = {one.field: one.kinds for one in columns}
    wanted = {
        name: (kinds, count)
        for name, (kinds, count) in news.items()
        if name not in known or not (known[name] & TEXT or not kinds & ~known[name])
    }
    ranked = sorted(wanted, key=lambda name: (name not in known, -wanted[name][1], name))
    return {name: wanted[name][0] for name in ranked[:COLUMNS_MAX]}


def same_shape(one: Columns, other: Columns) -> bool:
    """Whether files with these columns have the same content."""
    return [(it.name, it.type) for it in one] == [(it.name, it.type) for it in other]


def without_widening(before: Columns, after: Columns) -> Columns:
    """The extended columns, with existing ones keeping their types."""
    kept = [
        old if old.type != new.type else new
        for old, new in zip(before, after[: len(before)], strict=True)
    ]
    return (*kept, *after[len(before) :])


def must_rewrite(before: Columns, after: Columns) -> bool:
    """Whether existing rows would no longer match the type of their columns."""
    types = {one.field: one.type for one in after}
    return any(one.type != types[one.field] for one in before)


def _free_name(field: str, names: set[str]) -> str:
    """A name that every reader accepts, and that differs from the others by more than its case."""
    plain = re.sub(r"\W", "_", field) or "_"
    name, number = plain, 1
    while _folded(name) in names:
        number += 1
        name = f"{plain}_{number}"
    return name


def _folded(name: str) -> str:
    return name.upper().casefold()
