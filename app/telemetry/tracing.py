"""OpenTelemetry: a span for each request, created after its answer.

An extra (`tidelog[otel]`), imported only if `tracing` is set. The standard `OTEL_…` variables
configure exporter and sampling; a thread of the exporter sends the spans.
"""

from __future__ import annotations

from importlib.util import find_spec
from time import time_ns
from typing import Any, Self

from app.telemetry.request_log import Finished
from engine.errors import InvalidConfig


class Tracing:
    """Creates spans of answered requests, as parts of the traces that clients name."""

    def __init__(self, provider: Any) -> None:  # noqa: ANN401  # an SDK's TracerProvider
        from opentelemetry.trace import SpanKind, StatusCode
        from opentelemetry.trace.propagation.tracecontext import (
            TraceContextTextMapPropagator,
        )

        self._provider = provider
        self._tracer = provider.get_tracer("tidelog")
        self._propagator = TraceContextTextMapPropagator()
        self._kind = SpanKind.SERVER
        self._error = StatusCode.ERROR

    @classmethod
    def from_environment(cls) -> Self:
        """Return what the `OTEL_…` variables ask for; raises InvalidConfig without the extra."""
        if find_spec("opentelemetry") is None:
            raise InvalidConfig(
                "tracing is on, but OpenTelemetry is not installed: install tidelog[otel]"
            )
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        provider = TracerProvider(resource=Resource.create({"service.name": "tidelog"}))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        return cls(provider)

    def record(self, finished: Finished) -> None:
        """Create the span of a request, named by its operation."""
        scope = finished.scope
        trace = finished.head.get(b"traceparent", b"").decode("latin-1")
        end_ns = time_ns()
        span = self._tracer.start_span(
            finished.operation,
            context=self._propagator.extract({"traceparent": trace}),
            kind=self._kind,
            start_time=end_ns - round(finished.seconds * 1e9),
            attributes={
                "http.request.method": scope["method"],
                "url.path": scope["path"],
                "http.response.status_code": finished.status,
                "http.response.body.size": finished.sent_bytes,
                "messaging.system": "tidelog",
            },
        )
        if finished.topic is not None:
            span.set_attribute("messaging.destination.name", finished.topic)
        if finished.partition is not None:
            span.set_attribute("messaging.destination.partition.id", finished.partition)
        if finished.status >= 500:
            span.set_status(self._error)
        span.end(end_ns)

    def close(self) -> None:
        """Send the remaining spans; blocks, at most for the exporter's timeout."""
        self._provider.shutdown()
