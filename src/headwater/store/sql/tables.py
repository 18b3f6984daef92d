"""Tables to write, within one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from headwater.store.rows import Row


class Tables(Protocol):
    """No rows, nothing to do. Columns and keys are lists of names, as in SQL."""

    def insert(self, table: str, columns: str, rows: Sequence[Row]) -> None: ...

    def upsert(
        self, table: str, keys: str, columns: str, rows: Sequence[Row], kept: str = ""
    ) -> None:
        """Insert rows, or replace what has the same keys, except for the columns to keep."""

    def update(self, table: str, keys: str, columns: str, rows: Sequence[Row]) -> None:
        """Set columns of the rows with these keys; rows have the keys first."""

    def delete(self, table: str, keys: str, rows: Sequence[Row]) -> None: ...

    def delete_numbers(self, table: str, keys: str, numbers: Mapping[int, Sequence[int]]) -> None:
        """Delete rows by a key and a number, of which many are neighbours."""

    def execute(self, sql: str, values: tuple[object, ...]) -> None: ...

    def use_ids(self, table: str, last: int) -> None:
        """Never give out an id up to this one again, even if it has no row."""
