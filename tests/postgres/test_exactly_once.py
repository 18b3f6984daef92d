"""Whatever ends, and whenever: the stream is what was committed, once, in the order of commits.

What was committed is read, independently and without interruption, from a second slot.
"""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headwater.client import AsyncHeadwater, Headwater, RetryPolicy
from headwater.client.aio.transport import HttpxTransport
from headwater.client.protocol.streams import Request, Response
from headwater.postgres.buffer import BATCH_RECORDS_MAX
from tests.conftest import StartServer
from tests.postgres.conftest import PATIENCE_S, Pipe, TestDatabase, until
from tests.postgres.server import PostgresServer
from tests.postgres.workload import create_tables, writers
from tests.support import seeds


@pytest.mark.parametrize("seed", seeds.several(3))
async def test_interrupted_at_any_moment(db: TestDatabase, pipe: Pipe, seed: int) -> None:
    create_tables(db)
    db.publish()
    chance = random.Random(seed)
    interruptions = 0
    with writers(db, seed) as busy:
        while interruptions < 12 or any(writer.transactions < 50 for writer in busy):
            following = asyncio.create_task(pipe.follower().run(asyncio.Event()))
            await asyncio.sleep(chance.random() * 0.15)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            assert following.cancelled()
            interruptions += 1
    records = await pipe.catch_up()
    assert len(records) > 100
    assert records == await db.committed()


async def test_killed(db: TestDatabase, pipe: Pipe, url: str) -> None:
    create_tables(db)
    db.publish()
    chance = random.Random(7)
    deaths = 0
    with writers(db, 7) as busy:
        while deaths < 3 or any(writer.transactions < 50 for writer in busy):
            await asyncio.to_thread(follow_and_die, db, pipe.path, url, chance.random() * 0.3)
            deaths += 1
    records = await pipe.catch_up()
    assert len(records) > 100
    assert records == await db.committed()


class Detour(HttpxTransport):
    """A way to the server on which appends can get lost for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.holds_appends = False
        self.held: Request | None = None

    async def send(self, request: Request) -> Response:
        if request.method == "POST" and self.holds_appends:
            self.held = request
            await asyncio.Event().wait()
        if request.method == "POST" and self.held is not None:
            late, self.held = self.held, None
            await super().send(late)
        return await super().send(request)


async def test_an_append_of_an_earlier_run_arrives_late(db: TestDatabase, url: str) -> None:
    """The next run has looked at the stream by then, and is about to append."""
    create_tables(db)
    db.publish()
    detour = Detour()
    async with AsyncHeadwater(url, transport=detour) as client:
        pipe = Pipe(db, client)
        following = asyncio.create_task(pipe.follower().run(asyncio.Event()))
        db.execute("INSERT INTO note VALUES (1, 'x')")
        await until(lambda: "1 record stored" in "".join(pipe.said), following)
        detour.holds_appends = True
        db.execute("INSERT INTO note VALUES (2, 'x'), (3, 'x'), (4, 'x')")
        await until(lambda: detour.held is not None, following)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        detour.holds_appends = False
        db.execute("INSERT INTO note VALUES (5, 'x')")
        records = await pipe.catch_up()
        assert any("trying again" in said for said in pipe.said)
    assert [record["key"] for record in records] == ["1", "2", "3", "4", "5"]
    assert records == await db.committed()


def start(db: TestDatabase, path: str, url: str) -> subprocess.Popen[str]:
    """The command as a process of its own, when it has begun."""
    command = [sys.executable, "-m", "headwater", "postgres", "follow", db.dsn, path]
    options = ["--slot", db.slot, "--create", "--url", url]
    process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while "following" not in (line := process.stderr.readline()):
        assert line, "it ended by itself"
    return process


def follow_and_die(db: TestDatabase, path: str, url: str, after_s: float) -> None:
    with start(db, path, url) as process:
        time.sleep(after_s)
        process.kill()


async def test_the_stream_server_is_killed(
    db: TestDatabase, start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server("--data", str(tmp_path / "data"))
    create_tables(db)
    db.publish()
    async with AsyncHeadwater(server.url, retry=RetryPolicy(give_up_after_s=0.3)) as client:
        pipe = Pipe(db, client)
        follower = pipe.follower()
        stop = asyncio.Event()
        following = asyncio.create_task(follower.run(stop))
        with writers(db, 8):
            for _ in range(2):
                before = follower.stored
                await until(lambda: follower.stored > before + 20, following)  # noqa: B023
                await asyncio.to_thread(server.kill)
                await until(lambda: "trying again" in pipe.said[-1], following)
                await asyncio.to_thread(server.start)
        stop.set()
        await following
        assert await pipe.catch_up() == await db.committed()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["stopped", "crashed"])
async def test_postgresql_goes_away(client: AsyncHeadwater, how: signal.Signals) -> None:
    with PostgresServer() as server:
        db = TestDatabase(server)
        create_tables(db)
        db.publish()
        pipe = Pipe(db, client)
        follower = pipe.follower()
        stop = asyncio.Event()
        following = asyncio.create_task(follower.run(stop))
        for seed in range(2):
            before = follower.stored
            with writers(db, seed):
                await until(lambda: follower.stored > before + 50, following)  # noqa: B023
            await asyncio.to_thread(server.stop, how)
            await until(lambda: "trying again" in pipe.said[-1], following)
            await asyncio.to_thread(server.start)
            db.reconnect()
        await until(lambda: "following" in pipe.said[-1], following)
        stop.set()
        await following
        assert await pipe.catch_up() == await db.committed()
        db.close()


async def test_a_large_transaction_in_many_appends(db: TestDatabase, pipe: Pipe) -> None:
    rows = 40_000
    create_tables(db)
    db.publish()
    with db.connect() as other, other.transaction():
        other.execute(
            f"INSERT INTO account SELECT n, 'x' FROM generate_series(1, {rows}) n".encode()
        )
        db.execute("INSERT INTO note VALUES (1, 'meanwhile')")
    db.execute("INSERT INTO note VALUES (2, 'afterwards')")
    stop = asyncio.Event()
    follower = pipe.follower()
    following = asyncio.create_task(follower.run(stop))
    await until(lambda: follower.stored > BATCH_RECORDS_MAX, following)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert 0 < follower.stored < rows
    records = await pipe.catch_up()
    assert len(records) == rows + 2
    assert records == await db.committed()


async def test_what_is_stored_is_confirmed(db: TestDatabase, pipe: Pipe) -> None:
    """Otherwise PostgreSQL would keep its log for ever, also when only other tables change."""
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TABLE quiet (id int)",
        "CREATE PUBLICATION headwater FOR TABLE t",
    )
    await pipe.catch_up()
    query = f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{db.slot}'"
    ((before,),) = db.rows(query)
    db.execute("INSERT INTO t VALUES (1)", "INSERT INTO quiet SELECT generate_series(1, 1000)")
    ((written,),) = db.rows("SELECT pg_current_wal_insert_lsn()")
    assert db.rows(f"SELECT '{before}'::pg_lsn < '{written}'::pg_lsn") == [(True,)]
    assert len(await pipe.catch_up()) == 1
    ((after,),) = db.rows(query)
    assert db.rows(f"SELECT '{after}'::pg_lsn >= '{written}'::pg_lsn") == [(True,)]


def test_a_polite_end(db: TestDatabase, url: str) -> None:
    """SIGTERM: what was read is stored, PostgreSQL knows, and the exit code is 0."""
    create_tables(db)
    db.publish()
    path = f"polite/{db.slot}"
    with Headwater(url) as client, start(db, path, url) as process:
        db.execute("INSERT INTO note VALUES (1, 'x')")
        deadline = time.monotonic() + PATIENCE_S
        while not client.stream(path).read_json() and time.monotonic() < deadline:
            time.sleep(0.01)
        process.terminate()
        assert process.stderr is not None
        said = process.stderr.read()
    assert process.returncode == 0
    assert "1 record stored" in said
