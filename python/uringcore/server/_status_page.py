"""The page of ``--status-page``, and the numbers that it fetches each second.

The page is ``status_page.html`` beside this file, with its style and its script in it. It loads nothing
from elsewhere, and its Content-Security-Policy makes browsers enforce that.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from uringcore.server._stats_snapshot import Report

__all__ = ["DATA_QUERY", "data", "page"]

DATA_QUERY = b"data"
"""The query of a request for the numbers."""

CLIENTS_SHOWN = 50

Answer = tuple[bytes, list[tuple[bytes, bytes]]]


@functools.cache
def page() -> Answer:
    """Returns the page and its header fields."""
    text = (Path(__file__).parent / "status_page.html").read_text(encoding="utf-8")
    policy = "; ".join(
        [
            "default-src 'none'",
            f"style-src '{hash_of('style', text)}'",
            f"script-src '{hash_of('script', text)}'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )
    return text.encode(), [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", policy.encode()),
        (b"referrer-policy", b"no-referrer"),
        (b"x-content-type-options", b"nosniff"),
    ]


def hash_of(element: str, text: str) -> str:
    """Returns the hash of an element's content for Content-Security-Policy (CSP level 3, section 2.3.1)."""
    content = re.search(f"<{element}>(.*?)</{element}>", text, re.DOTALL)
    assert content is not None
    digest = hashlib.sha256(content.group(1).encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def data(reports: Sequence[Report]) -> Answer:
    """Returns the numbers of all processes together as JSON: sums, and maxima of values without a sum."""
    requests: Counter[str] = Counter()
    numbers: dict[str, Any] = dict.fromkeys(ADDED, 0)
    errors = 0
    for report in reports:
        for (version, _, status), count in report.counts.requests.items():
            requests[version] += count
            errors += count if status >= "5" else 0
        for name, value in ADDED.items():
            numbers[name] += value(report)
    quantiles = {name for report in reports for name in report.rtt}
    clients = [client for report in reports for client in report.clients]
    numbers |= {
        "processes": sorted(report.pid for report in reports),
        "time": reports[0].time,
        "requests": dict(requests),
        "errors": errors,
        "rtt": {name: max(one.rtt.get(name, 0.0) for one in reports) for name in quantiles},
        "lag": max(report.counts.lag_now for report in reports),
        "clients": sorted(clients, key=lambda client: -client["requests"])[:CLIENTS_SHOWN],
    }
    return json.dumps(numbers).encode(), [(b"content-type", b"application/json")]


ADDED: dict[str, Callable[[Report], float]] = {
    "requests_open": lambda report: sum(report.counts.requests_open.values()),
    "websockets_open": lambda report: report.counts.websockets_open,
    "connections_tcp": lambda report: report.connections_tcp,
    "connections_quic": lambda report: report.connections_quic,
    "packets_sent": lambda report: report.packets_sent,
    "packets_lost": lambda report: report.packets_lost,
    "bytes_sent": lambda report: report.endpoint.get("bytes_sent", 0),
    "bytes_received": lambda report: report.endpoint.get("bytes_received", 0),
    "held": lambda report: report.endpoint.get("held_bytes", 0),
    "budget": lambda report: report.memory_budget,
    "shed": lambda report: (
        report.endpoint.get("streams_shed", 0) + report.endpoint.get("connections_shed", 0)
    ),
    "memory": lambda report: report.process["resident_memory_bytes"],
    "cpu": lambda report: report.process["cpu_seconds"],
}
