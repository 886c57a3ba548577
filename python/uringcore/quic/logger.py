"""qlog traces (draft-ietf-quic-qlog-main-schema-02, qlog 0.3), in the form that aioquic writes.

qvis (https://qvis.quictools.info) opens them: its sequence, congestion, multiplexing and
packetization diagrams find what they need. A trace has, under aioquic's names,

- ``transport:``: every packet sent and received with its frames, those dropped and why, datagrams,
  both sides' transport parameters, versions and application protocols;
- ``recovery:``: which packets were lost and by which rule, and every change of the congestion
  window, the bytes in flight, ``ssthresh`` and the round-trip times;
- ``security:``: keys as they come and go, with what caused it, never the keys themselves;
- ``connectivity:``: the end and its cause, the spin bit;
- ``http:``: HTTP/3 frames and stream types, of an ``H3Connection`` over such a connection.

Beyond aioquic: ``recovery:congestion_state_updated`` (but with BBR, which has no such states),
``connectivity:connection_started``, ``connection_id_updated``, ``mtu_updated`` and
``migration_state_updated``, and in ``recovery:packet_lost`` the ``header`` and ``raw`` that qvis
looks for. Missing: ``cubic-wmax`` of aioquic's metrics, which the state machine keeps to itself; and
``frames``, an empty list in aioquic, of Retry and Version Negotiation packets, over which qvis
falls. Packets for no connection at all are in no trace but that of a client that is alone on its
socket; a server counts them in ``loop.stats()``.

Packets are put into words in Rust where their keys are. A connection without a logger pays one branch a
packet. There are three loggers:

- :class:`QuicLogger` keeps all traces in memory, as in aioquic; for tests and single connections.
- :class:`QuicFileLogger` keeps a trace until its connection ends and then writes it to a ``.qlog`` file
  with the connection's id as its name, as in aioquic, on the thread of the loop.
- :class:`QuicSequenceLogger` writes events as they happen to a
  ``.sqlog`` file, from a thread of its own and within bounds; for servers, for long connections and for
  connections whose peer is not trusted.

A trace in memory is bounded: it keeps its first 1,024 events, which show how the connection began, and the
newest of 65,536 altogether, or fewer if they take more than 32 MiB; what is dropped is out of the middle,
where a ``loglevel:warning`` says how much.
"""

from uringcore.quic._memory_logger import (
    PACKET_TYPE_NAMES,
    QLOG_VERSION,
    Headers,
    QuicFileLogger,
    QuicLogger,
    QuicLoggerTrace,
    hexdump,
)
from uringcore.quic._sequence_logger import QuicSequenceLogger, TraceLimits

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
