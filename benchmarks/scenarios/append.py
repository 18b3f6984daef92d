"""Appends per second: many writers over many streams, one writer, and large bodies."""

from collections.abc import Generator

from benchmarks.load.jobs import Append, CreateStreams
from benchmarks.load.process import Result, run_job, run_wrk
from benchmarks.scenarios.base import Context, Step
from benchmarks.servers import Server
from benchmarks.subjects import Subject

_SETUP_SECONDS_MAX = 60.0
_CREATE_CONNECTIONS = 16
BULK_STREAMS = 4


def steps(context: Context, subject: Subject) -> Generator[Step]:
    plan = context.plan
    with context.fresh_server(subject) as server:
        for streams, connections in plan.append_loads:
            noun = "stream" if streams == 1 else "streams"
            yield Step(
                f"{streams:,} {noun}, {connections} connections",
                lambda s=streams, c=connections: take(  # type: ignore[misc]
                    context, server, s, c, plan.append_seconds
                ),
            )

        yield Step(
            "1 stream, 1 connection", lambda: take(context, server, 1, 1, plan.append_seconds)
        )
        yield Step(
            f"{BULK_STREAMS} streams, bodies of {plan.append_bulk_messages:,} messages",
            lambda: _take_bulk(context, server),
        )


def _take_bulk(context: Context, server: Server) -> Result:
    plan, messages = context.plan, context.plan.append_bulk_messages
    result = take(
        context, server, BULK_STREAMS, BULK_STREAMS, plan.append_seconds, messages=messages
    )
    megabytes = messages * plan.message_bytes / 1e6
    return result | {"mb_per_second": result["appends_per_second"] * megabytes}


def take(
    context: Context,
    server: Server,
    streams: int,
    connections: int,
    seconds: float,
    *,
    messages: int = 1,
) -> Result:
    plan = context.plan
    job = Append(
        port=server.port,
        server_pid=server.pid,
        # Each combination writes to its own streams, so none starts on another's history.
        prefix=f"append-{streams}-{connections}-{messages}-",
        streams=streams,
        connections=connections,
        message_bytes=plan.message_bytes,
        messages=messages,
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
