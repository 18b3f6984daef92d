"""Traces with OpenTelemetry, optional (`pip install 'headwater[otel]'`).

A span is created once a request has been answered, with the times it took. So a request costs
nothing extra while it is in progress, and nothing at all if tracing is off: the packages are not
even loaded. A request with a `traceparent` continues that trace. Every commit is a separate span,
because one commit answers requests of many traces.

OpenTelemetry's own variables, such as OTEL_EXPORTER_OTLP_ENDPOINT, say where spans go.
"""

from __future__ import annotations

import threading
from time import time_ns
from typing import TYPE_CHECKING, Final

from headwater import __version__
from headwater.http.messages import Request
from headwater.http.observe.traffic import facts
from headwater.service.batches import Commit

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


_STOP_S: Final = 3.0


class TracingUnavailable(Exception):
    """The packages that tracing needs are not installed."""


def open_tracing() -> Tracing:
    """Tracing, configured by OpenTelemetry's variables."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise TracingUnavailable(
            f"tracing needs packages that are not installed ({error.name}); "
            "pip install 'headwater[otel]'"
        ) from None
    resource = Resource({SERVICE_NAME: "headwater"}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider)


class Tracing:
    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("headwater", __version__)
        self._propagator = TraceContextTextMapPropagator()
        self._server_kind = SpanKind.SERVER
        self._failed = Status(StatusCode.ERROR)

    def watch(self, request: Request, status: int, took_s: float) -> None:
        """For `Traffic.watchers`."""
        ended_ns = time_ns()
        known = facts(request, status, took_s)
        span = self._tracer.start_span(
            f"{request.method} {request.route}",
            context=self._propagator.extract(_trace_headers(request)),
            kind=self._server_kind,
            attributes={
                "http.request.method": request.method,
                "http.route": request.route,
                "url.path": str(known["path"]),
                "http.response.status_code": status,
                "http.request.body.size": len(request.body),
                "headwater.request_id": request.id,
            },
            start_time=ended_ns - int(took_s * 1e9),
        )
        if status >= 500:
            span.set_status(self._failed)
        span.end(ended_ns)

    def committed(self, commit: Commit) -> None:
        """For `Writer.on_commit`."""
        ended_ns = time_ns()
        span = self._tracer.start_span(
            "commit",
            attributes={
                "headwater.commit.requests": commit.requests,
                "headwater.commit.bytes": commit.size_bytes,
            },
            start_time=ended_ns - int(commit.took_s * 1e9),
        )
        if commit.failed:
            span.set_status(self._failed)
        span.end(ended_ns)

    def stop(self) -> None:
        """Send what is left, but do not wait long for a collector that may be gone."""
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(_STOP_S)


def _trace_headers(request: Request) -> dict[str, str]:
    names = (b"traceparent", b"tracestate")
    found = {name: request.headers.get(name) for name in names}
    return {name.decode(): value.decode("latin-1") for name, value in found.items() if value}
