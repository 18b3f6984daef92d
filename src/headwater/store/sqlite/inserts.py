"""Many rows in few statements.

The interpreter lock is handed back and forth once per statement, so this matters more than what
SQLite itself does per row.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import apsw

from headwater.store.rows import Row

_ROWS_PER_INSERT: Final = 128


def insert_rows(
    write: apsw.Connection, table: str, columns: str, values: list[Row], suffix: str = ""
) -> None:
    for first in range(0, len(values), _ROWS_PER_INSERT):
        chunk = values[first : first + _ROWS_PER_INSERT]
        flat = [value for row in chunk for value in row]
        write.execute(_insert(table, columns, len(chunk), suffix), flat)


# OR FAIL, because the transaction is rolled back on any error anyway: without it SQLite keeps a
# journal of every large statement, in a temporary file, to be able to take back that one alone.
@cache
def _insert(table: str, columns: str, count: int, suffix: str) -> str:
    row = "(" + ",".join("?" * len(columns.split(","))) + ")"
    return f"INSERT OR FAIL INTO {table} ({columns}) VALUES {','.join([row] * count)}{suffix}"
