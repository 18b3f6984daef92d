"""Collaborative editing: many documents with a few editors each, everyone tailing by SSE."""

from collections.abc import Generator

from benchmarks.load.jobs import LiveTraffic
from benchmarks.load.process import Result, run_job
from benchmarks.scenarios.base import Context, Step
from benchmarks.servers import Server
from benchmarks.subjects import Subject

_EDIT_BYTES = 120
_SETUP_SECONDS_MAX = 180.0


def steps(context: Context, subject: Subject) -> Generator[Step]:
    plan = context.plan
    variant = (
        f"{plan.editor_documents} documents × {plan.editors_per_document} editors × "
        f"{plan.edits_per_second:.0f} edits/s"
    )
    with context.fresh_server(subject) as server:
        yield Step(variant, lambda: edit(context, server, plan.editor_documents))


def edit(context: Context, server: Server, documents: int, *, yjs: bool = False) -> Result:
    plan = context.plan
    job = LiveTraffic(
        port=server.port,
        server_pid=server.pid,
        prefix="document-",
        documents=documents,
        writers=plan.editors_per_document,
        readers=plan.editors_per_document,
        writers_read=True,
        rate=plan.edits_per_second,
        message_bytes=_EDIT_BYTES,
        warmup_seconds=plan.live_warmup_seconds,
        seconds=plan.editor_seconds,
        drain_seconds=plan.live_drain_seconds,
        yjs=yjs,
    )
    result = run_job(job, plan.editor_seconds + plan.live_drain_seconds + _SETUP_SECONDS_MAX)
    return result | {"server_cpu_share": result["server_cpu_seconds"] / result["seconds"]}
