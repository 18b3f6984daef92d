"""Which keys a change touches.

Always its table. For each active template of the table, by the values of the template's fields in
the row (its tuple):

- insert:                watch and membership of the new tuple
- delete:                watch and membership of the old tuple
- update, tuple changed: watch and membership of both tuples
- update, tuple same:    watch; and the projected key of every field whose value differs, where a
                         field that came or went differs too, and objects compare by value.
                         Where the tuple is the same only in its encoding (a time that differs
                         by less than a millisecond), the membership as well

A tuple with a value that cannot be encoded names no rows: the change touches the template's key,
which every waiter on a fine key of the template listens to as well. The same applies if the
previous row is needed but not known, unless the stream is set to `skipBefore`: then the new tuple
is touched with all its fields, and the client accepts what that misses.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Final

import msgspec
from xxhash import xxh3_64_intdigest

from headwater.core.live.records import MissingBeforePolicy, is_insert, is_object, row_of
from headwater.core.live.templates import Template
from headwater.core.state_protocol import DELETE, RawRecord

Pending = dict[int, int]
"""Touched keys, each with the id of the template whose fine key it is, or one of these two."""
TABLE: Final = 0
TEMPLATE: Final = -1

_Fields = dict[str, msgspec.Raw]
_fields = msgspec.json.Decoder(_Fields)


def _exact_number(text: str) -> Decimal | str:
    """Keep the digits of numbers with a point: as floats, different ones could be equal."""
    number = Decimal(text)
    return number if number.is_finite() else text


_exact = msgspec.json.Decoder(float_hook=_exact_number)
_sorted = msgspec.json.Encoder(decimal_format="number", order="deterministic")


class Row:
    """A row of a change; each field is encoded once, however many templates use it."""

    __slots__ = ("_encoded", "fields")

    def __init__(self, raw: bytes) -> None:
        self._encoded: dict[str, bytes | None] = {}
        self.fields: dict[str, msgspec.Raw] = {}
        if is_object(raw):
            try:
                self.fields = _fields.decode(raw)
            except RecursionError:
                # Nested too deeply to parse: the row names nothing.
                self.fields = {}

    def arguments(self, template: Template) -> bytes | None:
        """The tuple for a template, ready to be hashed; None if it cannot be encoded."""
        columns = template.columns
        if len(columns) == 1:
            # Caching it would cost more than it saves: hardly any other template uses it.
            _, name, encode = columns[0]
            raw = self.fields.get(name)
            return None if raw is None else encode(bytes(raw))
        encoded, values = self._encoded, []
        for word, name, encode in columns:
            if word in encoded:
                value = encoded[word]
            else:
                raw = self.fields.get(name)
                value = encoded[word] = None if raw is None else encode(bytes(raw))
            if value is None:
                return None
            values.append(value)
        return b"\0".join(values)

    def lacks(self, template: Template) -> bool:
        return not template.names <= self.fields.keys()


class Change:
    """A change record with its rows parsed."""

    __slots__ = ("differing", "is_delete", "is_insert", "new", "old")

    def __init__(self, record: RawRecord) -> None:
        self.is_insert = is_insert(record)
        self.is_delete = record.headers.operation == DELETE
        new, old = row_of(record.value), row_of(record.old_value)
        if self.is_delete and new == b"null":
            new = None  # one way to say that the row is gone
        self.new = None if new is None else Row(new)
        self.old = Row(old) if old is not None and is_object(old) else None
        self.differing: dict[str, bytes] | None = None
        """For an update with both rows known: the differing fields, in the form used in keys."""
        if self.new and self.old and not (self.is_insert or self.is_delete):
            self.differing = _differing(self.new.fields, self.old.fields)


def _differing(new: _Fields, old: _Fields) -> dict[str, bytes]:
    names = [name for name, raw in new.items() if raw != old.get(name)]
    if not old.keys() <= new.keys():
        names += [name for name in old if name not in new]
    return {name: _in_key(name) for name in names if differ(new, old, name)}


def _in_key(field: str) -> bytes:
    """A field in the form used in a projected key, before its values."""
    return field.encode() + b"\0"


def differ(new: _Fields, old: _Fields, name: str) -> bool:
    """Whether a field with different text also has a different value."""
    if name not in new or name not in old:
        return True
    after, before = bytes(new[name]), bytes(old[name])
    if _is_plain_text(after) and _is_plain_text(before):
        return True
    return _canonical(after) != _canonical(before)


def _is_plain_text(raw: bytes) -> bool:
    return raw[:1] == b'"' and b"\\" not in raw


def _canonical(raw: bytes) -> bytes:
    """The same bytes for equal values, whatever the order of members and the escapes."""
    try:
        return _sorted.encode(_exact.decode(raw))
    except (RecursionError, ArithmeticError):
        return raw


def touch_templates(
    change: Change,
    templates: Iterable[Template],
    policy: MissingBeforePolicy,
    pending: Pending,
    budget: int,
) -> int:
    """Add the keys that a change touches for templates, and return how many.

    Beyond the budget, templates are touched as a whole.
    """
    touched, row = 0, change.old if change.is_delete else change.new
    if row is not None and (change.is_insert or change.is_delete):
        touched, templates = _touch_tuples(row, None, templates, pending, budget)
    elif row is not None and change.differing is not None:
        touched, templates = _touch_tuples(row, change.differing, templates, pending, budget)
    for template in templates:
        if touched >= budget:
            pending[template.key] = TEMPLATE
            continue
        keys = _keys(change, template, policy)
        if keys is None:
            pending[template.key] = TEMPLATE
            touched += 1
        else:
            pending.update(dict.fromkeys(keys, template.id))
            touched += len(keys)
    return touched


def _touch_tuples(
    row: Row,
    differing: dict[str, bytes] | None,
    templates: Iterable[Template],
    pending: Pending,
    budget: int,
) -> tuple[int, list[Template]]:
    """For templates that see a row at one tuple: it was added or removed, or other fields differ.

    Returns how many keys those are, and which templates are left. Nearly every change ends here for
    nearly every template, so this is written inline instead of in small functions.
    """
    others: list[Template] = []
    touched, names, fields = 0, differing or (), [*differing.values()] if differing else []
    for template in templates:
        arguments = row.arguments(template)
        if arguments is None or touched >= budget or not template.names.isdisjoint(names):
            others.append(template)
            continue
        template_id = template.id
        pending[xxh3_64_intdigest(template.watch_prefix + arguments)] = template_id
        if differing is None:
            pending[xxh3_64_intdigest(template.membership_prefix + arguments)] = template_id
            touched += 2
        else:
            prefix = template.projected_prefix
            for field in fields:
                pending[xxh3_64_intdigest(prefix + field + arguments)] = template_id
            touched += 1 + len(fields)
    return touched, others


def touch_all_rows(templates: Iterable[Template], pending: Pending) -> None:
    """Instead of fine keys: wake everyone who waits on rows of these templates."""
    for template in templates:
        pending[template.key] = TEMPLATE


def _keys(change: Change, template: Template, policy: MissingBeforePolicy) -> list[int] | None:
    """The keys of a change in any other case; None if it cannot name its rows."""
    new, old = change.new, change.old
    if change.is_insert:
        return None
    if old is None or old.lacks(template):
        return _after_only(change, template) if policy == "skipBefore" else None
    if change.is_delete or new is None:
        return _rows(template, old.arguments(template))
    before, after = old.arguments(template), new.arguments(template)
    if before is None or after is None:
        return None
    if before != after:
        return _rows(template, before, after)
    # Equal only when encoded: a query for one of the two texts may have gained or lost a row.
    keys = _projected(template, after, (change.differing or {}).values())
    keys.append(xxh3_64_intdigest(template.membership_prefix + after))
    return keys


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
    """Best effort without the previous row."""
    arguments = None if change.new is None else change.new.arguments(template)
    rows = _rows(template, arguments)
    if rows is None or arguments is None or change.new is None:
        return None
    others = [_in_key(name) for name in change.new.fields if name not in template.names]
    return rows + _projected(template, arguments, others)
