"""Reading a large stream of small JSON messages from its start."""

from collections.abc import Generator
from pathlib import Path

from benchmarks.errors import LoadFailed
from benchmarks.load.jobs import CatchUp, FillStream
from benchmarks.load.process import Result, run_job
from benchmarks.plan import MIB
from benchmarks.scenarios.base import Context, Step
from benchmarks.servers import Server, running
from benchmarks.subjects import Subject

_READ_SECONDS_MAX = 150.0
_PATH = "catchup"


def steps(context: Context, subject: Subject) -> Generator[Step]:
    plan = context.plan
    data_dir = context.kept_dir(subject, "catchup")
    filled = subject.durable and _marker(data_dir).exists()
    with running(subject, data_dir) as server:
        server.await_ready()
        if not filled:
            _fill(context, server)
            _marker(data_dir).touch()
        for connections in plan.catchup_connections:
            noun = "connection" if connections == 1 else "connections"
            yield Step(
                f"{plan.catchup_bytes // MIB} MiB, {connections} {noun}",
                lambda c=connections: _take(context, server, c),  # type: ignore[misc]
            )


def _marker(data_dir: Path) -> Path:
    return data_dir.parent / f"{data_dir.name}.filled"


def _messages(context: Context) -> int:
    return context.plan.catchup_bytes // context.plan.message_bytes


def _fill(context: Context, server: Server) -> None:
    plan = context.plan
    job = FillStream(
        port=server.port,
        server_pid=server.pid,
        path=_PATH,
        messages=_messages(context),
        message_bytes=plan.message_bytes,
        batch_messages=plan.catchup_batch_messages,
    )
    run_job(job, plan.prepare_seconds_max)


def _take(context: Context, server: Server, connections: int) -> Result:
    job = CatchUp(server.port, server.pid, _PATH, connections)
    result = run_job(job, _READ_SECONDS_MAX)
    # A JSON read is one array per response: each message and one separator or bracket after it, and
    # one opening bracket. Anything else means that not all, or not only, messages arrived.
    with_separator = context.plan.message_bytes + 1
    expected = connections * _messages(context) * with_separator + result["responses"]
    if result["bytes"] != expected:
        raise LoadFailed(f"read {result['bytes']:.0f} bytes instead of {expected:.0f}")
    megabytes = result["bytes"] / 1e6
    return result | {"server_cpu_ms_per_mb": 1e3 * result["server_cpu_seconds"] / megabytes}
