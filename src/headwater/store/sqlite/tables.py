"""Writing many rows in few statements.

The interpreter lock is released and reacquired once per statement, which matters more than SQLite's
own work per row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

import apsw

from headwater.store.rows import Query, Row

ROWS_PER_INSERT: Final = 128
_KEYS_PER_DELETE: Final = 256
_RUN_WORTHWHILE: Final = 16


def next_id(query: Query, table: str) -> int:
    found = query("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,))
    return int(found[0][0]) + 1 if found else 1


def insert_rows(
    write: apsw.Connection,
    table: str,
    columns: str,
    values: Sequence[Row],
    suffix: str = "",
    *,
    again: bool = True,
) -> None:
    """Insert rows. A statement that may be used `again` keeps a copy of its values until then."""
    for first in range(0, len(values), ROWS_PER_INSERT):
        chunk = values[first : first + ROWS_PER_INSERT]
        flat = [value for row in chunk for value in row]
        sql = _insert("OR FAIL", table, columns, len(chunk), suffix)
        write.execute(sql, flat, can_cache=again)


def insert_alone(
    write: apsw.Connection,
    table: str,
    columns: str,
    count: int,
    values: Sequence[object],
    *,
    again: bool = True,
) -> None:
    """Write the values of rows, no more than fit into one statement, as a separate transaction."""
    write.execute(_insert("OR ROLLBACK", table, columns, count), values, can_cache=again)


# OR FAIL, because the transaction is rolled back on any error anyway: without it SQLite journals
# every large statement in a temporary file, to be able to roll back that one alone.
@cache
def _insert(conflict: str, table: str, columns: str, count: int, suffix: str = "") -> str:
    row = "(" + ",".join("?" * len(columns.split(","))) + ")"
    return f"INSERT {conflict} INTO {table} ({columns}) VALUES {','.join([row] * count)}{suffix}"


class SqliteTables:
    def __init__(self, write: apsw.Connection) -> None:
        self._write = write

    def execute(self, sql: str, values: tuple[object, ...]) -> None:
        self._write.execute(sql, values)

    def use_ids(self, table: str, last: int) -> None:
        sql = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?"
        self._write.execute(sql, (last, table))
        if not self._write.changes():
            self._write.execute(
                "INSERT INTO sqlite_sequence (seq, name) VALUES (?, ?)", (last, table)
            )

    def insert(self, table: str, columns: str, rows: Sequence[Row]) -> None:
        insert_rows(self._write, table, columns, rows)

    def upsert(
        self, table: str, keys: str, columns: str, rows: Sequence[Row], kept: str = ""
    ) -> None:
        if rows:
            insert_rows(self._write, table, columns, rows, _replace(keys, columns, kept))

    def update(self, table: str, keys: str, columns: str, rows: Sequence[Row]) -> None:
        if rows:
            self._write.executemany(_update(table, keys, columns), rows)

    def delete(self, table: str, keys: str, rows: Sequence[Row]) -> None:
        if rows:
            condition = " AND ".join(f"{key} = ?" for key in keys.split(", "))
            self._write.executemany(f"DELETE FROM {table} WHERE {condition}", rows)

    def delete_numbers(self, table: str, keys: str, numbers: Mapping[int, Sequence[int]]) -> None:
        """Members settle what they were given together, so many numbers are consecutive."""
        key_name, number_name = keys.split(", ")
        sql = f"DELETE FROM {table} WHERE {key_name} = ? AND {number_name}"
        for key, some in numbers.items():
            single: list[int] = []
            for first, last in _runs(some):
                if last - first < _RUN_WORTHWHILE:
                    single += range(first, last + 1)
                else:
                    self._write.execute(f"{sql} BETWEEN ? AND ?", (key, first, last))
            for at in range(0, len(single), _KEYS_PER_DELETE):
                part = single[at : at + _KEYS_PER_DELETE]
                self._write.execute(f"{sql} IN ({','.join('?' * len(part))})", (key, *part))


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as runs without a gap: the first and the last of each."""
    gaps = [i for i in range(1, len(numbers)) if numbers[i] - numbers[i - 1] != 1]
    firsts, lasts = [0, *gaps], [*gaps, len(numbers)]
    return [(numbers[a], numbers[b - 1]) for a, b in zip(firsts, lasts, strict=True)]


@cache
def _replace(keys: str, columns: str, kept: str) -> str:
    stays = {*keys.split(", "), *kept.split(", ")}
    changes = [f"{name} = excluded.{name}" for name in columns.split(", ") if name not in stays]
    return f" ON CONFLICT DO UPDATE SET {', '.join(changes)}"


@cache
def _update(table: str, keys: str, columns: str) -> str:
    """Rows have the keys first, so the values are numbered."""
    numbered = [f"{name} = ?{n}" for n, name in enumerate(f"{keys}, {columns}".split(", "), 1)]
    width = len(keys.split(", "))
    changes, condition = ", ".join(numbered[width:]), " AND ".join(numbered[:width])
    return f"UPDATE {table} SET {changes} WHERE {condition}"
