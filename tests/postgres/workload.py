"""People who change a database while it is being followed."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.postgres.conftest import TestDatabase

TABLES = ("account", "note")
KEYS = 40
PATIENCE_S = 60


def create_tables(db: TestDatabase) -> None:
    for table in TABLES:
        db.execute(
            f"CREATE TABLE {table} (id int PRIMARY KEY, text text)",
            f"ALTER TABLE {table} REPLICA IDENTITY FULL",
        )


class Writer(threading.Thread):
    """Commits transactions until told to stop; a few are large, and some are rolled back.

    Writers have rows of their own, so that they never wait for each other.
    """

    def __init__(self, db: TestDatabase, seed: int, number: int) -> None:
        super().__init__(daemon=True)
        self._db = db
        self._random = random.Random(f"{seed} {number}")
        self._keys = range(number * KEYS, (number + 1) * KEYS)
        self._stop_asked = threading.Event()
        self._progress = threading.Condition()
        self.transactions = 0

    def wait_for(self, transactions: int) -> None:
        """Wait until that many have been made."""
        with self._progress:
            assert self._progress.wait_for(lambda: self.transactions >= transactions, PATIENCE_S)

    def run(self) -> None:
        with self._db.connect() as connection:
            while not self._stop_asked.wait(self._random.random() * 0.03):
                self._transaction(connection)
                with self._progress:
                    self.transactions += 1
                    self._progress.notify_all()

    def end(self) -> None:
        self._stop_asked.set()
        self.join()

    def _transaction(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        connection.execute("BEGIN")
        size = 300 if self._random.random() < 0.05 else self._random.randint(1, 5)
        for _ in range(size):
            self._change(connection)
        connection.execute("ROLLBACK" if self._random.random() < 0.1 else "COMMIT")

    def _change(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        table = self._random.choice(TABLES)
        key, other = self._random.choices(self._keys, k=2)
        text = "x" * self._random.randint(0, 3000)
        statement = self._random.choice(
            [
                f"INSERT INTO {table} VALUES ({key}, '{text}') ON CONFLICT DO NOTHING",
                f"UPDATE {table} SET text = '{text}' WHERE id = {key}",
                f"UPDATE {table} SET id = {other} WHERE id = {key}"
                f" AND NOT EXISTS (SELECT FROM {table} WHERE id = {other})",
                f"DELETE FROM {table} WHERE id = {key}",
            ]
        )
        connection.execute(statement.encode())


@contextmanager
def writers(db: TestDatabase, seed: int, count: int = 2) -> Iterator[list[Writer]]:
    """Several at a time, for as long as the block lasts."""
    started = [Writer(db, seed, number) for number in range(count)]
    for writer in started:
        writer.start()
    try:
        yield started
    finally:
        for writer in started:
            writer.end()
