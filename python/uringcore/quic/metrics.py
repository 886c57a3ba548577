"""QUIC's counters as OpenMetrics text, for Prometheus and compatible scrapers.

Here: names, types and helps of QUIC's metrics. Not here: the text format
(:mod:`uringcore.quic._openmetrics_text`), an HTTP server, and the counters, which are in Rust::

    text = openmetrics({"public": server.transport}, {"upstream": client})
    return Response(text, media_type=CONTENT_TYPE)

The text has each family once, with a sample for each source: call it once a scrape with all sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from uringcore.quic._openmetrics_text import CONTENT_TYPE, Family, exposition, is_name

__all__ = ["CONTENT_TYPE", "endpoint_families", "openmetrics"]


class _Source(Protocol):
    def stats(self) -> Any: ...


def openmetrics(
    endpoints: Mapping[str, _Source] | None = None,
    connections: Mapping[str, _Source] | None = None,
    *,
    prefix: str = "uringcore_quic",
) -> str:
    """The counters of endpoints and connections as OpenMetrics text, ``# EOF`` included.

    ``endpoints`` maps values of the label ``endpoint`` to transports, servers or listeners (objects with
    ``stats()``); ``connections`` maps values of the label ``connection`` to protocols, typed connections or
    ``QuicConnection`` objects. Use ``connections`` for a few named ones: a label for each connection of a
    public server would grow without bound.

    Raises ``ValueError`` for a ``prefix`` that is not a metric name.
    """
    if not is_name(prefix):
        raise ValueError(f"prefix: {prefix!r} is not a metric name")
    families = [*endpoint_families(_taken("endpoint", endpoints), prefix=prefix)]
    families += _families(f"{prefix}_connection", _CONNECTION, _taken("connection", connections))
    return exposition(families)


# The labels and the counters of each source.
_Taken = list[tuple[dict[str, str], Any]]


def endpoint_families(taken: _Taken, *, prefix: str = "uringcore_quic") -> Iterator[Family]:
    """The families of endpoints; ``taken`` has pairs of labels and ``stats()``."""
    return _families(f"{prefix}_endpoint", _ENDPOINT, taken)


def _taken(label: str, sources: Mapping[str, _Source] | None) -> _Taken:
    return [({label: name}, source.stats()) for name, source in (sources or {}).items()]


# A group of metrics: its name, its unit ("" if it has none), its type and its help text; and for each sample
# the key of `stats()` and the labels.
_Family = tuple[str, str, str, str, list[tuple[str, dict[str, str]]]]


def _families(scope: str, families: list[_Family], taken: _Taken) -> Iterator[Family]:
    for name, unit, kind, text, keys in families:
        family = Family(f"{scope}_{name}", kind, text, unit=unit)
        for labels, stats in taken:
            for key, extra in keys:
                if stats.get(key) is not None:
                    family.add(stats[key], {**labels, **extra})
        yield family


def _one(key: str) -> list[tuple[str, dict[str, str]]]:
    return [(key, {})]


def _by_direction(sent: str, received: str) -> list[tuple[str, dict[str, str]]]:
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
        _by_direction("datagrams_sent", "datagrams_received"),
    ),
    ("payload", "bytes", "counter", "UDP payload.", _by_direction("bytes_sent", "bytes_received")),
    (
        "responses_dropped",
        "",
        "counter",
        "Stateless answers that were dropped because too many waited.",
        _one("responses_dropped"),
    ),
    (
        "moves_dropped",
        "",
        "counter",
        "Packets dropped because their connection changed addresses more often than a client may.",
        _one("moves_dropped"),
    ),
    ("held", "bytes", "gauge", "What clients make the server hold.", _one("held_bytes")),
    (
        "credit_withheld",
        "",
        "counter",
        "How often a connection's credit was cut: its address held more than its share.",
        _one("credit_withheld"),
    ),
    (
        "shed",
        "",
        "counter",
        "Streams and connections given up because clients held more than the budget.",
        [("streams_shed", {"kind": "stream"}), ("connections_shed", {"kind": "connection"})],
    ),
    (
        "socket_errors",
        "",
        "counter",
        "Errors of sends and receives.",
        _by_direction("socket_send_errors", "socket_receive_errors"),
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
        _by_direction("datagrams_sent", "datagrams_received"),
    ),
    ("payload", "bytes", "counter", "UDP payload.", _by_direction("bytes_sent", "bytes_received")),
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
        _by_direction("datagram_frames_sent", "datagram_frames_received"),
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
