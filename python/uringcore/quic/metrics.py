"""QUIC's counters as OpenMetrics text, for Prometheus and the like to fetch.

Here: names, types and the text format (OpenMetrics 1.0). Not here: an HTTP server, and counting,
which the core does::

    text = openmetrics({"public": server.transport}, {"upstream": client})
    return Response(text, media_type=CONTENT_TYPE)

Each family is written once, with a sample for each source, so call it once a scrape with all sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

__all__ = ["CONTENT_TYPE", "openmetrics"]

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class _Source(Protocol):
    def stats(self) -> Any: ...


def openmetrics(
    endpoints: Mapping[str, _Source] | None = None,
    connections: Mapping[str, _Source] | None = None,
    *,
    prefix: str = "uringcore_quic",
) -> str:
    """The counters of endpoints and connections as OpenMetrics text, ``# EOF`` included.

    ``endpoints`` are transports or servers (whatever has their ``stats()``) by the name that
    becomes the label ``endpoint``; ``connections`` are protocols or ``QuicConnection`` objects by
    the label ``connection``. Connections are for the few that a program knows by name: a label for
    each of a public server's would never stop growing.

    Raises ``ValueError`` for a ``prefix`` that is no metric name.
    """
    if not prefix or not _is_name(prefix):
        raise ValueError(f"prefix: {prefix!r} is not a metric name")
    lines: list[str] = []
    for families, sources, label, scope in (
        (_ENDPOINT, endpoints, "endpoint", "endpoint"),
        (_CONNECTION, connections, "connection", "connection"),
    ):
        taken = {name: source.stats() for name, source in (sources or {}).items()}
        for family in families:
            lines += _family(f"{prefix}_{scope}", family, label, taken)
    return "".join(f"{line}\n" for line in (*lines, "# EOF"))


# A family: its name, unit ("" for none), type, help, and its sources: `(key of stats, labels)`.
_Family = tuple[str, str, str, str, list[tuple[str, dict[str, str]]]]


def _family(scope: str, family: _Family, label: str, taken: dict[str, Any]) -> list[str]:
    short, unit, kind, text, keys = family
    name = f"{scope}_{short}_{unit}" if unit else f"{scope}_{short}"
    suffix = "_total" if kind == "counter" else ""
    samples = [
        f"{name}{suffix}{_labels({label: source, **extra})} {_number(stats[key])}"
        for source, stats in taken.items()
        for key, extra in keys
        if stats.get(key) is not None
    ]
    if not samples:
        return []
    head = [f"# TYPE {name} {kind}"]
    if unit:
        head.append(f"# UNIT {name} {unit}")
    return [*head, f"# HELP {name} {_escaped(text)}", *samples]


def _labels(labels: dict[str, str]) -> str:
    inner = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inner}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))


def _is_name(text: str) -> bool:
    first, rest = text[0], text[1:]
    plain = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_:")
    return first in plain and all(c in plain or c in "0123456789" for c in rest)


def _one(key: str) -> list[tuple[str, dict[str, str]]]:
    return [(key, {})]


def _ways(sent: str, received: str) -> list[tuple[str, dict[str, str]]]:
    return [(sent, {"direction": "sent"}), (received, {"direction": "received"})]


_ENDPOINT: list[_Family] = [
    ("connections", "", "gauge", "Connections that are not yet forgotten.", _one("connections")),
    (
        "connections_begun",
        "",
        "counter",
        "Connections opened and accepted.",
        [
            ("connections_opened", {"side": "client"}),
            ("connections_accepted", {"side": "server"}),
        ],
    ),
    ("connections_closed", "", "counter", "Connections that ended.", _one("connections_closed")),
    (
        "incoming_turned_away",
        "",
        "counter",
        "First packets that did not become a connection at once.",
        [
            ("incoming_refused", {"how": "refused"}),
            ("incoming_retried", {"how": "retry"}),
            ("incoming_ignored", {"how": "ignored"}),
        ],
    ),
    (
        "datagrams",
        "",
        "counter",
        "UDP datagrams.",
        _ways("datagrams_sent", "datagrams_received"),
    ),
    ("payload", "bytes", "counter", "UDP payload.", _ways("bytes_sent", "bytes_received")),
    (
        "responses_dropped",
        "",
        "counter",
        "Stateless answers that were dropped because too many waited.",
        _one("responses_dropped"),
    ),
    (
        "socket_errors",
        "",
        "counter",
        "Errors of sends and receives.",
        _ways("socket_send_errors", "socket_receive_errors"),
    ),
]

_CONNECTION: list[_Family] = [
    ("rtt", "seconds", "gauge", "Smoothed round-trip time.", _one("rtt")),
    ("latest_rtt", "seconds", "gauge", "Newest round-trip time.", _one("latest_rtt")),
    ("min_rtt", "seconds", "gauge", "Smallest round-trip time.", _one("min_rtt")),
    ("rtt_variance", "seconds", "gauge", "Variation of round-trip times.", _one("rtt_variance")),
    (
        "congestion_window",
        "bytes",
        "gauge",
        "What may be in flight.",
        _one("congestion_window"),
    ),
    ("in_flight", "bytes", "gauge", "What is in flight.", _one("bytes_in_flight")),
    ("congestion_events", "", "counter", "Cuts of the window.", _one("congestion_events")),
    ("packets_sent", "", "counter", "Packets sent.", _one("packets_sent")),
    ("packets_lost", "", "counter", "Packets found lost.", _one("packets_lost")),
    ("lost", "bytes", "counter", "Bytes of lost packets.", _one("bytes_lost")),
    (
        "datagrams",
        "",
        "counter",
        "UDP datagrams.",
        _ways("datagrams_sent", "datagrams_received"),
    ),
    ("payload", "bytes", "counter", "UDP payload.", _ways("bytes_sent", "bytes_received")),
    ("path_mtu", "bytes", "gauge", "UDP payload of the largest packet.", _one("path_mtu")),
    (
        "ecn_datagrams",
        "",
        "counter",
        "Datagrams with ECN marks.",
        [
            ("ect0_sent", {"direction": "sent", "mark": "ect0"}),
            ("ect0_received", {"direction": "received", "mark": "ect0"}),
            ("ect1_received", {"direction": "received", "mark": "ect1"}),
            ("ce_received", {"direction": "received", "mark": "ce"}),
        ],
    ),
    (
        "datagram_frames",
        "",
        "counter",
        "DATAGRAM frames.",
        _ways("datagram_frames_sent", "datagram_frames_received"),
    ),
    (
        "datagram_frames_dropped",
        "",
        "counter",
        "DATAGRAM frames that were queued and never sent.",
        _one("datagram_frames_dropped"),
    ),
    ("streams", "", "gauge", "Streams that are not over.", _one("streams_open")),
    ("send_queue", "bytes", "gauge", "What waits on streams.", _one("send_queue_bytes")),
    ("key_updates", "", "counter", "Changes of packet keys.", _one("key_updates")),
]
