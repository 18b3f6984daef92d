"""The connection that writes: transactions under the fence, and what to do when one is lost.

A batch is sent to PostgreSQL in one piece, from BEGIN to COMMIT, and the answers come back in one
piece: a commit costs one round trip. An error that PostgreSQL reports means that nothing was
written. Anything else (a lost connection, a cancelled wait for replicas) leaves the outcome
unknown. Then nothing may be read or written until this node has raised its epoch on a new
connection, which settles it; see `headwater.store.postgresql.ownership`.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import Final

import psycopg
import structlog
from psycopg import errors as pg
from psycopg.pq import TransactionStatus

from headwater.core.errors import OutcomeUnknown, StorageUnavailable
from headwater.core.histograms import SECONDS, Histogram
from headwater.store.engine import CannotOpen
from headwater.store.postgresql.database import (
    Connection,
    Database,
    LostShard,
    explained,
    translated,
)
from headwater.store.postgresql.ownership import Ownership
from headwater.store.postgresql.tables import Statement, native
from headwater.store.rows import Query, Row

_SETTLE_WITHIN_S: Final = 2.0
_PAUSE_S: Final = 0.05
_FENCE: Final = b"SELECT fence(%s, %s)"
_REPLICATION_WARNING: Final = "01000"

log = structlog.get_logger()


class Writer:
    def __init__(
        self, database: Database, ownership: Ownership, renewed: Callable[[], None]
    ) -> None:
        self._database = database
        self._ownership = ownership
        self._renewed = renewed
        """Called when earlier connections can no longer be trusted."""
        self._connection: Connection | None = None
        self._warnings: list[str] = []
        self._lock = threading.Lock()
        self._in_doubt = ""
        """Why it is unknown what is committed; empty if it is known."""
        self.sync_seconds = Histogram(SECONDS)

    # ── Transactions ─────────────────────────────────────────────────────────────────────────

    def commit(self, statements: Iterable[Statement]) -> None:
        """Execute all of it as one transaction, in one round trip."""
        with self._guarded() as connection:
            began = perf_counter()
            with connection.pipeline(), connection.cursor() as cursor:
                cursor.execute(b"BEGIN")
                cursor.execute(_FENCE, (self._ownership.id, self._ownership.epoch))
                for sql, values in statements:
                    cursor.execute(sql, values)
                cursor.execute(b"COMMIT")
            self.sync_seconds.observe(perf_counter() - began)

    @contextmanager
    def transaction(self) -> Iterator[Query]:
        """A transaction that reads before it writes."""
        with self._guarded() as connection:

            def execute(sql: str, values: tuple[object, ...]) -> list[Row]:
                cursor = connection.execute(native(sql), values)
                return cursor.fetchall() if cursor.description else []

            connection.execute(b"BEGIN")
            connection.execute(_FENCE, (self._ownership.id, self._ownership.epoch))
            yield execute
            connection.execute(b"COMMIT")

    @contextmanager
    def _guarded(self) -> Iterator[Connection]:
        connection = self._ready()
        self._warnings.clear()
        try:
            yield connection
        except psycopg.Error as error:
            if connection.broken or connection.closed:
                self._doubt(explained(error))
                raise OutcomeUnknown from error
            self._failed(connection, error)
            raise translated(error) from error
        except BaseException:
            self._roll_back(connection)
            raise
        if self._warnings:
            # Committed on this machine, but perhaps on no other.
            self._doubt(self._warnings[0])
            raise OutcomeUnknown

    def _failed(self, connection: Connection, error: psycopg.Error) -> None:
        self._roll_back(connection)
        if isinstance(error, pg.ReadOnlySqlTransaction):
            # Another host now accepts writes.
            self._drop()
        if isinstance(translated(error), LostShard):
            self._ownership.is_lost = True

    def _roll_back(self, connection: Connection) -> None:
        if connection.info.transaction_status != TransactionStatus.IDLE:
            with suppress(psycopg.Error):
                connection.execute(b"ROLLBACK")

    # ── Connections ──────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        """Raise unless it is certain what is committed, and by whom."""
        if self._ownership.is_lost:
            raise LostShard
        if self._in_doubt:
            raise StorageUnavailable(f"PostgreSQL {self._in_doubt}; try again")

    def _ready(self) -> Connection:
        """A connection that seems alive, with nothing in doubt."""
        if self._in_doubt:
            self.settle()
        self.check()
        connection = self._connection
        if connection is not None and _is_dead(connection):
            # It died while idle, so nothing is in doubt.
            self._drop()
            connection = None
        if connection is None:
            try:
                connection = self._open()
            except CannotOpen as error:
                raise StorageUnavailable(f"{error}; try again") from None
            except psycopg.Error as error:
                raise translated(error) from error
        return connection

    def _open(self) -> Connection:
        connection = self._database.connect()
        connection.add_notice_handler(self._notice)
        self._connection = connection
        self._renewed()
        return connection

    def _notice(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.sqlstate == _REPLICATION_WARNING:
            self._warnings.append(notice.message_primary or "a warning")

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # ── Unknown outcomes ─────────────────────────────────────────────────────────────────────

    def _doubt(self, reason: str) -> None:
        """It is unknown whether the last commit happened."""
        self._in_doubt = reason
        self._drop()
        log.warning("commit_in_doubt", reason=reason)
        deadline = time.monotonic() + _SETTLE_WITHIN_S
        while not self.settle() and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)

    def settle(self) -> bool:
        """Find out, if PostgreSQL is reachable. Thread-safe, and may be repeated."""
        with self._lock:
            if not self._in_doubt or self._ownership.is_lost:
                return True
            try:
                with self._database.connect() as connection:
                    self._ownership.raise_epoch(connection)
            except LostShard:
                return True
            except CannotOpen as error:
                self._in_doubt = str(error)
                return False
            except psycopg.Error as error:
                self._in_doubt = explained(error)
                return False
            self._renewed()
            self._in_doubt = ""
            log.info("commit_settled", epoch=self._ownership.epoch)
            return True

    def close(self) -> None:
        self._drop()


def _is_dead(connection: Connection) -> bool:
    """Whether PostgreSQL has hung up, which it signals unasked."""
    if connection.closed or connection.broken:
        return True
    poll = select.poll()
    try:
        poll.register(connection.fileno(), select.POLLIN)
        # Its last messages come first, and then the end.
        while poll.poll(0):
            connection.pgconn.consume_input()
    except (psycopg.OperationalError, OSError):
        return True
    return connection.pgconn.status != psycopg.pq.ConnStatus.OK
