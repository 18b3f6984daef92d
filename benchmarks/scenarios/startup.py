"""Starting on a data directory with very many streams, and what they cost when idle."""

import time
from collections.abc import Generator
from pathlib import Path

from benchmarks import procfs
from benchmarks.load.http import stream_path
from benchmarks.load.jobs import CreateStreams
from benchmarks.load.process import Result, run_job
from benchmarks.plan import MIB
from benchmarks.scenarios.base import Context, Step
from benchmarks.servers import running
from benchmarks.subjects import Subject

_CREATE_CONNECTIONS = 64
_PREFIX = "startup-"


def steps(context: Context, subject: Subject) -> Generator[Step]:
    if not subject.durable:
        return  # a memory store starts empty
    variant = f"{context.plan.startup_streams:,} streams"
    data_dir = context.kept_dir(subject, "startup")
    created = data_dir.parent / f"{data_dir.name}.created"
    if not created.exists():
        yield Step(variant, lambda: _create(context, subject, data_dir, created))
    if created.exists():
        yield Step(variant, lambda: _take(context, subject, data_dir))


def _create(context: Context, subject: Subject, data_dir: Path, created: Path) -> Result:
    """Create the streams, and measure what they cost the server that has just used them all."""
    plan = context.plan
    with running(subject, data_dir) as server:
        server.await_ready()
        job = CreateStreams(
            server.port, server.pid, _PREFIX, plan.startup_streams, _CREATE_CONNECTIONS
        )
        result = run_job(job, plan.prepare_seconds_max)
        time.sleep(plan.startup_idle_seconds)
        memory = procfs.resident_bytes(server.pid)
    created.touch()
    return {
        "memory_created_mib": memory / MIB,
        "creates_per_second": plan.startup_streams / result["seconds"],
    }


def _take(context: Context, subject: Subject, data_dir: Path) -> Result:
    """Start the server; no stream is used except for one HEAD request after it is ready."""
    existing = stream_path(f"{_PREFIX}{context.plan.startup_streams - 1}")
    with running(subject, data_dir) as server:
        if subject.health_path is not None:
            ready = server.await_answer("GET", subject.health_path, range(200, 201))
        else:
            ready = server.await_answer("HEAD", existing, range(200, 201))
        memory_ready = procfs.resident_bytes(server.pid)
        time.sleep(context.plan.startup_idle_seconds)
        memory_idle = procfs.resident_bytes(server.pid)
        cpu = procfs.cpu_seconds(server.pid)
        # The streams are really there, not just the port.
        server.await_answer("HEAD", existing, range(200, 201))
    return {
        "ready_seconds": ready,
        "memory_ready_mib": memory_ready / MIB,
        "memory_idle_mib": memory_idle / MIB,
        "server_cpu_seconds": cpu,
    }
