"""An application with a request hook made of OpenTelemetry's SDK, as the docstring of `_request_hook.py`
has it."""

import ast
import inspect
import json
import re

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from uringcore.server import _request_hook

EXPORTER = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
trace.set_tracer_provider(provider)

source = ast.get_docstring(ast.parse(inspect.getsource(_request_hook)))
(example,) = re.findall(r"library.*?::\n\n(.*?)\n\n?Both", source, re.DOTALL)
names = {}
exec(inspect.cleandoc(example), names)
hook = names["hook"]


class BrokenHook:
    def request_started(self, scope, attributes):
        raise RuntimeError("the hook is broken")

    def request_ended(self, started, attributes, error):
        raise AssertionError("not called")


broken = BrokenHook()


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        raise RuntimeError("no lifespan")
    current = trace.get_current_span().get_span_context()
    if scope["path"] == "/spans":
        body = json.dumps([described(span) for span in EXPORTER.get_finished_spans()])
    elif scope["path"] == "/fails":
        raise ValueError("failed")
    else:
        body = json.dumps({"trace_id": f"{current.trace_id:032x}"})
    status = 503 if scope["path"] == "/busy" else 200
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": body.encode()})


def described(span):
    return {
        "name": span.name,
        "kind": span.kind.name,
        "trace_id": f"{span.context.trace_id:032x}",
        "parent": None if span.parent is None else f"{span.parent.span_id:016x}",
        "status": span.status.status_code.name,
        "attributes": dict(span.attributes),
    }
