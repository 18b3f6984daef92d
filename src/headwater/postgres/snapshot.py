"""The initial snapshot: all rows as of the LSN at which the slot begins.

With a new slot, PostgreSQL exports a snapshot of the moment from which the slot delivers changes.
So rows read in it and changes read from the slot fit together without a gap or an overlap.

`snapshot-start` is appended before the slot is created. So after a crash, the stream alone shows
that a snapshot was begun and not finished, and that the slot of that name belongs to it. Such a
snapshot starts over, with a new slot; readers drop the unfinished one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from psycopg import AsyncConnection, sql

from headwater.core.state_protocol import SNAPSHOT_END, SNAPSHOT_START, Control
from headwater.postgres.buffer import BATCH_BYTES_MAX, BATCH_RECORDS_MAX, Batch
from headwater.postgres.catalog import Catalog
from headwater.postgres.changes import Table, control, record_of, rfc3339, snapshot_headers
from headwater.postgres.connection import Database
from headwater.postgres.feed import Feed
from headwater.postgres.position import SNAPSHOT, Position
from headwater.postgres.sink import Sink


class Snapshot:
    """Takes one snapshot. What was appended before an interruption does not count."""

    def __init__(
        self, database: Database, catalog: Catalog, sink: Sink, *, slot: str, publication: str
    ) -> None:
        self._database = database
        self._catalog = catalog
        self._sink = sink
        self._slot = slot
        self._publication = publication
        self._timestamp = rfc3339(time.time_ns() // 1000)
        self._batch = Batch()
        self._size = 0
        self._seq = 0
        self._lsn = 0
        self.rows = 0

    async def take(self, feed: Feed, say: Callable[[str], None]) -> None:
        """Create the slot, and append all rows as of its beginning."""
        self._lsn = await self._catalog.current_lsn()
        last = self._sink.last
        if last is not None and last.position.lsn == self._lsn:
            # Nothing has happened in the database since the unfinished attempt.
            self._seq = last.position.seq + 1
        await self._control(SNAPSHOT_START)
        if await self._catalog.slot(self._slot) is not None:
            await self._catalog.drop_slot(self._slot)
        begins_at, name = await feed.create_slot(self._slot)
        self._lsn = max(self._lsn, begins_at)
        connection = await self._database.connect()
        try:
            catalog = await self._in_snapshot(connection, name)
            for published in await catalog.published(self._publication):
                table = await catalog.describe_published(published)
                before = self.rows
                selection = published.selection(table.columns)
                await self._append_rows(table, _rows(connection, selection))
                say(f"snapshot: {self.rows - before:,} rows of {table.name}")
        finally:
            await connection.close()
        await self._control(SNAPSHOT_END)

    async def _in_snapshot(
        self, connection: AsyncConnection[tuple[Any, ...]], name: str
    ) -> Catalog:
        """See the database, including table definitions, as of that moment."""
        catalog = Catalog(self._database, connection)
        await catalog.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        await catalog.query(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(name)))
        return catalog

    async def _append_rows(self, table: Table, rows: AsyncIterator[tuple[str | None, ...]]) -> None:
        with self._database.explained():
            async for row in rows:
                position = self._next_position()
                values = table.values(row)
                headers = self._headers(position)
                record = record_of(table, "insert", table.key_of(values), headers, value=values)
                await self._add(position, record)
                self.rows += 1
        await self._flush()

    async def _control(self, kind: Control) -> None:
        position = self._next_position()
        await self._add(position, control(kind, self._headers(position)))
        await self._flush()

    def _headers(self, position: Position) -> dict[str, Any]:
        return snapshot_headers(position, self._timestamp, self._slot)

    def _next_position(self) -> Position:
        position = Position(self._lsn, SNAPSHOT, self._seq)
        self._seq += 1
        return position

    async def _add(self, position: Position, record: bytes) -> None:
        full = self._size + len(record) > BATCH_BYTES_MAX
        if full or len(self._batch.records) == BATCH_RECORDS_MAX:
            await self._flush()
        self._batch.records.append(record)
        self._batch.last = position
        self._size += len(record)

    async def _flush(self) -> None:
        batch, self._batch, self._size = self._batch, Batch(), 0
        if batch.records:
            await self._sink.append(batch)


async def _rows(
    connection: AsyncConnection[tuple[Any, ...]], selection: sql.Composed
) -> AsyncIterator[tuple[str | None, ...]]:
    """Rows as texts, in the same form as in the log."""
    count = 0
    async with connection.cursor() as cursor, cursor.copy(selection) as copy:
        async for row in copy.rows():
            yield row
            count += 1
            if count % 100 == 0:
                await asyncio.sleep(0)
