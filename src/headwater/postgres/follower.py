"""Following a replication slot into a stream, across failures.

A *session* has one connection to each side. When either is lost, the session ends and the next one
begins where the stream ends: with the transactions that PostgreSQL was not told to discard, minus
those that the stream's last record shows to be stored. So a crash of any of the three, at any
moment, neither loses a change nor repeats one, and no other state is kept anywhere.

PostgreSQL is told that it may discard a transaction only after the append with its last record was
acknowledged.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

from headwater.client import AsyncHeadwater, HeadwaterError, RetryPolicy
from headwater.client.protocol.retry import is_retryable
from headwater.postgres.buffer import Buffer
from headwater.postgres.catalog import Catalog
from headwater.postgres.changes import Translator
from headwater.postgres.connection import Database
from headwater.postgres.errors import (
    NotConnected,
    PostgresError,
    SlotInUse,
    StreamUnfit,
)
from headwater.postgres.feed import Feed
from headwater.postgres.pgoutput import Commit, Keepalive, Relation
from headwater.postgres.plan import Wanted, prepare
from headwater.postgres.position import format_lsn
from headwater.postgres.sink import Overtaken, Sink

PROGRESS_INTERVAL_S: Final = 10.0
# The slot of a dead process is free again when PostgreSQL notices, 60 seconds later by default.
SLOT_PATIENCE_S: Final = 90.0
STOP_GRACE_S: Final = 10.0
_OVERTAKEN_MAX: Final = 3

Say = Callable[[str], None]


class Follower:
    """Appends the changes of a database to a stream.

        async with AsyncHeadwater("http://localhost:4437") as client:
            follower = Follower(Database.parse(dsn), client, Wanted(stream="app", slot="app"))
            await follower.run(stop)

    Args:
        database: where the changes come from.
        client: the server that has the stream.
        wanted: the stream, the slot, the publication, and what may be created.
        say: is given a line of text when there is something to tell a person.
        retry: the pauses between attempts; there is no last attempt.
        slot_patience_s: how long to wait for a slot that somebody else uses.
    """

    def __init__(
        self,
        database: Database,
        client: AsyncHeadwater,
        wanted: Wanted,
        *,
        say: Say = lambda line: None,
        retry: RetryPolicy | None = None,
        slot_patience_s: float | None = None,
    ) -> None:
        self._database = database
        self._client = client
        self._wanted = wanted
        self._say = say
        self._retry = retry or RetryPolicy()
        self._slot_patience_s = SLOT_PATIENCE_S if slot_patience_s is None else slot_patience_s
        self._failures = 0
        self._overtaken = 0
        self._has_begun = False
        self._flowing = False
        self._waiting_since: float | None = None
        self._said_at = 0.0
        self._warned: set[tuple[str, str]] = set()
        self.stored = 0
        """How many records this object has appended."""

    async def run(self, stop: asyncio.Event, *, once: bool = False) -> None:
        """Follow until `stop` is set, or (once) until everything committed before is stored.

        Transient failures are retried once something has been stored or could have been. Before
        that, they are raised, because they are more likely to be mistakes.
        """
        while not stop.is_set():
            try:
                await self._session_or_stop(stop, once=once)
                return
            except (PostgresError, HeadwaterError, Overtaken) as error:
                reason = self._worth_another(error)
                if reason is None:
                    raise
                self._failures += 1
                delay_s = self._retry.delay_s(failures=self._failures, random=random.random())
                self._say(f"{reason}; trying again in {delay_s:.1f} s")
                await _wait(stop, delay_s)

    def _worth_another(self, error: Exception) -> str | None:
        """The message before the next attempt; None if a retry is pointless."""
        match error:
            case Overtaken():
                self._overtaken += 1
                if self._overtaken > _OVERTAKEN_MAX:
                    raise StreamUnfit(
                        f"{error}; a stream takes the changes of one slot, and nothing else may "
                        "write to it with Stream-Seq"
                    ) from error
                return str(error)
            case SlotInUse():
                now = time.monotonic()
                self._waiting_since = self._waiting_since or now
                waited_s = now - self._waiting_since
                return str(error) if waited_s < self._slot_patience_s else None
            case NotConnected():
                return str(error) if self._has_begun else None
            case HeadwaterError() if self._has_begun and is_retryable(error, repeatable=True):
                return f"the stream cannot be written now: {error}"
            case _:
                return None

    # --- One session -----------------------------------------------------------------------------

    async def _session_or_stop(self, stop: asyncio.Event, *, once: bool) -> None:
        """Run a session; once changes flow, it stops in good order by itself."""
        self._flowing = False
        session = asyncio.create_task(self._session(stop, once=once))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({session, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not session.done() and not self._flowing:
                session.cancel()
            await asyncio.wait({session})
            if not session.cancelled():
                session.result()
        finally:
            session.cancel()
            stopping.cancel()
            await asyncio.gather(session, stopping, return_exceptions=True)

    async def _session(self, stop: asyncio.Event, *, once: bool) -> None:
        sink = Sink(self._client, self._wanted.stream, slot=self._wanted.slot)
        await sink.check(create=self._wanted.create)
        async with self._connections() as (catalog, feed):
            try:
                await prepare(self._wanted, catalog, feed, sink, self._say)
            finally:
                # A snapshot that was begun is worth another attempt.
                self._has_begun = self._has_begun or sink.has_claimed
            until = await catalog.milestone() if once else None
            await feed.start(self._wanted.slot, self._wanted.publication)
            self._begun(sink)
            buffer = Buffer()
            work = [
                asyncio.create_task(self._read(catalog, feed, sink, buffer)),
                asyncio.create_task(self._write(feed, sink, buffer, until)),
                asyncio.create_task(feed.keep_alive()),
                asyncio.create_task(stop.wait()),
            ]
            try:
                await _first_of(work)
                # Asked to stop: an append in flight may still be stored.
                buffer.close()
                await asyncio.wait([work[1]], timeout=STOP_GRACE_S)
            finally:
                for task in work:
                    task.cancel()
                await asyncio.gather(*work, return_exceptions=True)
            await feed.finish()

    @asynccontextmanager
    async def _connections(self) -> AsyncIterator[tuple[Catalog, Feed]]:
        catalog = await Catalog.open(self._database)
        try:
            await catalog.check()
            feed = await Feed.open(self._database)
            try:
                yield catalog, feed
            finally:
                await feed.close()
        finally:
            await catalog.close()

    def _begun(self, sink: Sink) -> None:
        where = "from where the slot stands"
        if sink.last is not None:
            where = f"after {format_lsn(sink.last.position.lsn)}"
        self._say(
            f"following {self._database} with slot {self._wanted.slot} into {sink.path}, {where}"
        )
        self._has_begun = self._flowing = True
        self._waiting_since = None

    async def _read(self, catalog: Catalog, feed: Feed, sink: Sink, buffer: Buffer) -> None:
        """From PostgreSQL into the buffer."""
        translator = Translator(self._say, self._warned)
        stored = sink.last.position if sink.last else None
        while True:
            message = await feed.next()
            if isinstance(message, Keepalive):
                if not translator.in_transaction:
                    buffer.mark(message.wal_end)
                if message.wants_reply:
                    feed.report()
                continue
            if isinstance(message, Relation):
                translator.describe(message, await catalog.describe(message))
            unit = translator.translate(message)
            if unit is not None and (stored is None or unit.position > stored):
                await buffer.put(unit)
            elif isinstance(message, Commit):
                buffer.mark(message.end_lsn)

    async def _write(self, feed: Feed, sink: Sink, buffer: Buffer, until: int | None) -> None:
        """From the buffer into the stream; ends when the buffer does, or at an LSN."""
        while batch := await buffer.take(units_max=None if sink.has_claimed else 1):
            if batch.records:
                await sink.append(batch)
                self._progressed(sink, len(batch.records))
            if batch.confirms is not None:
                feed.confirm(batch.confirms)
                if until is not None and batch.confirms >= until:
                    return

    def _progressed(self, sink: Sink, count: int) -> None:
        self.stored += count
        self._failures = self._overtaken = 0
        now = time.monotonic()
        if now - self._said_at >= PROGRESS_INTERVAL_S and sink.last is not None:
            self._said_at = now
            self._say(f"{counted(self.stored)}, up to {format_lsn(sink.last.position.lsn)}")


def counted(records: int) -> str:
    """The number of records, for people.

    >>> counted(1), counted(2_000)
    ('1 record stored', '2,000 records stored')
    """
    return f"{records:,} record{'' if records == 1 else 's'} stored"


async def _first_of(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Wait until one ends, and raise its error."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def _wait(stop: asyncio.Event, delay_s: float) -> None:
    try:
        async with asyncio.timeout(delay_s):
            await stop.wait()
    except TimeoutError:
        return
