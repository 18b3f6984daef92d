"""Durable appends with SQLite, with PostgreSQL, and with three PostgreSQL servers and quorum
commit; the cost of a request to a node that has to forward it; and one stream with readers on three
nodes.
"""

import json
import time
import urllib.request
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Final

from benchmarks.errors import LoadFailed, ServerFailed
from benchmarks.load.jobs import Append, Fanout
from benchmarks.load.process import Result, run_job
from benchmarks.results import HEADWATER
from benchmarks.scenarios.base import Context, Step
from benchmarks.servers import Server, free_port
from benchmarks.subjects import Subject, cluster_nodes, headwater, headwater_on

SQLITE: Final = "SQLite"
ALONE: Final = "PostgreSQL"
QUORUM: Final = "quorum of three"
FORWARDED: Final = "the other node asked"
_DIRECT: Final = "the owner asked"
NODES: Final = 3
_FEW: Final = f"{QUORUM}, 8 connections"
_STREAMS, _CONNECTIONS, _FEW_CONNECTIONS = 16, 64, 8
_SETUP_SECONDS_MAX = 120.0
_READY_SECONDS_MAX = 60.0
# Settings of a production database: power loss takes nothing that was acknowledged.
_DURABLE = """
fsync = on
full_page_writes = on
synchronous_commit = on
autovacuum = on
shared_buffers = 128MB
max_wal_size = 1GB
"""


def steps(context: Context, subject: Subject) -> Generator[Step]:
    if subject.name != HEADWATER:
        return
    measured: dict[str, Result] = {}
    with context.fresh_server(headwater(context.python)) as server:
        yield _appends(context, measured, f"{SQLITE}, 1 node", server, [server.port])
    with _postgresql() as engine, context.fresh_server(headwater_on(context.python, engine)) as one:
        yield _appends(context, measured, f"{ALONE}, 1 node", one, [one.port])
    with _quorum() as (fresh, bind):
        with context.fresh_server(headwater_on(context.python, fresh("one"))) as one:
            few = _FEW_CONNECTIONS
            yield _appends(context, measured, _FEW, one, [one.port], connections=few)
            yield _appends(context, measured, f"{QUORUM}, 1 node", one, [one.port])
        more = [free_port() for _ in range(NODES - 1)]
        engine = fresh("three")
        for number in range(NODES - 1):
            bind(engine, f"of-{number}", f"node={number}")
        with context.fresh_server(cluster_nodes(context.python, engine, more)) as nodes:
            ports = [nodes.port, *more]
            _await_balance(ports)
            yield _appends(context, measured, f"{QUORUM}, {NODES} nodes", nodes, ports)
            yield _appends(context, measured, _DIRECT, nodes, [nodes.port], "of-0/")
            yield _appends(context, measured, FORWARDED, nodes, [nodes.port], "of-1/")
            readers = max(context.plan.fanout_readers)
            yield Step(
                f"{readers:,} readers on {NODES} nodes",
                partial(_take_fanout, context, nodes, ports, readers),
            )


def _appends(
    context: Context,
    measured: dict[str, Result],
    variant: str,
    server: Server,
    ports: list[int],
    prefix: str = "",
    connections: int = _CONNECTIONS,
) -> Step:
    def take() -> Result:
        plan = context.plan
        job = Append(
            port=ports[0],
            server_pid=server.pid,
            prefix=f"{prefix}append-{len(ports)}-{connections}-",
            streams=_STREAMS,
            connections=connections,
            message_bytes=plan.message_bytes,
            warmup_seconds=plan.append_warmup_seconds,
            seconds=plan.append_seconds,
            more_ports=tuple(ports[1:]),
        )
        result = run_job(job, job.warmup_seconds + job.seconds + _SETUP_SECONDS_MAX)
        server.check_alive()
        if result["errors"]:
            raise LoadFailed(f"{result['errors']:.0f} appends were refused")
        cpu = 1e6 * result["server_cpu_seconds"] / max(1, result["appends"])
        measured[variant] = result | {"server_cpu_us_per_append": cpu}
        return measured[variant] | _compared(measured, variant)

    return Step(variant, take)


def _compared(measured: dict[str, Result], variant: str) -> Result:
    """With what was measured earlier in the same repetition."""
    base = measured.get(f"{SQLITE}, 1 node")
    result = measured[variant]
    if variant == FORWARDED and _DIRECT in measured:
        direct = measured[_DIRECT]["server_cpu_us_per_append"]
        return {"cpu_of_direct": result["server_cpu_us_per_append"] / direct}
    compared: Result = {}
    if base is not None and variant not in (_DIRECT, FORWARDED, _FEW):
        compared["of_sqlite"] = result["appends_per_second"] / base["appends_per_second"]
    if variant == f"{QUORUM}, 1 node" and _FEW in measured:
        few = measured[_FEW]["appends_per_second"]
        compared["of_few"] = result["appends_per_second"] / few
    return compared


def _take_fanout(context: Context, nodes: Server, ports: list[int], readers: int) -> Result:
    plan = context.plan
    job = Fanout(
        port=ports[0],
        server_pid=nodes.pid,
        path="fanout",
        readers=readers,
        message_bytes=plan.message_bytes,
        settle_seconds=plan.settle_seconds,
        seconds=plan.fanout_seconds,
        more_ports=tuple(ports[1:]),
    )
    return run_job(job, plan.fanout_seconds + 2 * _SETUP_SECONDS_MAX)


# ── PostgreSQL ───────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _postgresql() -> Iterator[str]:
    """One server; yields the address of its database."""
    with ExitStack() as stack:
        with _failing():
            from tests.postgres.server import PostgresServer

            server = stack.enter_context(PostgresServer(wal_level="replica", more=_DURABLE))
        with server.connect() as connection:
            connection.execute("CREATE DATABASE headwater TEMPLATE template0 ENCODING 'UTF8'")
        yield f"{server.dsn.rpartition('/')[0]}/headwater"


@contextmanager
def _quorum() -> Iterator[tuple[Callable[[str], str], Callable[[str, str, str], object]]]:
    """Three servers; creates databases, and binds prefixes of their streams to labels."""
    with ExitStack() as stack:
        with _failing():
            from headwater.store.postgresql.bindings import bind
            from tests.cluster.trio import Trio

            trio = stack.enter_context(Trio(more=_DURABLE))
        yield trio.create_database, bind


@contextmanager
def _failing() -> Iterator[None]:
    """Without PostgreSQL there is nothing to measure; say so in one line."""
    try:
        yield
    except (ImportError, RuntimeError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ServerFailed(f"no PostgreSQL to measure with: {reason}") from None


def _await_balance(ports: list[int]) -> None:
    """Wait until all nodes have their share of shards, including those with labels."""
    deadline = time.monotonic() + _READY_SECONDS_MAX
    while time.monotonic() < deadline:
        with suppress(OSError, ValueError, KeyError):
            if all(_is_balanced(port, len(ports)) for port in ports):
                return
        time.sleep(0.2)
    raise ServerFailed("the nodes of the cluster did not share the shards out")


def _is_balanced(port: int, wanted: int) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/cluster", timeout=10) as answer:
        seen = json.load(answer)
    counts = [node["shards"] for node in seen["nodes"]]
    labels = {node["id"]: node["labels"] for node in seen["nodes"]}
    at_home = all(
        shard["owner"] is not None
        and (shard["label"] is None or shard["label"] in labels[shard["owner"]])
        for shard in seen["shards"]
    )
    return len(counts) == wanted and max(counts) - min(counts) <= 1 and at_home
