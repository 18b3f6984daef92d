"""Which keys a change touches.

Always its table. For each active template of the table, by the values of the template's fields in
the row (its tuple):

- insert:                watch and membership of the new tuple
- delete:                watch and membership of the old tuple
- update, tuple changed: watch and membership of both tuples
- update, tuple same:    watch; and the projected key of every field whose value differs, where a
                         field that came or went differs too, and objects compare by value

A tuple with a value that cannot be encoded names no rows: the change touches the template's key,
for which everyone who waits on a fine key of the template listens as well. The same where the row
as it was is needed and not known, unless the stream is set to `skipBefore`: then the new tuple is
touched with all its fields, and the caller lives with what that misses.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from decimal import Decimal
from typing import Final

import msgspec
from xxhash import xxh3_64_intdigest

from headwater.core.live.encodings import Encoding, encode
from headwater.core.live.records import MissingBeforePolicy, Record, is_object
from headwater.core.live.templates import Template

Pending = dict[int, int]
"""Touched keys, each with the id of the template that it is a fine key of, or one of these two."""
TABLE: Final = 0
TEMPLATE: Final = -1

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _exact_number(text: str) -> Decimal | str:
    """Numbers with a point keep their digits: as floats, different ones could look the same."""
    number = Decimal(text)
    return number if number.is_finite() else text


_exact = msgspec.json.Decoder(float_hook=_exact_number)
_sorted = msgspec.json.Encoder(decimal_format="number", order="deterministic")


class Row:
    """A row of a change; each field is encoded once, however many templates ask for it."""

    __slots__ = ("_encoded", "fields")

    def __init__(self, raw: msgspec.Raw) -> None:
        self._encoded: dict[tuple[str, Encoding], bytes | None] = {}
        self.fields: dict[str, msgspec.Raw] = {}
        if is_object(raw):
            # A row nested so deeply that it cannot be taken apart names nothing.
            with suppress(RecursionError):
                self.fields = _fields.decode(raw)

    def arguments(self, template: Template) -> bytes | None:
        """The tuple for a template, ready to be hashed; None if it cannot be encoded."""
        encoded, joined = self._encoded, b""
        for column in template.columns:
            try:
                value = encoded[column]
            except KeyError:
                raw = self.fields.get(column[0])
                value = encoded[column] = None if raw is None else encode(bytes(raw), column[1])
            if value is None:
                return None
            joined += b"\0" + value
        return joined

    def lacks(self, template: Template) -> bool:
        return not template.names <= self.fields.keys()


class Change:
    """A change record with its rows taken apart, as far as anybody asks."""

    __slots__ = ("_differing", "is_delete", "is_insert", "new", "old")

    def __init__(self, record: Record) -> None:
        self.is_insert = record.is_insert
        self.is_delete = record.headers.operation == "delete"
        self.new = Row(record.value) if record.has_value else None
        self.old = Row(record.old_value) if record.has_before else None
        self._differing: dict[str, bytes] | None = None

    @property
    def differing(self) -> dict[str, bytes]:
        """The fields that differ between the row as it was and as it is, encoded for keys."""
        if self._differing is None:
            new = self.new.fields if self.new else {}
            old = self.old.fields if self.old else {}
            names = [name for name, raw in new.items() if raw != old.get(name)]
            names += [name for name in old if name not in new]
            self._differing = {name: name.encode() for name in names if differ(new, old, name)}
        return self._differing


def differ(new: dict[str, msgspec.Raw], old: dict[str, msgspec.Raw], name: str) -> bool:
    """Whether a field whose text differs has another value too."""
    if name not in new or name not in old:
        return True
    return _canonical(bytes(new[name])) != _canonical(bytes(old[name]))


def _canonical(raw: bytes) -> bytes:
    """The same bytes for the same value, whatever the order of members and the escapes."""
    try:
        return _sorted.encode(_exact.decode(raw))
    except (RecursionError, ArithmeticError):
        return raw


def touch_template(
    change: Change, template: Template, policy: MissingBeforePolicy, pending: Pending
) -> int:
    """Note the keys that a change touches for a template, and say how many."""
    keys = fine_keys(change, template, policy)
    if keys is None:
        pending[template.key] = TEMPLATE
        return 1
    template_id = template.id
    for key in keys:
        pending[key] = template_id
    return len(keys)


def touch_all_rows(templates: Iterable[Template], pending: Pending) -> None:
    """Instead of fine keys: everyone who waits on rows of these templates."""
    for template in templates:
        pending[template.key] = TEMPLATE


def fine_keys(change: Change, template: Template, policy: MissingBeforePolicy) -> list[int] | None:
    """The fine keys of a change; None if it cannot name its rows."""
    new, old = change.new, change.old
    if change.is_insert:
        return _rows(template, None if new is None else new.arguments(template))
    if old is None:
        return _after_only(change, template) if policy == "skipBefore" else None
    if change.is_delete or new is None:
        return _removed(change, old, template, policy)
    differing = change.differing
    after = new.arguments(template)
    if template.names.isdisjoint(differing):
        # By far the most common: the row stays where it is.
        return None if after is None else _projected(template, after, differing.values())
    if old.lacks(template):
        return _after_only(change, template) if policy == "skipBefore" else None
    before = old.arguments(template)
    if before is None or after is None:
        return None
    if before != after:
        return _rows(template, before, after)
    return _projected(template, after, differing.values())


def _removed(
    change: Change, old: Row, template: Template, policy: MissingBeforePolicy
) -> list[int] | None:
    if old.lacks(template) and policy == "skipBefore":
        return _after_only(change, template)
    return _rows(template, old.arguments(template))


def _rows(template: Template, *tuples: bytes | None) -> list[int] | None:
    keys: list[int] = []
    for arguments in tuples:
        if arguments is None:
            return None
        keys.append(xxh3_64_intdigest(template.watch_prefix + arguments))
        keys.append(xxh3_64_intdigest(template.membership_prefix + arguments))
    return keys


def _projected(template: Template, arguments: bytes, fields: Iterable[bytes]) -> list[int]:
    prefix = template.projected_prefix
    keys = [xxh3_64_intdigest(prefix + field + arguments) for field in fields]
    keys.append(xxh3_64_intdigest(template.watch_prefix + arguments))
    return keys


def _after_only(change: Change, template: Template) -> list[int] | None:
    """Best effort without the row as it was."""
    arguments = None if change.new is None else change.new.arguments(template)
    rows = _rows(template, arguments)
    if rows is None or arguments is None or change.new is None:
        return None
    others = [name.encode() for name in change.new.fields if name not in template.names]
    return rows + _projected(template, arguments, others)
