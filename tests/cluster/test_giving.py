"""A shard that is given away, and nobody says whether that has happened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, cast

import pytest

from headwater.cluster.node import Node
from headwater.core.cluster import ClusterSeen, NodeSeen, ShardSeen
from headwater.core.errors import OutcomeUnknown, StorageUnavailable
from headwater.core.limits import Limits
from headwater.service.log import Log
from headwater.store.memory.engine import MemoryEngine
from headwater.store.postgresql.engine import PostgresqlEngine
from tests.support.cluster import PATIENCE_S, until
from tests.support.postgresql import EngineDatabase, databases

SHARD = 0
LONG_LEASE_MS = 600_000


@pytest.fixture
def database() -> Iterator[EngineDatabase]:
    with databases() as database:
        yield database


@pytest.fixture
def pair(database: EngineDatabase) -> Iterator[tuple[PostgresqlEngine, PostgresqlEngine]]:
    """The owner of all shards, and another node."""
    with ExitStack() as stack:
        engines = []
        for number in (1, 2):
            engine = PostgresqlEngine(
                database.url, lease_ms=LONG_LEASE_MS, address=f"http://{number}.test"
            )
            stack.callback(engine.close)
            engines.append(engine)
        owner, other = engines
        owner._keeper._beat(measure=False)
        assert SHARD in owner._keeper.shards
        yield owner, other


@pytest.fixture
def commits_wait(database: EngineDatabase) -> Iterator[Callable[[bool], None]]:
    """Let commits wait for a replica that there is not, or no longer."""

    def set_names(names: str) -> None:
        database.query(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        database.query("SELECT pg_reload_conf()")
        until(lambda: database.query("SHOW synchronous_standby_names") == [(names,)])

    yield lambda wait: set_names("nobody" if wait else "")
    set_names("")


def waiting(database: EngineDatabase, event: str) -> int:
    """Who waits for something."""
    sql = (
        f"SELECT pid FROM pg_stat_activity WHERE wait_event = '{event}'"
        f" AND datname = '{database.name}'"
    )
    until(lambda: bool(database.query(sql)))
    return int(database.query(sql)[0][0])


def test_what_was_given_away_without_an_answer_is_used_no_more(
    pair: tuple[PostgresqlEngine, PostgresqlEngine],
    database: EngineDatabase,
    commits_wait: Callable[[bool], None],
) -> None:
    owner, other = pair[0]._keeper, pair[1]._keeper
    owner.withhold({SHARD})
    with ThreadPoolExecutor(2) as threads:
        commits_wait(True)
        giving = threads.submit(owner.give, {SHARD: other.node_id})
        database.query(f"SELECT pg_terminate_backend({waiting(database, 'SyncRep')})")
        # Whether it was given away is settled by another commit, which waits as well.
        waiting(database, "SyncRep")
        keeping = threads.submit(owner.keep, {SHARD})
        assert SHARD not in owner.shards
        commits_wait(False)
        with pytest.raises(OutcomeUnknown):
            giving.result(PATIENCE_S)
        keeping.result(PATIENCE_S)
    assert SHARD not in owner.shards
    other.look()
    assert SHARD in other.shards


def test_what_was_not_given_away_is_used_again(
    pair: tuple[PostgresqlEngine, PostgresqlEngine], database: EngineDatabase
) -> None:
    owner, other = pair[0]._keeper, pair[1]._keeper
    owner.withhold({SHARD})
    with (
        ThreadPoolExecutor(1) as thread,
        database.connect() as connection,
        connection.transaction(),
    ):
        connection.execute("LOCK TABLE headwater.shards IN EXCLUSIVE MODE")
        giving = thread.submit(owner.give, {SHARD: other.node_id})
        database.query(f"SELECT pg_terminate_backend({waiting(database, 'relation')})")
        with pytest.raises(OutcomeUnknown):
            giving.result(PATIENCE_S)
    owner.keep({SHARD})
    assert SHARD in owner.shards
    owner.withhold({SHARD})
    owner.give({SHARD: other.node_id})
    assert SHARD not in owner.shards


class Uncertain:
    """Gives a shard away, and nobody hears of it; the database cannot be asked for a while."""

    node_id = 1
    lease_s = 3.0
    taken_over = 0

    def __init__(self, questions: int) -> None:
        nodes = tuple(
            NodeSeen(number, f"node {number}", f"http://{number}", 1, 1, 3_000, False)
            for number in (1, 2)
        )
        self.seen = ClusterSeen(nodes, (ShardSeen(SHARD, 1, 1),))
        self.shards: frozenset[int] = frozenset({SHARD})
        self.on_look = lambda: None
        self._questions = questions
        self.is_over = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def excess(self) -> dict[int, int]:
        return {}

    def withhold(self, shards: Collection[int]) -> None:
        self.shards -= frozenset(shards)

    def give(self, moves: Mapping[int, int]) -> None:
        raise OutcomeUnknown

    def keep(self, shards: Collection[int]) -> None:
        assert not self.shards
        self._questions -= 1
        if self._questions:
            raise StorageUnavailable("not yet")
        self._loop.call_soon_threadsafe(self.is_over.set)


async def test_it_is_asked_for_until_there_is_an_answer() -> None:
    log = await Log.start(MemoryEngine(), Limits())
    membership = Uncertain(questions=3)
    node = Node(log, cast(Any, membership))
    assert await node.hand(SHARD, 2)
    await asyncio.wait_for(membership.is_over.wait(), PATIENCE_S)
    assert node.shards == frozenset()
    await node.stop()
    await log.stop()


async def test_a_node_can_stop_without_an_answer() -> None:
    log = await Log.start(MemoryEngine(), Limits())
    node = Node(log, cast(Any, Uncertain(questions=10**9)))
    await node.hand(SHARD, 2)
    await asyncio.wait_for(node.stop(), PATIENCE_S)
    await log.stop()
