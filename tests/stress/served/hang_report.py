"""Describes a process in which a request hangs: the stacks of its tasks, and its TCP connections."""

from __future__ import annotations

import asyncio
import gc
import io
from typing import Any

from uringcore._uringcore import SSLTransport, StreamTransport


def state() -> str:
    """Describes the running loop and its process."""
    found = []
    for task in asyncio.all_tasks():
        text = io.StringIO()
        task.print_stack(limit=5, file=text)
        found.append(text.getvalue().rstrip())
    found += [transport(one) for one in gc.get_objects() if type(one) in KINDS]
    return "\n".join(found)


KINDS = (SSLTransport, StreamTransport)


def transport(one: Any) -> str:
    """Describes its flow control, its protocol, and its open HTTP/1.1 request."""
    protocol = one.get_protocol()
    shown = [repr(one), repr(protocol), f"unsent {one.get_write_buffer_size()}"]
    shown += [name for name in ("is_closing", "is_reading") if getattr(one, name)()]
    if isinstance(one, SSLTransport):
        shown.append(f"unread {one.get_read_buffer_size()}")
    flow = getattr(protocol, "flow", None)
    if flow is not None:
        shown += [name for name in ("read_paused", "write_paused") if getattr(flow, name)]
    cycle = getattr(protocol, "cycle", None)
    if cycle is not None:
        shown.append(cycle.scope["path"])
        shown += [
            name
            for name in ("response_started", "response_complete", "keep_alive", "disconnected")
            if getattr(cycle, name)
        ]
    return ", ".join(shown)
