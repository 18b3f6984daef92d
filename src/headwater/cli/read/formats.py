"""How `read` and `tail` show a message: lines, records, tables, or a template.

    lines     the message, or the line, as it is (the default)
    pretty    JSON laid out over several lines
    json      records for scripts; --json is short for it
    details   records with everything the server knows; --details is short for it
    csv       a table: offset, index, time, id, key, value
    TEMPLATE  text with a letter after each %, like kcat's:

              %s message   %S its bytes   %k key     %o offset
              %t stream    %i id          %T ms      %d time
              %% percent   \\n line feed   \\t tab

A key is the `key` of a State Protocol message, or of any JSON object that has one; an id is the
`Message-Id` that a message was sent with. On a terminal, JSON is coloured unless $NO_COLOR is set.
"""

from __future__ import annotations

import csv
import io
import re
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from headwater.cli.exits import usage
from headwater.cli.output import harmless, instant, is_terminal, on_one_line
from headwater.cli.positions import show
from headwater.cli.records import (
    DataRecord,
    MessageDataRecord,
    MessageValueRecord,
    Record,
    TextRecord,
    ValueRecord,
)
from headwater.cli.units import Unit
from headwater.client import Position
from headwater.client.protocol.records import Line

GRAMMAR: Final = "lines, pretty, json, details, csv, or a template such as '%d %o %s\\n'"
CSV_COLUMNS: Final = ("offset", "index", "time", "id", "key", "value")


@dataclass(frozen=True, slots=True)
class Item:
    """A message, a line with its end, or a piece of bytes."""

    data: bytes
    next: Position
    known: Line | None = None
    """What the server knows about it."""

    @property
    def about(self) -> Line:
        assert self.known is not None, "only formats with `detailed` ask"
        return self.known


Render = Callable[[Item], bytes]


@dataclass(frozen=True, slots=True)
class Format:
    """How items are rendered."""

    render: Render | None
    """None: verbatim, without finding where items end."""
    detailed: bool = False
    """Whether it shows what only Headwater knows."""
    whole_appends: bool = False
    """Whether appends of bytes and text stay in one piece."""
    head: bytes = b""


def make_format(text: str, unit: Unit, stream: str, *, colours: bool) -> Format:
    """The format for a value of `--format`, in a stream of this unit."""
    shown = clean()
    paint = _paint if colours and unit is Unit.MESSAGE else shown
    match text:
        case "lines":
            if unit is Unit.MESSAGE and colours:
                return Format(lambda item: paint(on_one_line(item.data)) + b"\n")
            return Format(None)
        case "pretty":
            if unit is not Unit.MESSAGE:
                return Format(None)
            return Format(lambda item: paint(msgspec.json.format(item.data, indent=2)) + b"\n")
        case "json":
            paint = _paint if colours else shown
            return Format(lambda item: paint(msgspec.json.encode(_record(item, unit))) + b"\n")
        case "details":
            paint = _paint if colours else shown
            return Format(
                lambda item: paint(msgspec.json.encode(_detailed(item, unit))) + b"\n",
                detailed=True,
                whole_appends=True,
            )
        case "csv":
            head = _csv_row(CSV_COLUMNS)
            return Format(lambda item: shown(_csv_item(item, unit)), detailed=True, head=head)
        case "time":
            return Format(
                lambda item: _time(item) + b" " + paint(_shown(item, unit)) + b"\n", detailed=True
            )
    if "%" not in text:
        raise usage(f"{text!r} is not a format; use {GRAMMAR}")
    return _template(text, unit, stream)


# --- Templates ------------------------------------------------------------------------------------

_DETAILED: Final = frozenset("oiTd")
_PART: Final = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def check_format(text: str) -> None:
    """Refuse an invalid format before any request to a server."""
    make_format(text, Unit.MESSAGE, "", colours=False)


def _template(text: str, unit: Unit, stream: str) -> Format:
    values: dict[str, Callable[[Item], bytes]] = {
        "s": lambda item: _shown(item, unit),
        "S": lambda item: str(len(_shown(item, unit))).encode(),
        "k": lambda item: _key(item, unit).encode(),
        "o": lambda item: item.about.offset.encode(),
        "t": lambda item: stream.encode(),
        "i": lambda item: (item.about.message_id or "").encode(),
        "T": lambda item: str(item.about.timestamp).encode(),
        "d": _time,
    }
    parts: list[bytes | Callable[[Item], bytes]] = []
    end, detailed = 0, False
    for found in _PART.finditer(text):
        parts.append(text[end : found.start()].encode(errors="surrogateescape"))
        end = found.end()
        letter, escape = found.groups()
        if letter is None:
            parts.append(_escaped(escape, text))
        elif letter == "%":
            parts.append(b"%")
        elif letter in values and letter:
            detailed |= letter in _DETAILED
            parts.append(values[letter])
        else:
            raise usage(f"%{letter} means nothing in a format; use %s %S %k %o %t %i %T %d or %%")
    parts.append(text[end:].encode(errors="surrogateescape"))
    kept = [part for part in parts if part != b""]
    shown = clean()

    def render(item: Item) -> bytes:
        return b"".join(part if isinstance(part, bytes) else shown(part(item)) for part in kept)

    return Format(render, detailed=detailed)


def _escaped(escape: str, text: str) -> bytes:
    if escape.startswith("x") and len(escape) == 3:
        return bytes([int(escape[1:], 16)])
    if escape not in _ESCAPES:
        raise usage(
            f"'\\{escape}' in {text!r} is not an escape; use \\n, \\t, \\r, \\0, \\x1f or \\\\"
        )
    return _ESCAPES[escape]


# --- Records and tables ---------------------------------------------------------------------------


def _record(item: Item, unit: Unit) -> Record:
    if unit is Unit.MESSAGE:
        return ValueRecord(value=msgspec.Raw(on_one_line(item.data)), next=show(item.next))
    if unit is Unit.LINE:
        try:
            return TextRecord(text=_without_end(item.data).decode(), next=show(item.next))
        except UnicodeDecodeError:
            pass
    return DataRecord(data=b64encode(item.data).decode(), next=show(item.next))


def _detailed(item: Item, unit: Unit) -> Record:
    about = item.about
    fields = {
        "offset": about.offset,
        "index": about.index,
        "time": instant(about.timestamp),
        "id": about.message_id,
        "producer_id": about.producer_id,
        "producer_epoch": about.producer_epoch,
        "producer_seq": about.producer_seq,
        "next": show(item.next),
    }
    if unit is Unit.MESSAGE:
        value = msgspec.Raw(on_one_line(item.data))
        return msgspec.convert({**fields, "value": value}, MessageValueRecord)
    data = b64encode(item.data).decode()
    return msgspec.convert({**fields, "data": data}, MessageDataRecord)


def _csv_item(item: Item, unit: Unit) -> bytes:
    about = item.about
    shown = _shown(item, unit)
    try:
        value = b64encode(shown).decode() if unit is Unit.BYTE else shown.decode()
    except UnicodeDecodeError:
        value = b64encode(shown).decode()
    return _csv_row(
        (
            about.offset,
            about.index,
            instant(about.timestamp),
            about.message_id or "",
            _key(item, unit),
            value,
        )
    )


def _csv_row(cells: tuple[object, ...]) -> bytes:
    row = io.StringIO()
    csv.writer(row, lineterminator="\n").writerow(cells)
    return row.getvalue().encode(errors="replace")


class _Keyed(msgspec.Struct):
    key: str | int | None = None


_KEYED: Final = msgspec.json.Decoder(_Keyed)


def _key(item: Item, unit: Unit) -> str:
    if unit is not Unit.MESSAGE:
        return ""
    try:
        key = _KEYED.decode(item.data).key
    except (msgspec.MsgspecError, RecursionError):
        return ""  # not an object, or its key is something else
    return "" if key is None else str(key)


def _shown(item: Item, unit: Unit) -> bytes:
    if unit is Unit.MESSAGE:
        return on_one_line(item.data)
    return _without_end(item.data) if unit is Unit.LINE else item.data


def _without_end(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _time(item: Item) -> bytes:
    moment = instant(item.about.timestamp) or "-"
    # Fixed width, so that what follows is aligned.
    return (moment if "." in moment else moment.replace("Z", ".000Z")).encode()


# --- Colours --------------------------------------------------------------------------------------

_TOKEN: Final = re.compile(
    rb'(?P<text>"(?:[^"\\]|\\.)*+")(?P<key>\s*:)?|(?P<number>-?\d[\d.eE+-]*)'
    rb"|(?P<flag>true|false)|(?P<null>null)"
)
_COLOURS: Final = {"number": b"36", "flag": b"33", "null": b"90"}


def clean() -> Callable[[bytes], bytes]:
    """How foreign text has to be cleaned before stdout can show it."""
    return harmless if is_terminal() else bytes


def _paint(text: bytes) -> bytes:
    """JSON in colours, without anything that a terminal would obey.

    >>> _paint(b'{"a": 1}')
    b'{\\x1b[34;1m"a"\\x1b[0m: \\x1b[36m1\\x1b[0m}'
    """
    return _TOKEN.sub(_painted, harmless(text))


def _painted(found: re.Match[bytes]) -> bytes:
    if found["text"] is None:
        return b"\x1b[" + _COLOURS[found.lastgroup or ""] + b"m" + found[0] + b"\x1b[0m"
    if found["key"] is None:
        return b"\x1b[32m" + found["text"] + b"\x1b[0m"
    return b"\x1b[34;1m" + found["text"] + b"\x1b[0m" + found["key"]


# --- What is wanted -------------------------------------------------------------------------------


def make_filter(text: str | None) -> Callable[[bytes], bool] | None:
    """`--grep`: the text itself, or /a regular expression/, followed by i to ignore case."""
    if text is None:
        return None
    if not text:
        raise usage("--grep needs text to look for")
    body, slash, flags = text[1:].rpartition("/")
    if not text.startswith("/") or not slash:
        wanted = text.encode(errors="surrogateescape")
        return lambda data: wanted in data
    if flags not in ("", "i"):
        raise usage(f"/{flags} means nothing after a regular expression; only /i does")
    return _matcher(body, flags)


def _matcher(body: str, flags: str) -> Callable[[bytes], bool]:
    try:
        pattern = re.compile(body, re.IGNORECASE if flags else 0)
    except (re.error, RecursionError, OverflowError) as error:
        raise usage(f"/{body}/ is not a regular expression: {error}") from None
    return lambda data: pattern.search(data.decode(errors="replace")) is not None
