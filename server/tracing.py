"""OpenTelemetry for whoever asks for it. Imported only then."""

import os
import threading
from importlib.metadata import entry_points

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Tracer

FLUSH_SECONDS = 2.0
"""How long the daemon's end waits for the last spans: a collector that is gone must not hold it up."""

EXPORTERS = "opentelemetry_traces_exporter"
"""The entry points by which OpenTelemetry's packages name their exporters."""


class TracingError(RuntimeError):
    """Spans cannot be exported; the message says what to install."""


class Tracing:
    """A tracer whose spans are exported in the background, as OpenTelemetry's environment variables say."""

    def __init__(self) -> None:
        """Raises TracingError where the exporter is not installed."""
        resource = Resource({"service.name": "radixd"}).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(_exporter()))
        self.tracer: Tracer = self._provider.get_tracer("radixd")

    def close(self) -> None:
        """Export what there is, as far as that is quick."""
        flushing = threading.Thread(target=self._provider.shutdown, name="radixd-spans", daemon=True)
        flushing.start()
        flushing.join(FLUSH_SECONDS)


def _exporter() -> SpanExporter:
    name = os.environ.get("OTEL_TRACES_EXPORTER", "otlp")
    for entry in entry_points(group=EXPORTERS, name=name):
        exporter: SpanExporter = entry.load()()
        return exporter
    known = ", ".join(sorted({entry.name for entry in entry_points(group=EXPORTERS)}))
    raise TracingError(
        f"OTEL_TRACES_EXPORTER: no exporter {name[:64]!r} is installed, there are: {known}; "
        "pip install opentelemetry-exporter-otlp, or choose another"
    )
