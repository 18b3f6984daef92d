"""Tables to write, within one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from headwater.store.rows import Row


class Tables(Protocol):
    """Without rows, nothing is done. Columns and keys are lists of names, as in SQL."""

    def insert(self, table: str, columns: str, rows: Sequence[Row]) -> None: ...

    def upsert(
        self, table: str, keys: str, columns: str, rows: Sequence[Row], kept: str = ""
    ) -> None:
        """Insert rows, or replace those with the same keys, except for the columns to keep."""

    def update(self, table: str, keys: str, columns: str, rows: Sequence[Row]) -> None:
        """Set columns of the rows with these keys; rows have the keys first."""

    def delete(self, table: str, keys: str, rows: Sequence[Row]) -> None: ...

    def delete_numbers(self, table: str, keys: str, numbers: Mapping[int, Sequence[int]]) -> None:
        """Delete rows by a key and a number; many numbers are consecutive."""

    def execute(self, sql: str, values: tuple[object, ...]) -> None: ...

    def use_ids(self, table: str, last: int) -> None:
        """Never assign an id up to this one again, even if it has no row."""
