"""Appends per second, for several numbers of streams and connections."""

from collections.abc import Generator
from itertools import product

from benchmarks.load.jobs import Append, CreateStreams
from benchmarks.loading import Result, run_job, run_wrk
from benchmarks.scenarios.base import Context, Step
from benchmarks.servers import Server
from benchmarks.subjects import Subject

_SETUP_SECONDS_MAX = 60.0
_CREATE_CONNECTIONS = 16


def steps(context: Context, subject: Subject) -> Generator[Step]:
    plan = context.plan
    with context.fresh_server(subject) as server:
        for streams, connections in product(plan.append_streams, plan.append_connections):
            noun = "stream" if streams == 1 else "streams"
            yield Step(
                f"{streams:,} {noun}, {connections} connections",
                lambda s=streams, c=connections: take(  # type: ignore[misc]
                    context, server, s, c, plan.append_seconds
                ),
            )


def take(
    context: Context, server: Server, streams: int, connections: int, seconds: float
) -> Result:
    plan = context.plan
    job = Append(
        port=server.port,
        server_pid=server.pid,
        # Each combination writes to streams of its own, so none starts on the other's history.
        prefix=f"append-{streams}-{connections}-",
        streams=streams,
        connections=connections,
        body_bytes=plan.message_bytes,
        warmup_seconds=plan.append_warmup_seconds,
        seconds=seconds,
    )
    if context.use_wrk:
        create = CreateStreams(server.port, server.pid, job.prefix, streams, _CREATE_CONNECTIONS)
        run_job(create, _SETUP_SECONDS_MAX)
        result = run_wrk(job)
    else:
        seconds_max = job.warmup_seconds + job.seconds + _SETUP_SECONDS_MAX
        result = run_job(job, seconds_max)
    server.check_alive()
    appends = max(1, result["appends"])
    return result | {"server_cpu_us_per_append": 1e6 * result["server_cpu_seconds"] / appends}
