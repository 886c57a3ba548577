"""The fields of a :class:`~uringcore.quic.configuration.QuicConfiguration`: plain data, with aioquic's names.

:mod:`uringcore.quic._configuration_setup` checks and converts them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from uringcore.quic._certificate_selection import NamedCertificate
from uringcore.quic._memory_logger import QuicLogger
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
    """The length of the connection ids that the peer addresses us by, 4 to 20 bytes."""

    idle_timeout: float = 60.0
    """Seconds without a packet from the peer after which the connection is dropped."""

    is_client: bool = True
    """Which side this is."""

    max_data: int = 1048576
    """Bytes that the peer may have in flight to us over all streams before we have read them."""

    max_datagram_size: int = SMALLEST_MAX_DATAGRAM_SIZE
    """UDP payload in bytes to start with; path MTU discovery may raise it."""

    max_stream_data: int = 1048576
    """Bytes that the peer may have in flight to us on one stream before we have read them."""

    quic_logger: QuicLogger | None = None
    """The writer of qlog traces, with the content of all packets. ``None`` writes none and costs nothing."""

    secrets_log_file: TextIO | None = None
    """A text file to which TLS secrets are appended in NSS key log format, for Wireshark."""

    server_name: str | None = None
    """The name (or IP address) that the server's certificate must carry. Clients only."""

    session_ticket: SessionTicket | None = field(default=None, repr=False)
    """A ticket of an earlier connection, which the handshake resumes if it is the server's and still
    valid. With one that allows 0-RTT, what is written before the handshake is complete is sent at
    once; the server may reject it, and then it is sent again. Clients only."""

    token: bytes = field(default=b"", repr=False)
    """A token of an earlier connection, which proves the client's address to the server (RFC 9000
    section 8.1.3). Empty: one that an earlier connection with this configuration got. An
    :class:`~uringcore.tls.AddressToken` is shown by connections that begin with its version only.
    Clients only."""

    # Fields that aioquic has too; the load_ methods or the program set them.
    cadata: bytes | None = None
    cafile: str | os.PathLike[str] | None = None
    capath: str | os.PathLike[str] | None = None
    certificate: Any = None
    certificate_chain: list[Any] = field(default_factory=list)
    cipher_suites: list[CipherSuite] | None = None
    initial_rtt: float = 0.1
    max_datagram_frame_size: int | None = None
    """Largest DATAGRAM frame (RFC 9221) to accept in bytes; ``None`` turns DATAGRAM off."""

    original_version: int | None = None
    """The version of a client's first packets; ``None`` means the first of ``supported_versions``.

    A number that names no version of QUIC makes servers answer with those that they speak."""

    private_key: Any = field(default=None, repr=False)
    quantum_readiness_test: bool = False
    supported_versions: list[int] = field(
        default_factory=lambda: [QuicProtocolVersion.VERSION_1, QuicProtocolVersion.VERSION_2]
    )
    """Versions of QUIC, the preferred one first; ``QuicConnection.version`` is what came of them.

    A client offers all of them with its first packets, and the server goes on with the first of
    them that it supports (RFC 9368), or asks for another one (Version Negotiation), and then the
    client begins again with its first that the server named. A server's order does not matter.
    Numbers that uringcore has no keys for are offered and never chosen; version 1 or 2 must be
    among them."""

    verify_mode: int | None = None
    """``ssl.CERT_NONE`` accepts any certificate; ``None`` means what is right for the side."""

    # Fields that aioquic lacks.
    certificate_hashes: list[bytes] | None = None
    """SHA-256 hashes of the DER certificates that the server may have (32 bytes each): one of them
    is accepted from any issuer and for any name while its dates are right, and no other is; WebTransport
    calls that ``serverCertificateHashes``. Clients only."""

    ack_delay_max: float | None = None
    """Seconds that the peer is asked to let an ACK wait at most; ``None`` leaves it its own."""

    ack_packets_max: int | None = None
    """Ask the peer to acknowledge after so many packets and one, where it can be asked
    (draft-ietf-quic-ack-frequency); ``None`` does not ask."""

    ack_reordering: int = 2
    """With ``ack_packets_max``: after so many packets out of order the peer acknowledges at once,
    with 0 never for that."""

    groups: list[Group] | None = None
    """The groups for the key exchange to allow (RFC 8446 section 4.2.7), the preferred one first.
    ``None``: X25519, P-256 and P-384, and on a server X25519MLKEM768 for clients that prefer it. A client
    sends a key share of the first one only."""

    key_update_packets: int | None = None
    """Changes the packet keys after so many packets (RFC 9001 section 6), as soon as an earlier
    change is complete; ``None``: once within the first thousand packets, and then near the limit of
    the cipher."""

    early_data: bool | None = None
    """True if 0-RTT data is read (servers) or sent (clients). ``None``: a client sends it if its
    ``session_ticket`` allows; a server reads it if it was given a ``session_ticket_handler``, as in
    aioquic. Read data may be a replay: ``StreamDataReceived.early_data`` marks it."""

    keep_alive: float | None = None
    """Seconds of silence after which a PING keeps the connection open; ``None`` sends none."""

    max_streams_bidi: int = 128
    """Bidirectional streams that the peer may have open at once. Of more than 114 the first hundred
    are announced in the handshake, and all as soon as the peer has more than fifty open."""

    max_streams_uni: int = 128
    """Unidirectional streams that the peer may have open at once. Of more than 13 the first twelve
    are announced in the handshake, and all as soon as the peer has more than six open."""

    mtu_discovery: bool = True
    """True: larger packets are probed (RFC 8899)."""

    named_certificates: list[NamedCertificate] = field(default_factory=list)
    """The certificates that :meth:`add_certificate` added, for clients that ask for one of their names,
    instead of ``certificate``. To renew them, clear the list and add them again. Servers only."""

    preferred_address: list[tuple[str, int]] = field(default_factory=list)
    """Addresses that clients are asked to use after the handshake (RFC 9000 section 9.6), at most
    one of IPv4 and one of IPv6, as ``(ip, port)``; servers on uringcore's loop, which receives
    there. Where the server's own socket is bound to all addresses, an address with its port needs
    no socket of its own."""

    reset_stream_at: bool = False
    """True: this side announces that the peer may reset streams behind data that counts all the same
    (RESET_STREAM_AT, draft-ietf-quic-reliable-stream-reset), which WebTransport asks for."""

    send_buffer_high: int = 1048576
    """Bytes queued on a stream from which on ``drain()`` waits."""

    send_buffer_low: int = 262144
    """Bytes queued on a stream down to which ``drain()`` then waits."""

    session_store: MemorySessionStore | SessionStore | None = None
    """Where a server keeps the sessions that its clients may resume; several servers may share one,
    and several processes a :class:`~uringcore.quic.sessions.SharedSessionStore`. ``None``: in a
    memory of this configuration's own."""

    stateless_reset_key: bytes | Sequence[bytes] | None = field(default=None, repr=False)
    """32 secret bytes from which stateless reset tokens are made (RFC 9000 section 10.3.2); ``None``
    makes new ones for each endpoint. A server that is started again on the same address with the same
    key resets the connections of the one before at once, instead of letting them time out.

    Of several keys, at most three, the first is for new connections; the others reset those from before a
    restart. To change the key, put the new one in front and reload. A server that is reloaded without its
    former keys keeps the newest of them: three keys in all.

    The tokens belong to the key and the address, port and device of the socket, so servers on several
    addresses may share a key. Two servers that are alive at a time and bound alike must not: each would
    answer packets for the other's connections with tokens that end them, and anybody who has seen a
    connection's ID could ask for its token (section 21.11). On one machine that takes ``SO_REUSEPORT``,
    where a key is refused unless the servers are workers of one
    :class:`~uringcore.quic.workers.PortGroup`, or ``SO_REUSEADDR``, which is switched off. So give each
    machine a key of its own, unless what balances between them routes packets by connection ID."""

    token_key: bytes | Sequence[bytes] | None = field(default=None, repr=False)
    """32 to 64 secret bytes that address validation tokens are sealed with (RFC 9000 section 8.1.4);
    ``None`` makes new ones for each server. Of several keys the first seals and all of them open: to
    change the key, put the new one in front and drop the old one when its tokens have expired."""

    use_preferred_address: bool = True
    """True if a client moves to the address that its server prefers (RFC 9000 section 9.6). It asks
    there first, with at most three packets that carry nothing else, and stays where it is until the
    server has answered. On other loops than uringcore's the sockets of ``connect`` are connected to
    the first address, and clients stay there."""
