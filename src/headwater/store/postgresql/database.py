"""The database of an engine: how to reach it, whether it is ours, and its layout.

An address may name several hosts; the one that accepts writes is used. Every connection checks once
that the database is still the one the engine was opened with, so that a name that suddenly leads
elsewhere causes an error and not wrong data.

A commit must never be given up while it waits for replicas: PostgreSQL would then report success
for something that only one machine has. So no timeout applies to it. TCP detects a dead machine, on
both sides, within about ten seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any, Final

import psycopg
import structlog
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict

from headwater.core.errors import DataCorrupt, StorageFull, StorageUnavailable
from headwater.store.engine import CannotOpen
from headwater.store.postgresql.schema import LAYOUT, LOST_SHARD, MIGRATIONS, PURPOSE, SCHEMA
from headwater.store.postgresql.values import adapt
from headwater.store.rows import Row

VERSION_MIN: Final = 15
_MIGRATION_LOCK: Final = 0x48574C47  # "HWLG"
_DEFAULTS: Final = {
    "application_name": "headwater",
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "target_session_attrs": "read-write",
}
# Settings that this version of PostgreSQL does not know are left out.
_SESSION: Final = {
    "search_path": SCHEMA,
    "client_encoding": "UTF8",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "transaction_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "default_transaction_isolation": "read committed",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "client_connection_check_interval": "2000",
}

log = structlog.get_logger()

Connection = psycopg.Connection[Row]


class LostShard(StorageUnavailable):
    """Another node has taken a shard that this one owned."""

    def __init__(self) -> None:
        super().__init__("another node has taken over this database; ask that one")


class NoStreams(CannotOpen):
    """The database has no Headwater tables."""


class Database:
    """Where the database is, and which one it is."""

    def __init__(self, url: str) -> None:
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error as error:
            raise CannotOpen(f"the address of the engine makes no sense: {_line(error)}") from None
        if not given.get("dbname"):
            raise CannotOpen(
                "the address of the engine names no database, as postgresql://HOST/DATABASE does"
            )
        self._parameters: dict[str, Any] = _DEFAULTS | given
        self.name = f"{_hosts(given)}/{given['dbname']}"
        """Without user and password, for display."""
        self.cluster: str | None = None

    # ── Connecting ───────────────────────────────────────────────────────────────────────────

    def connect(self) -> Connection:
        """A connection to the database that was opened. Raises psycopg's errors, and CannotOpen."""
        connection = self._connect()
        try:
            found = connection.execute(f"SELECT id::text FROM {SCHEMA}.cluster").fetchall()
            if found != [(self.cluster,)]:
                raise CannotOpen(f"{self.name} leads to another database than before")
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self) -> Connection:
        connection = psycopg.connect(
            **self._parameters, autocommit=True, prepare_threshold=0, cursor_factory=_BinaryCursor
        )
        try:
            self._check_version(connection)
            adapt(connection.adapters)
            settings = " UNION ALL ".join(
                f"SELECT '{name}' AS name, '{value}' AS value" for name, value in _SESSION.items()
            )
            connection.execute(
                "SELECT set_config(name, value, false) FROM pg_settings"
                f" JOIN ({settings}) AS wanted USING (name)"
            )
            # Less would acknowledge data that is on no disk, or on only one.
            connection.execute(
                "SELECT set_config('synchronous_commit', 'on', false)"
                " WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')"
            )
        except BaseException:
            connection.close()
            raise
        return connection

    # ── Opening ──────────────────────────────────────────────────────────────────────────────

    def open(self, *, warn: bool = True) -> None:
        """Check that the database can be used, and bring its layout up to date."""
        try:
            with self._connect() as connection:
                self._check_encoding(connection)
                with connection.transaction():
                    self._migrate(connection)
                self.cluster = _one(connection, "SELECT id::text FROM cluster")
                if warn:
                    _warn_of_replication(connection)
        except psycopg.Error as error:
            raise CannotOpen(f"PostgreSQL at {self.name}: {explained(error)}") from None

    def open_existing(self) -> None:
        """Check that the database holds streams in the current layout. Changes nothing."""
        try:
            with self._connect() as connection:
                layout = self._layout(connection)
                if layout == 0:
                    raise NoStreams(f"{self.name} holds no streams of headwater")
                if layout != LAYOUT:
                    raise CannotOpen(
                        f"{self.name} has layout {layout} and this headwater knows {LAYOUT}; "
                        + ("upgrade this one" if layout > LAYOUT else "start a server on it first")
                    )
                self.cluster = _one(connection, "SELECT id::text FROM cluster")
        except psycopg.Error as error:
            raise CannotOpen(f"PostgreSQL at {self.name}: {explained(error)}") from None

    def divide(self, shards: int) -> int:
        """Set the number of shards, while no node takes part; returns how many there were."""
        self.open(warn=False)
        try:
            with self._connect() as connection, connection.transaction():
                connection.execute("LOCK TABLE nodes IN EXCLUSIVE MODE")
                nodes = connection.execute("SELECT name FROM nodes ORDER BY id").fetchall()
                if nodes:
                    raise CannotOpen(
                        f"{self.name} is in use by a node, {nodes[0][0]}; stop all of them first"
                    )
                before = int(_one(connection, "SELECT shards FROM cluster"))
                if before != shards and _one(connection, "SELECT count(*) FROM bindings"):
                    raise CannotOpen(
                        f"prefixes of {self.name} are bound to labels; unbind them first"
                    )
                if before != shards:
                    connection.execute("SELECT reshard(%s::integer)", (shards,))
                return before
        except psycopg.Error as error:
            raise CannotOpen(f"PostgreSQL at {self.name}: {explained(error)}") from None

    def _check_version(self, connection: Connection) -> None:
        version = connection.info.server_version // 10_000
        if version < VERSION_MIN:
            raise CannotOpen(
                f"PostgreSQL at {self.name} is version {version}; headwater needs {VERSION_MIN} "
                "or later"
            )

    def _check_encoding(self, connection: Connection) -> None:
        encoding = _one(connection, "SELECT current_setting('server_encoding')")
        if encoding != "UTF8":
            raise CannotOpen(
                f"the database {self.name} is encoded in {encoding}; create one with ENCODING UTF8"
            )

    def _migrate(self, connection: Connection) -> None:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
        layout = self._layout(connection)
        if layout > LAYOUT:
            raise CannotOpen(
                f"{self.name} was written by a newer headwater (layout {layout}, this one knows "
                f"{LAYOUT}); upgrade this node, or use another database"
            )
        if layout == LAYOUT:
            return
        if layout == 0:
            connection.execute(f"CREATE SCHEMA {SCHEMA}")
        for migration in MIGRATIONS[layout:]:
            # Several statements at once can neither be prepared nor return binary results.
            psycopg.Cursor(connection).execute(migration.encode(), prepare=False)
        connection.execute("UPDATE cluster SET layout = %s", (LAYOUT,))

    def _layout(self, connection: Connection) -> int:
        """The current layout; 0 for none."""
        exists = f"SELECT count(*) FROM pg_namespace WHERE nspname = '{SCHEMA}'"
        if not _one(connection, exists):
            return 0
        try:
            with connection.transaction():
                purpose, layout = connection.execute(
                    "SELECT purpose, layout FROM cluster"
                ).fetchall()[0]
        except (pg.UndefinedTable, pg.UndefinedColumn, IndexError):
            purpose, layout = None, 0
        if purpose != PURPOSE:
            raise CannotOpen(
                f"{self.name} has a schema '{SCHEMA}' that is not headwater's; "
                "use a database of its own"
            )
        return int(layout)


class KeptConnection:
    """A connection that is opened when needed, and reopened after it was lost."""

    def __init__(
        self,
        database: Database,
        connection: Connection | None = None,
        renewed: Callable[[], None] = lambda: None,
    ) -> None:
        self._database = database
        self._connection = connection
        self._renewed = renewed
        """Called before a new connection is used."""

    def connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._database.connect()
            self._renewed()
        return self._connection

    def hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class _BinaryCursor(psycopg.Cursor[Row]):
    """Always returns values in binary form."""

    def __init__(self, connection: Any, **options: Any) -> None:
        super().__init__(connection, **options)
        self.format = psycopg.pq.Format.BINARY


def _hosts(given: Mapping[str, Any]) -> str:
    hosts = str(given.get("host") or "localhost").split(",")
    ports = str(given.get("port") or "").split(",")
    # A single port applies to all hosts.
    ports = ports * len(hosts) if len(ports) == 1 else ports
    pairs = zip_longest(hosts, ports, fillvalue="")
    return ",".join(f"{host}:{port}" if port else host for host, port in pairs)


def _one(connection: Connection, sql: str) -> Any:
    return connection.execute(sql.encode()).fetchall()[0][0]


def _warn_of_replication(connection: Connection) -> None:
    """Acknowledged should mean: on more than one machine. Warn if it does not."""
    if not _one(connection, "SELECT current_setting('synchronous_standby_names')"):
        log.warning(
            "commits_are_not_replicated",
            advice="what is acknowledged is on one machine only; set synchronous_standby_names",
        )
        return
    waiting = "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')"
    if not _one(connection, waiting):
        log.warning(
            "no_replica_is_connected", advice="commits wait until PostgreSQL has one that follows"
        )


# ── Error messages ───────────────────────────────────────────────────────────────────────────

_WORDS: Final[list[tuple[type[psycopg.Error], str]]] = [
    (pg.ReadOnlySqlTransaction, "is read-only; it may be a replica, or about to be replaced"),
    (pg.DiskFull, "has no space left on its disk"),
    (pg.InsufficientPrivilege, "refuses: {}; the user needs a schema of its own"),
    (pg.TooManyConnections, "takes no more connections; raise max_connections"),
    (pg.InvalidCatalogName, "{}; create it first"),
    (pg.OperatorIntervention, "is shutting down or was told to end the connection"),
]


_SEVERAL: Final = "Multiple connection attempts failed"
_ATTEMPT: Final = re.compile(
    r'connection to server at "([^"]+)"(?: \([^)]*\))?, port (\d+) failed: '
    rf"(.*?)(?= {_SEVERAL}| - host: |$)"
)


def explained(error: psycopg.Error) -> str:
    for kind, words in _WORDS:
        if isinstance(error, kind):
            return words.format(_line(error))
    if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
        return _why_not_connected(_line(error))
    return f"answered '{_line(error)}'"


def _why_not_connected(said: str) -> str:
    """What the servers of an address said, each message once; there are no error codes for it."""
    reasons = {f"{host}:{port}": reason for host, port, reason in _ATTEMPT.findall(said)}
    if not reasons:
        return f"does not answer ({said.partition(_SEVERAL)[0].strip()})"
    if len(reasons) == 1:
        words = "".join(reasons.values())
    else:
        words = "; ".join(f"{server}: {reason}" for server, reason in reasons.items())
    words = words.replace("FATAL: ", "")
    if "is read-only" in said or "hot standby" in said:
        return f"has no server that takes writes ({words})"
    if "FATAL: " not in said:
        return f"does not answer ({words})"
    is_known = not any(hint in words for hint in ("authentication", "does not exist", "pg_hba"))
    advice = "" if is_known else "; check user, password and database of the address"
    return f"refuses the connection ({words}){advice}"


def _line(error: BaseException) -> str:
    """PostgreSQL's message, without the guesses that libpq adds on further lines."""
    lines = [line for line in str(error).splitlines() if not line.startswith("\t")]
    return " ".join(" ".join(lines).split()) or type(error).__name__


def translated(error: psycopg.Error) -> Exception:
    """The error that a request gets when PostgreSQL refuses."""
    if error.sqlstate == LOST_SHARD:
        return LostShard()
    if isinstance(error, pg.DiskFull):
        return StorageFull()
    if isinstance(error, pg.DataCorrupted | pg.IndexCorrupted):
        return DataCorrupt(f"PostgreSQL: {_line(error)}")
    return StorageUnavailable(f"PostgreSQL {explained(error)}; try again")


Connect = Callable[[], Connection]
