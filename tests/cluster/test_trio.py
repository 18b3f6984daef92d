"""The three PostgreSQL of the other tests: what was acknowledged outlives the primary."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.cluster.trio import Trio, until


@pytest.fixture(scope="module")
def trio() -> Iterator[Trio]:
    with Trio() as trio:
        yield trio


def test_acknowledged_rows_outlive_their_primary_again_and_again(trio: Trio) -> None:
    url = trio.create_database("t")
    written = 0
    with psycopg.connect(url, target_session_attrs="read-write", autocommit=True) as connection:
        connection.execute("CREATE TABLE t (n integer)")
    for _ in range(3):
        with psycopg.connect(url, target_session_attrs="read-write", autocommit=True) as connection:
            for _ in range(20):
                connection.execute("INSERT INTO t VALUES (%s)", (written,))
                written += 1
        lost = trio.primary
        lost.kill()
        assert trio.fail_over() is not lost
        with psycopg.connect(url, target_session_attrs="read-write") as connection:
            found = connection.execute("SELECT n FROM t ORDER BY n").fetchall()
        assert found == [(n,) for n in range(written)]
        trio.bring_back(lost)
        trio.wait_for_replicas(2)


def test_a_commit_waits_while_no_replica_follows(trio: Trio) -> None:
    url = trio.create_database("w")

    def insert() -> None:
        with psycopg.connect(url, target_session_attrs="read-write", autocommit=True) as connection:
            connection.execute("CREATE TABLE w (n integer)")

    def waits() -> bool:
        with trio.primary.connect() as connection:
            sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            return bool(connection.execute(sql).fetchall()[0][0])

    for replica in trio.replicas:
        replica.kill()
    with ThreadPoolExecutor() as threads:
        inserting = threads.submit(insert)
        until(waits, "the commit waits")
        assert not inserting.done()
        trio.bring_back(trio.replicas[0])
        inserting.result(60)
    trio.bring_back(trio.replicas[1])
    trio.wait_for_replicas(2)
