"""Traces, where they are wanted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from headwater.cli.serving.server import listening
from headwater.http.observe.tracing import Tracing
from headwater.settings import load_settings
from headwater.store.memory.engine import MemoryEngine
from tests.support.faulty_engine import Fault, FaultyEngine

TRACE = "0af7651916cd43dd8448eb211c80319c"
BYTES = {"Content-Type": "application/octet-stream"}
PARENT = "b7ad6b7169203331"


class Traced:
    """A server whose spans are kept."""

    def __init__(self, exporter: InMemorySpanExporter, engine: FaultyEngine, port: int) -> None:
        self._exporter = exporter
        self.engine = engine
        self.client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}")

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


@pytest.fixture
async def traced() -> AsyncIterator[Traced]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    settings = load_settings(None, {"memory": True, "port": 0, "shutdown_grace_ms": 0})
    engine = FaultyEngine(MemoryEngine())
    async with listening(settings, engine, tracing=Tracing(provider)) as (_, port):
        traced = Traced(exporter, engine, port)
        async with traced.client:
            yield traced


async def test_a_request_continues_the_trace_of_its_client(traced: Traced) -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-Id": "till-7"}
    await traced.client.put("/v1/stream/a?token=secret", content=b"x", headers=headers)
    (span,) = traced.spans("PUT /v1/stream/{path}")
    assert span.kind is SpanKind.SERVER
    assert span.context is not None
    assert span.parent is not None
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == PARENT
    known = dict(span.attributes or {})
    assert known["http.response.status_code"] == 201
    assert known["http.route"] == "/v1/stream/{path}"
    assert known["url.path"] == "/v1/stream/a"
    assert known["headwater.request_id"] == "till-7"
    assert "secret" not in repr(known)
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.start_time <= span.end_time


async def test_a_request_without_a_trace_begins_one(traced: Traced) -> None:
    await traced.client.get("/healthz", headers={"traceparent": "nonsense"})
    (span,) = traced.spans("GET /healthz")
    assert span.parent is None


async def test_commits_are_spans(traced: Traced) -> None:
    await traced.client.put("/v1/stream/a", content=b"x")
    (commit,) = traced.spans("commit")
    assert dict(commit.attributes or {})["headwater.commit.requests"] == 1
    assert commit.status.status_code is StatusCode.UNSET


async def test_failures_are_marked(traced: Traced) -> None:
    await traced.client.put("/v1/stream/a", content=b"x")
    traced.engine.fail_next(Fault.BEFORE)
    answer = await traced.client.post("/v1/stream/a", content=b"x", headers=BYTES)
    assert answer.status_code == 503
    (span,) = traced.spans("POST /v1/stream/{path}")
    assert span.status.status_code is StatusCode.ERROR
    assert traced.spans("commit")[-1].status.status_code is StatusCode.ERROR


def test_nothing_is_loaded_when_it_is_off() -> None:
    """Nor is it needed: whoever does not trace need not install it."""
    loaded = "print([m for m in sys.modules if 'telemetry' in m])"
    script = f"import sys, headwater.cli.serving.server; {loaded}"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_without_the_packages_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "opentelemetry.py").write_text("raise ImportError(name='opentelemetry.sdk')")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import headwater.cli; "
        "sys.argv = ['headwater', 'serve', '--memory', '--otel']; headwater.cli.main()"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.returncode == 1
    assert "pip install 'headwater[otel]'" in ran.stderr
    assert "Traceback" not in ran.stderr
