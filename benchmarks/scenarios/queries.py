"""Live queries, compared with the server of Prisma Streams, which has the same interface."""

from collections.abc import Callable, Generator
from functools import partial

from benchmarks.load.jobs import ChangeFlood, Job, ManyWaiters, PacedChanges
from benchmarks.load.process import Result, run_job
from benchmarks.results import HEADWATER
from benchmarks.scenarios.base import Context, Step
from benchmarks.servers import Server
from benchmarks.subjects import Subject, prisma_streams

_SETUP_SECONDS_MAX = 90.0
_TABLES = 10
_TEMPLATES_PER_TABLE = 10
_FLOOD_WAITERS = 1_000
_FLOOD_CONNECTIONS = 4
_BATCH = 100
_TOUCHED = 10
_WAKES_PER_SECOND = 10.0

MakeJob = Callable[[Server], Job]


def steps(context: Context, subject: Subject) -> Generator[Step]:
    """Each step has a new server, because earlier streams or waiters would affect it."""
    if subject.name != HEADWATER:
        return  # the reference server has no live queries
    servers = [subject, prisma_streams()] if context.compare else [subject]
    first = context.repetition % len(servers)
    for variant, seconds, make_job in _variants(context):
        for server in [*servers[first:], *servers[:first]]:
            take = partial(_take, context, server, seconds, make_job)
            yield Step(variant, take, server.name)


def _take(context: Context, subject: Subject, seconds: float, make_job: MakeJob) -> Result:
    with context.fresh_server(subject) as server:
        return run_job(make_job(server), seconds + _SETUP_SECONDS_MAX)


def _variants(context: Context) -> Generator[tuple[str, float, MakeJob]]:
    plan = context.plan
    paced_seconds = plan.queries_seconds + plan.live_drain_seconds
    for streams, rate in plan.queries_streams:
        noun = "stream" if streams == 1 else "streams"
        yield (
            f"{streams} {noun}, {rate:.0f} changes/s each",
            paced_seconds,
            partial(_paced, context, streams, rate),
        )
    templates = _TABLES * _TEMPLATES_PER_TABLE
    yield (
        f"{templates} templates, {_FLOOD_WAITERS:,} waiters",
        plan.queries_seconds + plan.queries_settle_seconds,
        partial(_flood, context),
    )
    yield (
        f"{plan.queries_waiters:,} waiters",
        paced_seconds,
        partial(_many, context),
    )


def _paced(context: Context, streams: int, rate: float, server: Server) -> PacedChanges:
    plan = context.plan
    return PacedChanges(
        port=server.port,
        server_pid=server.pid,
        prefix="queries-",
        streams=streams,
        rate=rate,
        warmup_seconds=plan.live_warmup_seconds,
        seconds=plan.queries_seconds,
        drain_seconds=plan.live_drain_seconds,
    )


def _flood(context: Context, server: Server) -> ChangeFlood:
    plan = context.plan
    return ChangeFlood(
        port=server.port,
        server_pid=server.pid,
        path="queries-flood",
        tables=_TABLES,
        templates=_TEMPLATES_PER_TABLE,
        waiters=_FLOOD_WAITERS,
        connections=_FLOOD_CONNECTIONS,
        batch_changes=_BATCH,
        seconds=plan.queries_seconds,
        settle_seconds=plan.queries_settle_seconds,
    )


def _many(context: Context, server: Server) -> ManyWaiters:
    plan = context.plan
    return ManyWaiters(
        port=server.port,
        server_pid=server.pid,
        path="queries-many",
        waiters=plan.queries_waiters,
        touched=_TOUCHED,
        rate=_WAKES_PER_SECOND,
        settle_seconds=plan.settle_seconds,
        seconds=plan.queries_seconds,
        drain_seconds=plan.live_drain_seconds,
    )
