"""A server with its streams in PostgreSQL is killed, paused and cut off, and PostgreSQL crashes.

What was acknowledged must be there, whoever crashed; see `test_kill` for how that is checked. A
node that was paused for so long that another one took over must not write any more.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import httpx
import pytest
import uvloop

from headwater.store.engine import Problem
from headwater.store.postgresql.engine import PostgresqlEngine
from tests.conftest import StartServer
from tests.crash.check import until_more
from tests.crash.crew import Crew
from tests.crash.test_kill import reap
from tests.postgres.server import PostgresServer
from tests.support.cluster import until
from tests.support.postgresql import EngineDatabase, new_database
from tests.support.server import ServerProcess

LEASE_MS = 500
SHARE_OF_TIME = 0.35
ROUNDS_MIN = 3
DONE_MIN = 10
"""In a round; less than that says nothing."""
PATIENCE_S = 60
TEXT = {"Content-Type": "text/plain"}


@pytest.fixture
def server_of_databases() -> Iterator[PostgresServer]:
    """One that may be crashed."""
    with PostgresServer() as server:
        yield server


def settings(database: EngineDatabase, rng: Random) -> tuple[str, ...]:
    return (
        *("--engine", database.url, "--engine-lease-ms", str(LEASE_MS)),
        *("--log-level", "warning", "--long-poll-timeout-ms", "1000"),
        *("--streams-in-memory-max", rng.choice(("16", "20000"))),
        *("--hot-bytes-per-stream-max", rng.choice(("0", "10000", "1000000"))),
        *("--chunk-bytes-max", rng.choice(("1000", "100000", "1000000"))),
    )


async def disturb(server: PostgresServer, database: EngineDatabase, rng: Random) -> None:
    """What a server has to live through."""
    what = rng.choice(["nothing", "cut", "crash", "stop"])
    if what == "cut":
        await asyncio.to_thread(database.cut_connections)
    elif what != "nothing":
        how = signal.SIGQUIT if what == "crash" else signal.SIGINT
        await asyncio.to_thread(server.stop, how)
        await asyncio.sleep(rng.uniform(0, 0.5))
        await asyncio.to_thread(server.start)


async def rounds_of(
    node: ServerProcess,
    server: PostgresServer,
    database: EngineDatabase,
    seconds: float,
    rng: Random,
) -> None:
    crew = Crew(node.port, rng)

    async def bad_day() -> None:
        before = crew.done
        await asyncio.sleep(rng.uniform(0.2, 1))
        await until_more(lambda: crew.done, before + DONE_MIN)
        await disturb(server, database, rng)
        await asyncio.sleep(rng.uniform(0.2, 1.5))
        node.kill()

    deadline = time.monotonic() + seconds
    node.start()
    rounds = 0
    while rounds < ROUNDS_MIN or time.monotonic() < deadline:
        await crew.work_until(bad_day())
        node.args = settings(database, rng)
        node.start()
        await crew.check()
        rounds += 1
    await crew.check_everything()
    assert node.stop() == 0
    print(f"{rounds} rounds, {crew.done} acknowledged requests, {crew.unavailable} refused")
    assert crew.done > DONE_MIN * rounds, "too little happened to say anything"


@pytest.mark.late
@pytest.mark.crash
@pytest.mark.slow
def test_what_was_acknowledged_survives(
    server_of_databases: PostgresServer, crash_seconds: int, seed: int
) -> None:
    rng = Random(seed)
    database = new_database(server_of_databases, "headwater")
    node = ServerProcess(*settings(database, rng))
    try:
        seconds = crash_seconds * SHARE_OF_TIME
        uvloop.run(rounds_of(node, server_of_databases, database, seconds, rng))
    except BaseException:
        print(f"--- server ---\n{node.stderr[-20_000:]}")
        raise
    finally:
        reap(node)
    assert "Traceback" not in node.stderr
    engine = PostgresqlEngine(database.url)
    problems = [line for line in engine.verify() if isinstance(line, Problem)]
    engine.close()
    assert problems == []


@pytest.mark.crash
def test_a_node_that_was_paused_cannot_go_on(
    database: EngineDatabase, start_server: StartServer
) -> None:
    place = ("--engine", database.url, "--engine-lease-ms", str(LEASE_MS))
    with ExitStack() as stack:
        first = stack.enter_context(httpx.Client(timeout=PATIENCE_S))
        paused = ServerProcess(*place)
        paused.start()
        stack.callback(reap, paused)
        url = paused.stream_url("s")
        assert first.put(url, headers=TEXT).status_code == 201
        assert first.post(url, headers=TEXT, content=b"one").status_code == 204
        os.kill(paused.pid, signal.SIGSTOP)
        try:
            second = start_server(*place)
            other = second.stream_url("s")
            assert httpx.post(other, headers=TEXT, content=b"two").status_code == 204
        finally:
            os.kill(paused.pid, signal.SIGCONT)
        try:
            status = first.post(url, headers=TEXT, content=b"lost").status_code
            assert status == 503
        except httpx.TransportError:
            pass  # It has stopped already.
        deadline = time.monotonic() + PATIENCE_S
        while paused.is_running:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert paused.kill() == 1
        assert "another node has taken over" in paused.stderr
        assert httpx.get(other).content == b"onetwo"


@pytest.mark.crash
def test_a_second_server_says_who_has_the_database(
    database: EngineDatabase, start_server: StartServer, tmp_path: Path
) -> None:
    # Long enough for a busy machine to show a sign of life in time.
    place = ("--engine", database.url, "--engine-lease-ms", "10000")
    first = start_server(*place)
    second = ServerProcess(*place, cwd=tmp_path)
    with pytest.raises(RuntimeError, match=rf"in use by another node, .*process {first.pid}"):
        second.start()
    # Nothing but what is in the database belongs to a node.
    assert list(tmp_path.iterdir()) == []


def test_a_server_without_its_database_says_so(
    database: EngineDatabase, start_server: StartServer
) -> None:
    server = start_server("--engine", database.url)
    ready = f"{server.url}/readyz"

    def is_ready() -> bool:
        return httpx.get(ready).status_code == 200

    # It is waited for: a probe does not wait for long, and PostgreSQL may be busy.
    until(is_ready)
    with database.read_only():
        until(lambda: "read-only" in httpx.get(ready).text)
        assert not is_ready()
        put = httpx.put(server.stream_url("s"), headers=TEXT)
        assert put.status_code == 503
        assert put.json()["error"]["code"] == "storage_unavailable"
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        assert httpx.get(f"{server.url}/metrics").status_code == 200
    until(is_ready)
    assert httpx.put(server.stream_url("s"), headers=TEXT).status_code == 201
