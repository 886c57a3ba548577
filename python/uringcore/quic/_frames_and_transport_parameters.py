"""Records of frames and parameters, for loggers and for programs that handle packets themselves.

Names and fields follow aioquic's ``quic.packet``. Parsing is in Rust.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "QuicPreferredAddress",
    "QuicStreamFrame",
    "QuicTransportParameters",
    "QuicVersionInformation",
]


@dataclass
class QuicStreamFrame:
    """A STREAM or CRYPTO frame (RFC 9000 sections 19.6 and 19.8); ``offset`` in bytes."""

    data: bytes = b""
    fin: bool = False
    offset: int = 0


@dataclass
class QuicPreferredAddress:
    """A server's preferred address (RFC 9000 section 9.6)."""

    ipv4_address: tuple[str, int] | None
    ipv6_address: tuple[str, int] | None
    connection_id: bytes
    stateless_reset_token: bytes


@dataclass
class QuicVersionInformation:
    """The chosen and the available versions of one side (RFC 9368 section 3)."""

    chosen_version: int
    available_versions: list[int]


@dataclass
class QuicTransportParameters:
    """The transport parameters of one side, in the units of RFC 9000 section 18.2. ``None`` means that a
    parameter was not sent."""

    original_destination_connection_id: bytes | None = None
    max_idle_timeout: int | None = None
    stateless_reset_token: bytes | None = None
    max_udp_payload_size: int | None = None
    initial_max_data: int | None = None
    initial_max_stream_data_bidi_local: int | None = None
    initial_max_stream_data_bidi_remote: int | None = None
    initial_max_stream_data_uni: int | None = None
    initial_max_streams_bidi: int | None = None
    initial_max_streams_uni: int | None = None
    ack_delay_exponent: int | None = None
    max_ack_delay: int | None = None
    disable_active_migration: bool | None = False
    preferred_address: QuicPreferredAddress | None = None
    active_connection_id_limit: int | None = None
    initial_source_connection_id: bytes | None = None
    retry_source_connection_id: bytes | None = None
    version_information: QuicVersionInformation | None = None
    max_datagram_frame_size: int | None = None
    quantum_readiness: bytes | None = None
