"""What a query has to wait on, worked out from its shape.

A live query names the table that it reads (its entity) and, if it has them, the fields that it
compares for equality. From these follow the keys to wait on:

- no such fields, more than three, or a value that has no key: the table, any change of it;
- fields, and the result depends on which rows match and on some of their other fields
  (`project`): the membership key and one key for each of those fields;
- fields, and the result depends on which rows match only (`membership_only`), as a count does: the
  membership key;
- fields, otherwise: the watch key, any change to a matching row.

    >>> keyset("public.todos", {"tenantId": "t1", "status": "open"}).keys
    ('0af6023939b30f26',)

How a value enters a key is told by its Python type: `str` and `UUID` are strings, `int` is int64,
`bool` is bool, `datetime` and `date` are datetimes, `bytes` are bytes (in base64, as in JSON). For
anything else say it with `Encoded` or `encodings`; a value without an encoding, such as None or a
float, makes the query wait on its table. The rules behind the keys are the server's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from enum import Enum
from typing import Any, Final
from uuid import UUID

import msgspec

from headwater.core.live import encodings as rules
from headwater.core.live import keys
from headwater.core.live.encodings import ENCODINGS, Encoding
from headwater.core.live.templates import FIELDS_MAX, NAME_CHARS_MAX

# With more keys than this the server has to look through keysets one by one. The watch key wakes
# for a few changes more and costs less.
PROJECTED_MAX: Final = 31


@dataclass(frozen=True, slots=True)
class Encoded:
    """A value together with the encoding that its field has in the template.

    >>> keyset("posts", {"id": Encoded("7", "int64")}) == keyset("posts", {"id": 7})
    True
    """

    value: Any
    encoding: Encoding


@dataclass(frozen=True, slots=True)
class Template:
    """A query shape: a table, and the fields that its queries compare for equality.

    >>> Template("public.todos", {"tenantId": "string", "status": "string"}).id
    '03d5826f0bf1e3e7'
    """

    entity: str
    fields: Mapping[str, Encoding]

    @property
    def id(self) -> str:
        """The template's id."""
        return keys.to_hex(keys.template_id(self.entity, [*self.fields]))

    @property
    def key(self) -> str:
        """The key that stands for any row of the table, as seen by this shape."""
        return keys.to_hex(keys.template_key(int(self.id, 16)))

    def wire(self) -> dict[str, Any]:
        """The template as it is declared."""
        fields = [{"name": name, "encoding": kind} for name, kind in self.fields.items()]
        return {"entity": self.entity, "fields": fields}


@dataclass(frozen=True, slots=True)
class Keyset:
    """What one query waits on.

    Attributes:
        entity: the table.
        keys: the keys, each 16 hex digits.
        template: the shape that the keys belong to; None if the wait is on the whole table.
    """

    entity: str
    keys: tuple[str, ...]
    template: Template | None = None

    def wire(self) -> dict[str, Any]:
        """The part of a wait's body that says what to wait on."""
        if self.template is None:
            return {"keys": self.keys, "interestMode": "coarse"}
        return {
            "keys": self.keys,
            "interestMode": "fine",
            "templateIdsUsed": [self.template.id],
            # Declared with every wait: it may have retired, and others may have declared it again
            # with encodings of their own. The server then answers for the whole table.
            "declareTemplates": [self.template.wire()],
        }

    def coarse(self) -> Keyset:
        """The same query, waiting on its whole table."""
        return replace(self, keys=(table_key(self.entity),), template=None)


def keyset(
    entity: str,
    where: Mapping[str, Any] | None = None,
    *,
    project: Iterable[str] | None = None,
    membership_only: bool = False,
    encodings: Mapping[str, Encoding] | None = None,
) -> Keyset:
    """What a query has to wait on.

    Args:
        entity: the table, as in the `type` of its change records.
        where: the fields that the query compares for equality, with their values.
        project: the other fields that the result depends on, sort order included. None means
            that it may depend on all of them.
        membership_only: the result depends only on which rows match.
        encodings: for fields whose encoding is not what their value's type says.
    """
    where, wanted = where or {}, None if project is None else list(dict.fromkeys(project))
    if membership_only and wanted:
        raise ValueError("give project or membership_only, not both")
    _check_encodings(where, encodings or {})
    coarse = Keyset(entity, (table_key(entity),))
    names = keys.sorted_fields(where)
    if not 1 <= len(names) <= FIELDS_MAX or not all(map(_is_name, [entity, *names])):
        return coarse
    kinds: dict[str, Encoding] = {}
    values: list[bytes] = []
    for name in names:
        found = encode_value(where[name], (encodings or {}).get(name))
        if found is None:
            return coarse
        kinds[name] = found[0]
        values.append(found[1])
    template = Template(entity, kinds)
    return Keyset(entity, tuple(_fine_keys(template, values, wanted, membership_only)), template)


def _fine_keys(
    template: Template, values: list[bytes], project: list[str] | None, membership_only: bool
) -> list[str]:
    number = int(template.id, 16)
    if membership_only:
        project = []
    if project is None or len(project) > PROJECTED_MAX:
        return [keys.to_hex(keys.watch_key(number, values))]
    found = [keys.membership_key(number, values)]
    found += [keys.projected_key(number, field, values) for field in project]
    return [keys.to_hex(key) for key in found]


def _is_name(text: str) -> bool:
    return 1 <= len(text) <= NAME_CHARS_MAX


def _check_encodings(where: Mapping[str, Any], encodings: Mapping[str, Encoding]) -> None:
    unknown = [name for name in encodings if name not in where]
    if unknown:
        raise ValueError(f"encodings names fields that where does not: {', '.join(unknown)}")
    given = [value.encoding for value in where.values() if isinstance(value, Encoded)]
    for encoding in (*encodings.values(), *given):
        if encoding not in ENCODINGS:
            raise ValueError(f"no encoding: {encoding!r}; there are {', '.join(ENCODINGS)}")


# --- Values --------------------------------------------------------------------------------------


def encode_value(value: Any, encoding: Encoding | None = None) -> tuple[Encoding, bytes] | None:
    """A value as it enters a key, and its encoding; None if it has none.

    >>> encode_value(7)
    ('int64', b'7')
    >>> encode_value(7.5) is None
    True
    """
    if isinstance(value, Encoded):
        value, encoding = value.value, value.encoding
    encoding = encoding or encoding_of(value)
    if encoding is None:
        return None
    try:
        raw = msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError):
        return None
    encoded = rules.encode(raw, encoding)
    return None if encoded is None else (encoding, encoded)


def encoding_of(value: Any) -> Encoding | None:
    """The encoding that goes with a value's type.

    Numbers with a point have none: the same one may be written in many ways.
    """
    match value:
        case bool():
            return "bool"
        case int():
            return "int64"
        case str() | UUID():
            return "string"
        case date():
            return "datetime"
        case bytes() | bytearray() | memoryview():
            return "bytes"
        case Enum():
            return encoding_of(value.value)
        case _:
            return None


# --- Keys by themselves --------------------------------------------------------------------------


def table_key(entity: str) -> str:
    """The key that any change of a table touches.

    >>> table_key("public.todos")
    'feadeb84d447fd63'
    """
    return keys.to_hex(keys.table_key(entity))


def key_id(key: str) -> int:
    """The short form of a key, for `key_ids`.

    >>> key_id("feadeb84d447fd63")
    3561487715
    """
    return keys.key_id(key)
