"""From when a writer wants to send a message until an SSE reader has it."""

from collections.abc import Generator

from benchmarks.load.jobs import LiveTraffic
from benchmarks.load.process import Result, run_job
from benchmarks.scenarios.base import Context, Step
from benchmarks.servers import Server
from benchmarks.subjects import Subject

_SETUP_SECONDS_MAX = 120.0


def steps(context: Context, subject: Subject) -> Generator[Step]:
    with context.fresh_server(subject) as server:
        for readers, rate in context.plan.latency_readers:
            noun = "reader" if readers == 1 else "readers"
            yield Step(
                f"{readers} {noun}, {rate:.0f} appends/s",
                lambda r=readers, p=rate: _take(context, server, r, p),  # type: ignore[misc]
            )


def _take(context: Context, server: Server, readers: int, rate: float) -> Result:
    plan = context.plan
    job = LiveTraffic(
        port=server.port,
        server_pid=server.pid,
        prefix=f"latency-{readers}-",
        documents=1,
        writers=1,
        readers=readers,
        writers_read=False,
        rate=rate,
        message_bytes=plan.message_bytes,
        warmup_seconds=plan.live_warmup_seconds,
        seconds=plan.latency_seconds,
        drain_seconds=plan.live_drain_seconds,
    )
    return run_job(job, plan.latency_seconds + plan.live_drain_seconds + _SETUP_SECONDS_MAX)
