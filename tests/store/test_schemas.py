"""The engines with tables have the same ones, as far as their codecs are shared."""

from __future__ import annotations

import re

import apsw

from headwater.store.postgresql import schema as postgresql
from headwater.store.sqlite import schema as sqlite

# What only one of them has, and why: PostgreSQL has nodes and shards, and nodes make segments for
# each other; ids are counted by SQLite itself, and by sequences there.
ONLY_SQLITE = {"sqlite_sequence"}
HISTORY = {"extents", "segments"}
"""What is not copied from one to the other: appends in files become rows again."""
ONLY_POSTGRESQL = {"bindings", "cluster", "nodes", "shards", "ids"}
OWN_COLUMNS = {
    ("ops", "id"),
    ("segments", "maker"),
    ("segments", "unused_at"),
    ("streams", "shard"),
    ("subscriptions", "shard"),
}


def sqlite_columns() -> set[tuple[str, str]]:
    connection = apsw.Connection(":memory:")
    for migration in sqlite.MIGRATIONS:
        connection.execute(migration)
    found = connection.execute(
        "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c"
        " WHERE t.type = 'table'"
    )
    return {(str(table), str(column)) for table, column in found}


def postgresql_columns() -> set[tuple[str, str]]:
    script = "".join(postgresql.MIGRATIONS)
    found: set[tuple[str, str]] = set()
    for table, body in re.findall(r"CREATE TABLE (\w+) \((.*?)\n\)", script, re.DOTALL):
        names = re.findall(r"^  (\w+) \w+", body, re.MULTILINE)
        found |= {(table, name) for name in names if name != "PRIMARY"}
    added = re.findall(r"ALTER TABLE (\w+) ADD COLUMN (\w+)", script)
    return found | {(table, column) for table, column in added}


def test_both_have_the_same_tables_and_columns() -> None:
    """A column that one of them gets, the other one needs too."""
    ours = {c for c in sqlite_columns() - OWN_COLUMNS if c[0] not in ONLY_SQLITE}
    theirs = {c for c in postgresql_columns() - OWN_COLUMNS if c[0] not in ONLY_POSTGRESQL}
    assert ours - theirs == set()
    assert theirs - ours == set()


def test_a_name_means_the_same_in_every_table() -> None:
    """The types of columns are looked up by name alone."""
    declared = postgresql._DECLARED.findall("".join(postgresql.MIGRATIONS))
    types: dict[str, set[bool]] = {}
    for name, kind in declared:
        types.setdefault(name, set()).add(kind in ("text", "bytea"))
    assert {name for name, kinds in types.items() if len(kinds) > 1} == set()
