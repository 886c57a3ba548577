"""``EndpointConfig``: the settings that clients and servers have in common.

They are converted to a :class:`~uringcore.quic.configuration.QuicConfiguration`, which has aioquic's names
and checks them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, TextIO

from uringcore.quic._configuration_fields import SMALLEST_MAX_DATAGRAM_SIZE
from uringcore.quic._errors import QuicConfigurationError
from uringcore.quic._typed_api.certificates import PemSource
from uringcore.quic._typed_api.field_type_checks import check_types
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.limits import RetryPolicy
from uringcore.quic.logger import QuicLogger
from uringcore.quic.packet import QuicProtocolVersion
from uringcore.tls import CipherSuite, Group

__all__ = ["EndpointConfig", "set_authorities"]

_MEBIBYTE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class EndpointConfig:
    """The settings that clients and servers have in common."""

    alpn: Sequence[str] = ()
    """Application protocols to offer or accept, the preferred one first (RFC 7301)."""

    versions: Sequence[int] = (QuicProtocolVersion.VERSION_1, QuicProtocolVersion.VERSION_2)
    """Versions of QUIC, the preferred one first: version 1 (RFC 9000) or 2 (RFC 9369), or both. Other numbers
    are offered and never chosen. :attr:`Connection.version` is the negotiated version. A client's first
    packets offer all of them, and the server continues with the first one that it supports, without another
    round trip (RFC 9368). A server that does not support the version of the first packets answers with those
    that it supports (Version Negotiation). A server's order has no effect."""

    cipher_suites: Sequence[CipherSuite] | None = None
    """The allowed TLS 1.3 cipher suites, the preferred one first. The server's order decides. ``None`` allows
    all, AES-128-GCM first."""

    groups: Sequence[Group] | None = None
    """The allowed groups for the key exchange (RFC 8446 section 4.2.7), the preferred one first. ``None``
    allows X25519, P-256 and P-384, and on a server X25519MLKEM768 for clients that prefer it. A client sends
    a key share of the first group only; if the server does not support that group, the handshake takes a
    further round trip. X25519MLKEM768 makes the first flight of both sides a datagram longer."""

    idle_timeout: float = 60.0
    """Seconds without a packet from the peer after which the connection ends."""

    keep_alive: float | None = None
    """Seconds without a packet after which this side sends a PING, which keeps the connection open; ``None``
    sends none."""

    max_streams: int = 100
    """Bidirectional streams that the peer may have open at a time. If there are more than 114, the handshake
    announces 100, and the others are announced when the peer has more than 50 open."""

    max_uni_streams: int = 100
    """Unidirectional streams that the peer may have open at a time. If there are more than 13, the handshake
    announces 12, and the others are announced when the peer has more than 6 open."""

    receive_window: int = _MEBIBYTE
    """Bytes of one stream that may wait to be read. The peer gets credit for bytes that were read."""

    connection_receive_window: int = 4 * _MEBIBYTE
    """Bytes of all streams together that may wait to be read."""

    send_buffer: int = _MEBIBYTE
    """``send`` waits if this many bytes are queued on a stream, and continues when a quarter of them is
    left."""

    datagrams: bool = True
    """True if the peer may send datagrams (RFC 9221)."""

    datagram_buffer: int = _MEBIBYTE
    """Bytes of received datagrams that may wait for the program."""

    datagram_overflow: Literal["oldest", "newest"] = "oldest"
    """The datagrams that are dropped when more arrive: the oldest of those that wait, or the new ones."""

    congestion: Literal["reno", "cubic", "bbr"] = "reno"
    """The congestion controller."""

    initial_rtt: float = 0.1
    """The assumed round-trip time in seconds before the first measurement (RFC 9002 section 6.2.2)."""

    initial_mtu: int = SMALLEST_MAX_DATAGRAM_SIZE
    """The size of the first UDP payloads in bytes, at least 1,200 (RFC 9000 section 14)."""

    mtu_discovery: bool = True
    """True if larger packets are probed (RFC 8899)."""

    connection_id_length: int = 8
    """The length of the connection IDs that this side issues: 4 to 20 bytes."""

    key_update_packets: int | None = None
    """The number of packets after which the packet keys change (RFC 9001 section 6). With ``None`` they
    change once within the first thousand packets, and then near the cipher's limit."""

    ack_packets_max: int | None = None
    """The number of packets that the peer may receive without sending an ACK, if it supports such requests
    (draft-ietf-quic-ack-frequency); ``None`` requests nothing."""

    ack_delay_max: float | None = None
    """With ``ack_packets_max``: the longest delay of the peer's ACKs in seconds; ``None`` leaves it to the
    peer."""

    ack_reordering: int | None = None
    """With ``ack_packets_max``: the number of packets out of order after which the peer sends an ACK at once.
    0 means that packets out of order cause no ACK; ``None`` means 2."""

    close_timeout: float = 5.0
    """Seconds that the end of a connection's ``async with`` waits at most until the peer has acknowledged
    the streams that were finished."""

    key_log: TextIO | None = None
    """A text file to which TLS secrets are appended in NSS key log format, for Wireshark."""

    qlog: QuicLogger | None = None
    """The writer of qlog traces, which contain all packets; ``None`` writes none."""

    # The fields that have another name in QuicConfiguration.
    _names: ClassVar[dict[str, str]] = {
        "alpn_protocols": "alpn",
        "cadata": "authorities",
        "cafile": "authorities",
        "capath": "authorities",
        "certificate_chain": "certificate",
        "congestion_control_algorithm": "congestion",
        "max_data": "connection_receive_window",
        "max_datagram_size": "initial_mtu",
        "max_stream_data": "receive_window",
        "max_streams_bidi": "max_streams",
        "max_streams_uni": "max_uni_streams",
        "original_version": "first_version",
        "private_key": "certificate",
        "quic_logger": "qlog",
        "secrets_log_file": "key_log",
        "send_buffer_high": "send_buffer",
        "send_buffer_low": "send_buffer",
        "supported_versions": "versions",
        "token": "address_token",
    }

    def __post_init__(self) -> None:
        check_types(self)
        if not self.send_buffer > 0:
            raise QuicConfigurationError("send_buffer", f"must be above 0, not {self.send_buffer}")
        if not 0 < self.datagram_buffer < 1 << 40:
            raise QuicConfigurationError(
                "datagram_buffer", f"must be above 0, not {self.datagram_buffer}"
            )
        if self.datagram_overflow not in ("oldest", "newest"):
            raise QuicConfigurationError(
                "datagram_overflow", f"must be oldest or newest, not {self.datagram_overflow!r}"
            )
        if not self.close_timeout >= 0:
            raise QuicConfigurationError(
                "close_timeout", f"must be 0 or more, not {self.close_timeout}"
            )
        for name in ("ack_delay_max", "ack_reordering"):
            if self.ack_packets_max is None and getattr(self, name) is not None:
                raise QuicConfigurationError(name, "needs ack_packets_max")
        try:
            made = self._make()
            made.setup(retry=self._retry())
        except QuicConfigurationError as error:
            name = self._names.get(error.field, error.field)
            if name == error.field:
                raise
            raise QuicConfigurationError(name, error.message) from None
        object.__setattr__(self, "_made", made)

    @property
    def _configuration(self) -> QuicConfiguration:
        made: QuicConfiguration = vars(self)["_made"]
        return made

    def _retry(self) -> RetryPolicy:
        """The policy for Retry packets. Only a server's configuration uses it."""
        return "auto"

    def _make(self) -> QuicConfiguration:
        raise TypeError("make a ClientConfig or a ServerConfig")

    def _fill(self, configuration: QuicConfiguration) -> None:
        configuration.ack_delay_max = self.ack_delay_max
        configuration.ack_packets_max = self.ack_packets_max
        if self.ack_reordering is not None:
            configuration.ack_reordering = self.ack_reordering
        configuration.alpn_protocols = list(self.alpn)
        if self.cipher_suites is not None:
            configuration.cipher_suites = list(self.cipher_suites)
        configuration.congestion_control_algorithm = self.congestion
        configuration.connection_id_length = self.connection_id_length
        if self.groups is not None:
            configuration.groups = list(self.groups)
        configuration.idle_timeout = self.idle_timeout
        configuration.initial_rtt = self.initial_rtt
        configuration.keep_alive = self.keep_alive
        configuration.key_update_packets = self.key_update_packets
        configuration.max_data = self.connection_receive_window
        configuration.max_datagram_frame_size = 65536 if self.datagrams else None
        configuration.max_datagram_size = self.initial_mtu
        configuration.max_stream_data = self.receive_window
        configuration.max_streams_bidi = self.max_streams
        configuration.max_streams_uni = self.max_uni_streams
        configuration.mtu_discovery = self.mtu_discovery
        configuration.quic_logger = self.qlog
        configuration.secrets_log_file = self.key_log
        configuration.send_buffer_high = self.send_buffer
        configuration.send_buffer_low = max(1, self.send_buffer // 4)
        configuration.supported_versions = list(self.versions)


def set_authorities(configuration: QuicConfiguration, source: PemSource | None) -> None:
    """Makes the configuration trust these authorities: a PEM file, a directory of PEM files, or PEM bytes."""
    if source is None:
        return
    if isinstance(source, bytes):
        configuration.load_verify_locations(cadata=source)
    elif Path(source).is_dir():
        configuration.load_verify_locations(capath=os.fspath(source))
    else:
        configuration.load_verify_locations(cafile=os.fspath(source))
