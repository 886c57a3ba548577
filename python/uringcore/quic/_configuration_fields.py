"""The fields of a :class:`~uringcore.quic.configuration.QuicConfiguration`: plain data, with aioquic's names.

:mod:`uringcore.quic._configuration_conversion` checks and converts them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from uringcore.quic._aioquic_qlog import QuicLogger
from uringcore.quic._named_certificate import NamedCertificate
from uringcore.quic.packet import QuicProtocolVersion
from uringcore.quic.sessions import SessionStore
from uringcore.tls import CipherSuite, Group, MemorySessionStore, SessionTicket

__all__ = ["SMALLEST_MAX_DATAGRAM_SIZE", "ConfigurationFields"]

SMALLEST_MAX_DATAGRAM_SIZE = 1200


@dataclass
class ConfigurationFields:
    """The settings of a client or of a server."""

    alpn_protocols: list[str] | None = None
    """The application protocols to offer or accept, the preferred one first (RFC 7301)."""

    congestion_control_algorithm: str = "reno"
    """``"reno"``, ``"cubic"`` or ``"bbr"``."""

    connection_id_length: int = 8
    """The length of the connection IDs that this side issues: 4 to 20 bytes."""

    idle_timeout: float = 60.0
    """Seconds without a packet from the peer after which the connection is dropped."""

    is_client: bool = True
    """True for a client's configuration, False for a server's."""

    max_data: int = 1048576
    """The number of bytes that the peer may send on all streams together before this side has read them."""

    max_datagram_size: int = SMALLEST_MAX_DATAGRAM_SIZE
    """The size of the first UDP payloads in bytes. Path MTU discovery may raise it later."""

    max_stream_data: int = 1048576
    """The number of bytes that the peer may send on one stream before this side has read them."""

    quic_logger: QuicLogger | None = None
    """The writer of qlog traces, with the content of all packets. ``None`` writes none and costs nothing."""

    secrets_log_file: TextIO | None = None
    """A text file to which TLS secrets are appended in NSS key log format, for Wireshark."""

    server_name: str | None = None
    """The name (or IP address) that the server's certificate must carry. Clients only."""

    session_ticket: SessionTicket | None = field(default=None, repr=False)
    """A ticket of an earlier connection to this server, whose session the handshake resumes while the ticket
    is valid. If the ticket allows 0-RTT, data that is written before the end of the handshake is sent at
    once; if the server rejects it, it is sent again. Clients only."""

    token: bytes = field(default=b"", repr=False)
    """A token of an earlier connection, which proves the client's address to the server (RFC 9000 section
    8.1.3). If empty, a token of an earlier connection with this configuration is used. An
    :class:`~uringcore.tls.AddressToken` is sent only by connections that begin with its version. Clients
    only."""

    # aioquic's fields that the load_ methods or the program set.
    cadata: bytes | None = None
    cafile: str | os.PathLike[str] | None = None
    capath: str | os.PathLike[str] | None = None
    certificate: Any = None
    certificate_chain: list[Any] = field(default_factory=list)
    cipher_suites: list[CipherSuite] | None = None
    initial_rtt: float = 0.1
    max_datagram_frame_size: int | None = None
    """The largest DATAGRAM frame (RFC 9221) in bytes that this side accepts; ``None`` accepts none."""

    original_version: int | None = None
    """The version of a client's first packets; ``None`` means the first of ``supported_versions``.

    With a number that is no version of QUIC, servers answer with the versions that they support."""

    private_key: Any = field(default=None, repr=False)
    quantum_readiness_test: bool = False
    supported_versions: list[int] = field(
        default_factory=lambda: [QuicProtocolVersion.VERSION_1, QuicProtocolVersion.VERSION_2]
    )
    """Versions of QUIC, the preferred one first. ``QuicConnection.version`` is the negotiated one.

    A client offers all of them with its first packets. The server continues with the first one that it
    supports (RFC 9368), or answers with the versions that it supports (Version Negotiation); then the client
    begins again with its first version among those. A server's order does not matter. The list must contain
    version 1 or 2; numbers of other versions are offered and never chosen."""

    verify_mode: int | None = None
    """``ssl.CERT_NONE`` accepts any certificate. With ``None`` a client verifies the server's certificate,
    and a server requests none."""

    # Fields that aioquic lacks.
    certificate_hashes: list[bytes] | None = None
    """SHA-256 hashes (32 bytes each) of the DER certificates that the client accepts, as WebTransport's
    ``serverCertificateHashes``. Such a certificate may have any issuer and any name, and must be valid now;
    no other is accepted. Clients only."""

    ack_delay_max: float | None = None
    """The longest delay of an ACK in seconds that this side requests from the peer; ``None`` requests
    none."""

    ack_packets_max: int | None = None
    """The number of packets that the peer may receive without sending an ACK, if it supports such requests
    (draft-ietf-quic-ack-frequency); ``None`` requests nothing."""

    ack_reordering: int = 2
    """With ``ack_packets_max``: the number of packets out of order after which the peer sends an ACK at once;
    0 means that packets out of order cause no ACK."""

    groups: list[Group] | None = None
    """The groups for the key exchange to allow (RFC 8446 section 4.2.7), the preferred one first.
    ``None``: X25519, P-256 and P-384, and on a server X25519MLKEM768 for clients that prefer it. A client
    sends a key share of the first one only."""

    key_update_packets: int | None = None
    """The number of packets after which the packet keys change (RFC 9001 section 6), if an earlier change is
    complete. With ``None`` they change once within the first thousand packets, and then near the cipher's
    limit."""

    early_data: bool | None = None
    """True if a server accepts 0-RTT data, or a client sends it. With ``None`` a client sends it if its
    ``session_ticket`` allows that, and a server accepts it if it has a ``session_ticket_handler``, as in
    aioquic. Such data may be a replay; ``StreamDataReceived.early_data`` marks it."""

    keep_alive: float | None = None
    """Seconds without a packet after which this side sends a PING, which keeps the connection open; ``None``
    sends none."""

    max_streams_bidi: int = 128
    """Bidirectional streams that the peer may have open at a time. If there are more than 114, the handshake
    announces 100, and the others are announced when the peer has more than 50 open."""

    max_streams_uni: int = 128
    """Unidirectional streams that the peer may have open at a time. If there are more than 13, the handshake
    announces 12, and the others are announced when the peer has more than 6 open."""

    mtu_discovery: bool = True
    """True if probes find out whether the path carries larger packets (RFC 8899)."""

    named_certificates: list[NamedCertificate] = field(default_factory=list)
    """The certificates that :meth:`add_certificate` added, for clients that ask for one of their names,
    instead of ``certificate``. To renew them, clear the list and add them again. Servers only."""

    preferred_address: list[tuple[str, int]] = field(default_factory=list)
    """Addresses to which clients should move after the handshake (RFC 9000 section 9.6): at most one of IPv4
    and one of IPv6, as ``(ip, port)``. The server opens sockets for them, unless its own socket has the port
    and is bound to all addresses. Servers on uringcore's loop only."""

    reset_stream_at: bool = False
    """True if this side supports resets that deliver the data up to an offset (RESET_STREAM_AT,
    draft-ietf-quic-reliable-stream-reset). WebTransport requires it."""

    send_buffer_high: int = 1048576
    """``drain()`` waits if at least this many bytes are queued on a stream."""

    send_buffer_low: int = 262144
    """``drain()`` returns when at most this many bytes are queued on the stream."""

    session_store: MemorySessionStore | SessionStore | None = None
    """The store of the sessions that a server's clients may resume. Several servers may share a store, and
    several processes a :class:`~uringcore.quic.sessions.SharedSessionStore`. With ``None`` the configuration
    has a store of its own, in memory."""

    stateless_reset_key: bytes | Sequence[bytes] | None = field(default=None, repr=False)
    """32 secret bytes from which stateless reset tokens are made (RFC 9000 section 10.3.2); with ``None``
    each endpoint makes new ones. A server that is restarted with its address and its key resets the
    connections from before at once; otherwise they would time out.

    Of several keys, at most three, the first is for new connections; the others reset those from before a
    restart. To change the key, put the new one in front and reload. A server that is reloaded without its
    former keys keeps the newest of them: three keys in all.

    The tokens depend on the key and on the address, port and device of the socket, so servers on several
    addresses may share a key. Two servers that run at a time and are bound to one address must not share one:
    each would answer packets for the other's connections with tokens that end them, and anybody who has seen
    a connection ID could obtain its token (section 21.11). On one machine such servers need ``SO_REUSEPORT``;
    there a key is refused unless they are workers of one :class:`~uringcore.quic.workers.PortGroup`. A socket
    with ``SO_REUSEADDR`` loses that option, and its key is refused while another socket is bound to the
    address. So give each machine its own key, unless the load balancer routes packets by connection ID."""

    token_key: bytes | Sequence[bytes] | None = field(default=None, repr=False)
    """32 to 64 secret bytes that encrypt address validation tokens (RFC 9000 section 8.1.4); with ``None``
    each server makes new ones. Of several keys the first encrypts, and all decrypt: to change the key, put
    the new one in front, and remove the old one when its tokens have expired."""

    use_preferred_address: bool = True
    """True if a client moves to the address that its server prefers (RFC 9000 section 9.6). It probes the
    address with at most three packets, and moves when the server has answered there. On loops other than
    uringcore's a client never moves, because its socket is connected to the first address."""
