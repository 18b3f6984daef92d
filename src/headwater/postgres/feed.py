"""The changes of a replication slot as they are committed.

The driver can start streaming replication but not read it, so this module reads it through libpq,
whose functions the driver exposes (`psycopg.pq`). Polling over SQL
(`pg_logical_slot_peek_binary_changes`) would avoid that, but every poll decodes the log again from
the slot's position, a large transaction arrives as one result, and changes are as late as the
polls. Here they are pushed, one at a time, with backpressure.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection, sql

from headwater.postgres.connection import Database
from headwater.postgres.errors import NotConnected, PostgresError
from headwater.postgres.pgoutput import Keepalive, Message, read_frame, read_message, status_update
from headwater.postgres.position import parse_lsn

# How often to send a sign of life; PostgreSQL disconnects after 60 seconds without.
STATUS_INTERVAL_S: Final = 5.0
# How long to wait for PostgreSQL to end the stream; during a large transaction it does not read our
# end.
FAREWELL_S: Final = 2.0
# After this many messages without a pause, yield to other tasks.
_BREATH: Final = 100


class Feed:
    """A replication connection, started or not."""

    def __init__(self, database: Database, connection: AsyncConnection[tuple[Any, ...]]) -> None:
        self._database = database
        self._connection = connection
        self._confirmed = 0
        self._count = 0

    @classmethod
    async def open(cls, database: Database) -> Feed:
        return cls(database, await database.connect(replication=True))

    async def create_slot(self, name: str) -> tuple[int, str]:
        """Create a slot; returns where it begins, and the name of a snapshot of that moment.

        The snapshot can be used until this object is used again or closed.
        """
        statement = sql.SQL("CREATE_REPLICATION_SLOT {} LOGICAL pgoutput (SNAPSHOT 'export')")
        with self._database.explained():
            cursor = await self._connection.execute(statement.format(sql.Identifier(name)))
            row = await cursor.fetchone()
        assert row is not None
        return parse_lsn(row[1]), row[2]

    async def start(self, slot: str, publication: str) -> None:
        """Start at the slot's position: with the first unconfirmed transaction."""
        statement = sql.SQL(
            "START_REPLICATION SLOT {} LOGICAL 0/0 (proto_version '1', publication_names {})"
        ).format(
            sql.Identifier(slot),
            # The value is itself a list of identifiers.
            sql.Literal('"' + publication.replace('"', '""') + '"'),
        )
        with self._database.explained():
            await self._connection.execute(statement)

    async def next(self) -> Message | Keepalive:
        """The next message from PostgreSQL."""
        frame = read_frame(await self._next_data())
        self._count += 1
        if self._count % _BREATH == 0:
            await asyncio.sleep(0)
        return frame if isinstance(frame, Keepalive) else read_message(frame.payload)

    def confirm(self, lsn: int) -> None:
        """Everything before this LSN is stored, and PostgreSQL need not keep it for us."""
        if lsn > self._confirmed:
            self._confirmed = lsn
            self.report()

    def report(self) -> None:
        """Report our progress to PostgreSQL; also a sign of life."""
        with self._database.explained():
            pgconn = self._connection.pgconn
            pgconn.put_copy_data(status_update(self._confirmed, now_us=time.time_ns() // 1000))
            # What is not sent now is sent with the next report, or when something arrives.
            pgconn.flush()

    async def keep_alive(self) -> None:
        """Report periodically, until cancelled."""
        while True:
            await asyncio.sleep(STATUS_INTERVAL_S)
            self.report()

    async def finish(self) -> None:
        """End the stream, so that PostgreSQL has read the last report and the slot is free."""
        with suppress(PostgresError, TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                with self._database.explained():
                    self._connection.pgconn.put_copy_end()
                    self._connection.pgconn.flush()
                while True:
                    await self._next_data()

    async def close(self) -> None:
        await self._connection.close()

    async def _next_data(self) -> bytes:
        pgconn = self._connection.pgconn
        with self._database.explained():
            while True:
                size, data = pgconn.get_copy_data(1)
                if size > 0:
                    return bytes(data)
                if size < 0:
                    break
                await _readable(pgconn.socket)
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is not None and result.status == psycopg.pq.ExecStatus.FATAL_ERROR:
                raise psycopg.errors.error_from_result(result)
        raise NotConnected(f"{self._database} has ended the replication")


async def _readable(socket: int) -> None:
    """Wait until something can be read.

    The loop watches the socket only during this call: while the buffer is full and we do not read,
    it would report the same data again and again.
    """
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(socket, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(socket)
