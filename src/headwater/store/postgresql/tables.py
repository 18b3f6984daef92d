"""The writes of a transaction as statements: one per table and kind, however many rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from headwater.store.postgresql.schema import COLUMN_TYPES
from headwater.store.postgresql.values import Array, bigints, byteas, texts
from headwater.store.rows import Query, Row

Statement = tuple[bytes, tuple[object, ...]]
_ARRAYS: Final[dict[str, Callable[..., Array]]] = {
    "bigint": bigints,
    "text": texts,
    "bytea": byteas,
}
_SHARDED: Final = ("streams", "subscriptions")


@lru_cache(1_000)
def native(sql: str) -> bytes:
    """A statement with PostgreSQL's placeholders."""
    return sql.replace("?", "%s").encode()


def next_id(query: Query, table: str) -> int:
    """The smallest id that was never assigned, without assigning it."""
    return int(query(f"SELECT last_value + is_called::int FROM {table}_ids", ())[0][0])


def new_id(query: Query, table: str) -> int:
    """An id that nobody else gets, larger than those before it."""
    return int(query(f"SELECT nextval('{table}_ids')", ())[0][0])


class StatementTables:
    def __init__(self, home: Callable[[str], int], of_subscription: Callable[[str], int]) -> None:
        self._home = home
        self._of_subscription = of_subscription
        self.statements: list[Statement] = []

    def execute(self, sql: str, values: tuple[object, ...]) -> None:
        self.statements.append((native(sql), values))

    def use_ids(self, table: str, last: int) -> None:
        self.execute(
            f"SELECT setval('{table}_ids', ?) FROM {table}_ids"
            " WHERE last_value + is_called::int <= ?",
            (last, last),
        )

    def insert(self, table: str, columns: str, rows: Sequence[Row], suffix: str = "") -> None:
        if not rows:
            return
        if table in _SHARDED:
            places = self._places(table, columns, rows)
            rows = [(*row, place) for row, place in zip(rows, places, strict=True)]
            columns = f"{columns}, shard"
        source, values = unnest(columns.split(", "), rows)
        self.execute(f"INSERT INTO {table} ({columns}) SELECT * FROM {source}{suffix}", values)

    def _places(self, table: str, columns: str, rows: Sequence[Row]) -> list[int]:
        """The shard of each row."""
        if table == "subscriptions":
            name = columns.split(", ").index("name")
            return [self._of_subscription(row[name]) for row in rows]
        path = columns.split(", ").index("path")
        return [self._home(row[path]) for row in rows]

    def upsert(
        self, table: str, keys: str, columns: str, rows: Sequence[Row], kept: str = ""
    ) -> None:
        stays = {*keys.split(", "), *kept.split(", ")}
        changes = [f"{name} = excluded.{name}" for name in columns.split(", ") if name not in stays]
        suffix = f" ON CONFLICT ({keys}) DO UPDATE SET {', '.join(changes)}"
        self.insert(table, columns, rows, suffix)

    def update(
        self, table: str, keys: str, columns: str, rows: Sequence[Row], also: str = ""
    ) -> None:
        """`also` is another assignment; `v` has the new values, `t` the existing row."""
        if not rows:
            return
        source, values = unnest(f"{keys}, {columns}".split(", "), rows)
        changes = ", ".join(f"{name} = v.{name}" for name in columns.split(", "))
        sql = f"UPDATE {table} AS t SET {changes}{also} FROM {source} WHERE {_match(keys)}"
        self.execute(sql, values)

    def delete(self, table: str, keys: str, rows: Sequence[Row]) -> None:
        if rows:
            source, values = unnest(keys.split(", "), rows)
            self.execute(f"DELETE FROM {table} AS t USING {source} WHERE {_match(keys)}", values)

    def delete_numbers(self, table: str, keys: str, numbers: Mapping[int, Sequence[int]]) -> None:
        self.delete(
            table, keys, [(key, number) for key, some in numbers.items() for number in some]
        )


def unnest(columns: Sequence[str], rows: Sequence[Row]) -> tuple[str, tuple[object, ...]]:
    """`unnest` over the columns of some rows, at least one."""
    values = tuple(
        _ARRAYS[COLUMN_TYPES[name]](column)
        for name, column in zip(columns, zip(*rows, strict=True), strict=True)
    )
    return f"unnest({','.join('?' * len(columns))}) AS v ({', '.join(columns)})", values


def _match(keys: str) -> str:
    return " AND ".join(f"t.{key} = v.{key}" for key in keys.split(", "))
