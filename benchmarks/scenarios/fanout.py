"""One stream with very many SSE readers."""

from collections.abc import Generator

from benchmarks.load.jobs import Fanout
from benchmarks.load.process import Result, run_job
from benchmarks.scenarios.base import Context, Step
from benchmarks.servers import Server
from benchmarks.subjects import Subject

_SETUP_SECONDS_MAX = 240.0


def steps(context: Context, subject: Subject) -> Generator[Step]:
    for readers in context.plan.fanout_readers:
        # A new server for each count: memory left over from an earlier crowd would be attributed to
        # nobody and make the next crowd look cheap.
        with context.fresh_server(subject) as server:
            yield Step(
                f"{readers:,} readers",
                lambda r=readers: _take(context, server, r),  # type: ignore[misc]
            )


def _take(context: Context, server: Server, readers: int) -> Result:
    plan = context.plan
    job = Fanout(
        port=server.port,
        server_pid=server.pid,
        path=f"fanout-{readers}",
        readers=readers,
        message_bytes=plan.message_bytes,
        settle_seconds=plan.settle_seconds,
        seconds=plan.fanout_seconds,
    )
    return run_job(job, plan.fanout_seconds + _SETUP_SECONDS_MAX)
