"""An application behind OpenTelemetry's published ASGI middleware; it returns its own spans."""

import json

from opentelemetry import trace
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

EXPORTER = InMemorySpanExporter()
PROVIDER = TracerProvider()
PROVIDER.add_span_processor(SimpleSpanProcessor(EXPORTER))


async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    path = scope["path"]
    current = trace.get_current_span().get_span_context()
    if path == "/raises":
        raise RuntimeError("the application's own fault")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for part in (b"trace ", f"{current.trace_id:032x}".encode()):
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body"})


INSTRUMENTED = OpenTelemetryMiddleware(application, tracer_provider=PROVIDER)


async def app(scope, receive, send):
    if scope["type"] == "http" and scope["path"] == "/-/spans":
        body = json.dumps([told(span) for span in EXPORTER.get_finished_spans()]).encode()
        EXPORTER.clear()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})
    else:
        await INSTRUMENTED(scope, receive, send)


def told(span):
    return {
        "name": span.name,
        "kind": span.kind.name,
        "trace": f"{span.context.trace_id:032x}",
        "status": span.status.status_code.name,
        "attributes": {key: str(value) for key, value in span.attributes.items()},
    }
