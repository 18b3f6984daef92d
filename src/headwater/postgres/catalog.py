"""Queries about PostgreSQL's settings, tables, publications and slots."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, LiteralString, NamedTuple

from psycopg import AsyncConnection, sql

from headwater.postgres.changes import Table
from headwater.postgres.connection import Database
from headwater.postgres.errors import NotPrepared
from headwater.postgres.pgoutput import Relation
from headwater.postgres.position import parse_lsn
from headwater.postgres.values import SCALARS, TypeInfo, converter

VERSION_MIN: Final = 15
SLOT_NAME: Final = re.compile(r"[a-z0-9_]{1,63}")
# An arbitrary number that nothing else uses.
_LOCK_CLASS: Final = 0x48574C53

_TYPES: Final = """
SELECT t.oid, t.typbasetype,
       CASE WHEN t.typcategory = 'A' AND t.typlen = -1 THEN t.typelem ELSE 0 END,
       coalesce(e.typdelim::text, ',')
FROM pg_type t LEFT JOIN pg_type e ON e.oid = t.typelem
WHERE t.oid = ANY(%s)
"""

# The columns of the primary key, and of the index that is the replica identity.
_IDENTITY: Final = """
SELECT c.relreplident::text,
       (SELECT array_agg(a.attname::text) FROM pg_index i
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey)
        WHERE i.indrelid = c.oid AND i.indisprimary),
       (SELECT array_agg(a.attname::text) FROM pg_index i
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey)
        WHERE i.indrelid = c.oid AND i.indisreplident)
FROM pg_class c WHERE c.oid = %s
"""

_PUBLISHED: Final = """
SELECT c.oid, p.schemaname::text, p.tablename::text, c.relkind::text, p.attnames::text[],
       p.rowfilter, c.relreplident::text,
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)
FROM pg_publication_tables p
JOIN pg_namespace n ON n.nspname = p.schemaname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
WHERE p.pubname = %s
ORDER BY p.schemaname, p.tablename
"""

_COLUMNS: Final = """
SELECT attname::text, atttypid::int8 FROM pg_attribute
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attname::text = ANY(%s)
ORDER BY attnum
"""

_SLOT: Final = """
SELECT plugin::text, database::text, active, active_pid, wal_status, confirmed_flush_lsn::text,
       pg_wal_lsn_diff(pg_current_wal_insert_lsn(), confirmed_flush_lsn)::int8
FROM pg_replication_slots WHERE slot_name = %s
"""


@dataclass(frozen=True, slots=True)
class Slot:
    """A replication slot."""

    plugin: str | None
    database: str | None
    active: bool
    pid: int | None
    wal_status: str | None
    confirmed_lsn: int
    behind_bytes: int

    @property
    def is_lost(self) -> bool:
        return self.wal_status == "lost"


class PublishedTable(NamedTuple):
    """A table whose changes are published."""

    oid: int
    schema: str
    table: str
    kind: str
    columns: list[str]
    row_filter: str | None
    identity: str
    has_key: bool

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"

    def selection(self, columns: Sequence[str]) -> sql.Composed:
        """The query for all its published rows."""
        # Rows of partitions belong to the table; those of inheriting tables are published as their
        # own.
        source = sql.SQL("SELECT {} FROM {} {} WHERE {}").format(
            sql.SQL(", ").join(map(sql.Identifier, columns)),
            sql.SQL("" if self.kind == "p" else "ONLY"),
            sql.Identifier(self.schema, self.table),
            sql.SQL(self.row_filter) if self.row_filter else sql.SQL("true"),
        )
        return sql.SQL("COPY ({}) TO STDOUT").format(source)


class Catalog:
    """Queries to one database, over one connection."""

    def __init__(self, database: Database, connection: AsyncConnection[tuple[Any, ...]]) -> None:
        self.database = database
        self.connection = connection
        self._types: dict[int, TypeInfo] = {}

    @classmethod
    async def open(cls, database: Database) -> Catalog:
        return cls(database, await database.connect())

    async def close(self) -> None:
        await self.connection.close()

    async def query(self, text: LiteralString | sql.Composed, *values: Any) -> list[Any]:
        with self.database.explained():
            cursor = await self.connection.execute(text, values or None)
            return await cursor.fetchall() if cursor.description else []

    # --- The server ------------------------------------------------------------------------------

    async def check(self) -> None:
        """Refuse a server that cannot do logical decoding, and say how to change that."""
        ((version, wal_level, encoding),) = await self.query(
            "SELECT current_setting('server_version_num')::int / 10000,"
            " current_setting('wal_level'), current_setting('server_encoding')"
        )
        if version < VERSION_MIN:
            raise NotPrepared(
                f"this is PostgreSQL {version}; version {VERSION_MIN} or later is needed"
            )
        if wal_level != "logical":
            raise NotPrepared(
                f"wal_level is {wal_level}, but changes can be decoded only with logical; run "
                "`ALTER SYSTEM SET wal_level = 'logical'`, see that max_replication_slots and "
                "max_wal_senders are at least 1, and restart PostgreSQL"
            )
        if encoding == "SQL_ASCII":
            raise NotPrepared(
                "the database has the encoding SQL_ASCII, so nobody knows what its texts say; "
                "use one with UTF8"
            )

    async def current_lsn(self) -> int:
        """The end of the log, as far as PostgreSQL has flushed it."""
        ((lsn,),) = await self.query("SELECT pg_current_wal_flush_lsn()::text")
        return parse_lsn(lsn)

    async def milestone(self) -> int:
        """Write a mark to the log; everything committed before this call precedes it."""
        await self.query("SET synchronous_commit = local")
        ((lsn,),) = await self.query("SELECT pg_logical_emit_message(true, 'headwater', '')::text")
        return parse_lsn(lsn)

    async def try_lock(self, slot: str) -> bool:
        """Lock a slot for as long as this connection lasts."""
        ((locked,),) = await self.query(
            "SELECT pg_try_advisory_lock(%s, hashtext(%s))", _LOCK_CLASS, slot
        )
        return bool(locked)

    # --- Tables ----------------------------------------------------------------------------------

    async def describe(self, relation: Relation) -> Table:
        """What is needed to make records of a table's rows.

        The log does not include the primary key if the replica identity is the full row, so it is
        looked up in the current table. If that is gone, the key is unknown.
        """
        names = tuple(column.name for column in relation.columns)
        if relation.identity in "di":
            key = tuple(i for i, column in enumerate(relation.columns) if column.in_key)
        else:
            key = ()
        if not key:
            found = await self.query(_IDENTITY, relation.oid)
            primary = found[0][1] if found else None
            # With an unpublished part of the key, different rows would look like one.
            if primary and set(primary) <= set(names):
                key = tuple(i for i, name in enumerate(names) if name in primary)
        return await self._table(
            f"{relation.schema}.{relation.name}",
            names,
            [column.type_oid for column in relation.columns],
            key,
            full=relation.identity == "f",
        )

    async def describe_published(self, published: PublishedTable) -> Table:
        """The same for a table as it is now."""
        columns = await self.query(_COLUMNS, published.oid, published.columns)
        names = tuple(name for name, _ in columns)
        ((identity, primary, index),) = await self.query(_IDENTITY, published.oid)
        wanted = set((index if identity == "i" else primary) or ())
        if not wanted <= set(names):
            wanted = set()
        key = tuple(i for i, name in enumerate(names) if name in wanted)
        types = [oid for _, oid in columns]
        return await self._table(published.name, names, types, key, full=identity == "f")

    async def published(self, publication: str) -> list[PublishedTable]:
        """The tables of a publication as they are now, each with its columns in order."""
        return [PublishedTable(*row) for row in await self.query(_PUBLISHED, publication)]

    async def _table(
        self,
        name: str,
        columns: tuple[str, ...],
        types: list[int],
        key: tuple[int, ...],
        *,
        full: bool,
    ) -> Table:
        await self._learn_types(types)
        converters = tuple(converter(oid, self._types) for oid in types)
        return Table(name, columns, converters, key, full)

    async def _learn_types(self, oids: Iterable[int]) -> None:
        """Look up unknown types, and the types they consist of."""
        unknown = {oid for oid in oids if oid not in SCALARS and oid not in self._types}
        while unknown:
            rows = await self.query(_TYPES, list(unknown))
            found = {oid: TypeInfo(base, element, delim) for oid, base, element, delim in rows}
            self._types.update(dict.fromkeys(unknown, TypeInfo()) | found)
            parts = {oid for info in found.values() for oid in (info.base, info.element) if oid}
            unknown = {oid for oid in parts if oid not in SCALARS and oid not in self._types}

    # --- Publications and slots ------------------------------------------------------------------

    async def has_publication(self, name: str) -> bool:
        return bool(await self.query("SELECT 1 FROM pg_publication WHERE pubname = %s", name))

    async def create_publication(self, name: str, tables: Sequence[str]) -> None:
        """Publish tables; without any, all present and future ones."""
        if tables:
            targets = sql.SQL("TABLE {}").format(sql.SQL(", ").join(map(identifier, tables)))
        else:
            targets = sql.Composed([sql.SQL("ALL TABLES")])
        statement = sql.SQL("CREATE PUBLICATION {} FOR {} WITH (publish_via_partition_root = true)")
        await self.query(statement.format(sql.Identifier(name), targets))

    async def drop_publication(self, name: str) -> None:
        await self.query(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name)))

    async def set_full_identity(self, published: PublishedTable) -> None:
        statement = sql.SQL("ALTER TABLE {} REPLICA IDENTITY FULL")
        await self.query(statement.format(sql.Identifier(published.schema, published.table)))

    async def slot(self, name: str) -> Slot | None:
        rows = await self.query(_SLOT, name)
        if not rows:
            return None
        plugin, database, active, pid, status, confirmed, behind = rows[0]
        lsn = parse_lsn(confirmed) if confirmed else 0
        return Slot(plugin, database, active, pid, status, lsn, behind or 0)

    async def create_slot(self, name: str) -> int:
        """Create a slot; from here on PostgreSQL retains its log for it."""
        ((lsn,),) = await self.query(
            "SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput')", name
        )
        return parse_lsn(lsn)

    async def drop_slot(self, name: str) -> None:
        await self.query("SELECT pg_drop_replication_slot(%s)", name)


def identifier(name: str) -> sql.Identifier:
    """A table by its name, as in `todos`, `sales.orders` or `"Odd Name"`."""
    parts = re.findall(r'"((?:[^"]|"")+)"|([^".]+)', name)
    rebuilt = ".".join(f'"{quoted}"' if quoted else bare for quoted, bare in parts)
    if rebuilt != name or len(parts) not in (1, 2):
        raise NotPrepared(f"{name!r} is no name of a table; write TABLE or SCHEMA.TABLE")
    words = [quoted.replace('""', '"') if quoted else bare.lower() for quoted, bare in parts]
    return sql.Identifier(*(words if len(words) == 2 else ["public", *words]))


def check_slot_name(name: str) -> str:
    if SLOT_NAME.fullmatch(name) is None:
        raise NotPrepared(
            f"{name!r} cannot be the name of a slot; use a-z, 0-9 and _, at most 63 of them"
        )
    return name
