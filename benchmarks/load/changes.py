"""Change records and the keys that wait for them."""

import random

from headwater.core.live.keys import template_id, watch_key

TABLE = "bench.rows"
OWNER = "owner"
_OWNED = template_id(TABLE, [OWNER])
_INSERT, _DELETE, _MOVE = range(3)

Lookup = tuple[int, int, int]
"""A table, a field and a value, all by number."""


def owner_key(owner: int) -> int:
    """The key that a query for the rows of one owner waits on."""
    return watch_key(_OWNED, [b"%d" % owner])


def owner_template() -> int:
    return _OWNED


def edited(owner: int, version: int) -> bytes:
    """A row of an owner was edited; it keeps its owner."""
    row = b'{"id":"%d","owner":"%d","note":"version %d of what is written there"}'
    after, before = row % (owner, owner, version), row % (owner, owner, version - 1)
    return _record(TABLE, owner, b"update", after, before)


class Tables:
    """Tables whose rows are looked up by any of their fields, and changes to such rows.

    Out of ten changes, one is an insert, one a delete, one moves a row to another value of a field,
    and seven leave these fields as they are. All carry the row as it was.
    """

    def __init__(self, tables: int, fields: int, values: int, seed: int) -> None:
        self._names = [f"bench.table{number}" for number in range(tables)]
        self._fields = [f"field{number}" for number in range(fields)]
        self._values = values
        self._random = random.Random(seed)
        self._row = b'{%b,"note":"%%d"}' % b",".join(
            b'"%b":"%%d"' % field.encode() for field in self._fields
        )

    @property
    def templates(self) -> list[tuple[str, str]]:
        """One for each field of each table."""
        return [(name, field) for name in self._names for field in self._fields]

    def lookup(self) -> Lookup:
        """Rows with some value of some field of some table."""
        pick = self._random.randrange
        return pick(len(self._names)), pick(len(self._fields)), pick(self._values)

    def template_of(self, lookup: Lookup) -> int:
        return template_id(self._names[lookup[0]], [self._fields[lookup[1]]])

    def key_of(self, lookup: Lookup) -> int:
        return watch_key(self.template_of(lookup), [b"%d" % lookup[2]])

    def change(self, number: int) -> tuple[bytes, set[Lookup]]:
        """A change to a random row, and the lookups that would find the row before or after it."""
        pick = self._random.randrange
        table = pick(len(self._names))
        before = [pick(self._values) for _ in self._fields]
        after = list(before)
        kind = number % 10
        if kind == _MOVE:
            after[pick(len(after))] = pick(self._values)
        new = None if kind == _DELETE else self._row % (*after, number)
        old = None if kind == _INSERT else self._row % (*before, number - 1)
        operation = {_INSERT: b"insert", _DELETE: b"delete"}.get(kind, b"update")
        found = {
            (table, field, value) for row in (before, after) for field, value in enumerate(row)
        }
        return _record(self._names[table], number, operation, new, old), found


def _record(
    table: str, key: int, operation: bytes, after: bytes | None, before: bytes | None
) -> bytes:
    value = b"" if after is None else b'"value":%b,' % after
    old_value = b"" if before is None else b'"old_value":%b,' % before
    return b'{"type":"%b","key":"%d",%b%b"headers":{"operation":"%b"}}' % (
        table.encode(),
        key,
        value,
        old_value,
        operation,
    )
