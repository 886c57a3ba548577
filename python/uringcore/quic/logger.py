"""qlog traces (draft-ietf-quic-qlog-main-schema-02, qlog 0.3), in the form that aioquic writes.

qvis (https://qvis.quictools.info) reads them, for its sequence, congestion, multiplexing and packetization
diagrams. A trace has, under aioquic's names,

- ``transport:``: every packet sent and received with its frames, dropped packets with the reason, datagrams,
  both sides' transport parameters, versions and application protocols;
- ``recovery:``: lost packets with the rule that found them, and every change of the congestion
  window, the bytes in flight, ``ssthresh`` and the round-trip times;
- ``security:``: new and discarded keys with the cause, never the keys themselves;
- ``connectivity:``: the end and its cause, the spin bit;
- ``http:``: HTTP/3 frames and stream types, of an ``H3Connection`` over such a connection.

Beyond aioquic: ``recovery:congestion_state_updated`` (but with BBR, which has no such states),
``connectivity:connection_started``, ``connection_id_updated``, ``mtu_updated`` and
``migration_state_updated``, and in ``recovery:packet_lost`` the ``header`` and ``raw`` that qvis needs.
Missing: ``cubic-wmax`` of aioquic's metrics, which quinn-proto does not expose; and ``frames``, an empty list
in aioquic, of Retry and Version Negotiation packets, because qvis fails on it. Packets without a connection
appear only in the trace of a client that is alone on its socket; a server counts them in ``loop.stats()``.

Rust describes packets at their keys. A connection without a logger costs one branch a packet. There are three
loggers:

- :class:`QuicLogger` keeps all traces in memory, as in aioquic; for tests and single connections.
- :class:`QuicFileLogger` keeps a trace until its connection ends and then writes it to a ``.qlog`` file
  that is named after the connection's ID, as in aioquic, on the loop's thread.
- :class:`QuicSequenceLogger` writes events to a ``.sqlog`` file as they happen, on a separate thread and
  within bounds; for servers, long connections, and connections with an untrusted peer.

A trace in memory keeps its first 1,024 events, which show the beginning of the connection, and the newest of
65,536 altogether, or fewer if they take more than 32 MiB. Events in between are dropped, and counted by a
``loglevel:warning``.
"""

from uringcore.quic._aioquic_qlog import (
    PACKET_TYPE_NAMES,
    QLOG_VERSION,
    Headers,
    QuicFileLogger,
    QuicLogger,
    QuicLoggerTrace,
    hexdump,
)
from uringcore.quic._qlog_files import QuicSequenceLogger, TraceLimits

__all__ = [
    "PACKET_TYPE_NAMES",
    "QLOG_VERSION",
    "Headers",
    "QuicFileLogger",
    "QuicLogger",
    "QuicLoggerTrace",
    "QuicSequenceLogger",
    "TraceLimits",
    "hexdump",
]
