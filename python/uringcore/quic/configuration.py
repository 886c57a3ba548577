"""What one side of a QUIC connection is set up with, in aioquic's fields.

A :class:`QuicConfiguration` is plain data. Certificates and keys may be given as files, PEM or DER
bytes, or ``cryptography`` objects. :meth:`QuicConfiguration.setup` turns it into what the state
machine takes, and raises :class:`~uringcore.quic.errors.QuicConfigurationError`, which names the
field, for anything that is impossible or that uringcore cannot do. How it does that is in
:mod:`uringcore.quic.setup`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

from uringcore._uringcore import QuicClientSetup, QuicServerSetup
from uringcore.quic.certificates import NamedCertificate, refuse_names_twice
from uringcore.quic.credentials import read_certificates, read_file
from uringcore.quic.errors import QuicConfigurationError
from uringcore.quic.limits import RetryPolicy
from uringcore.quic.logger import QuicLogger
from uringcore.quic.packet import QuicProtocolVersion
from uringcore.quic.sessions import SessionStore
from uringcore.quic.setup import client_setup, server_setup
from uringcore.tls import (
    CipherSuite,
    MemorySessionStore,
    SessionTicket,
    load_pem_private_key,
    load_pem_x509_certificates,
)

__all__ = ["SMALLEST_MAX_DATAGRAM_SIZE", "QuicConfiguration"]

SMALLEST_MAX_DATAGRAM_SIZE = 1200


@dataclass
class QuicConfiguration:
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
    """Where to write qlog traces: what every packet says. Costs nothing when it is ``None``."""

    secrets_log_file: TextIO | None = None
    """A text file to which TLS secrets are appended in NSS key log format, for Wireshark."""

    server_name: str | None = None
    """The name (or IP address) that the server's certificate must carry. Clients only."""

    session_ticket: SessionTicket | None = None
    """A ticket of an earlier connection, which the handshake resumes if it is the server's and still
    valid. With one that allows 0-RTT, what is written before the handshake is complete is sent at
    once; the server may reject it, and then it is sent again. Clients only."""

    token: bytes = b""
    """A token of an earlier connection, which proves the client's address to the server (RFC 9000
    section 8.1.3). Empty: one that an earlier connection with this configuration got. An
    :class:`~uringcore.tls.AddressToken` is shown by connections that begin with its version only.
    Clients only."""

    # As in aioquic, set by the load_ methods or by hand.
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

    private_key: Any = None
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

    # What aioquic does not have.
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

    key_update_packets: int | None = None
    """Changes the packet keys after so many packets (RFC 9001 section 6), as soon as an earlier
    change is complete; ``None``: once within the first thousand packets, and then near the limit of
    the cipher."""

    early_data: bool | None = None
    """Whether 0-RTT data is read (servers) or sent (clients). ``None``: a client sends it if its
    ``session_ticket`` allows; a server reads it if it was given a ``session_ticket_handler``, as in
    aioquic. Read data may be a replay: ``StreamDataReceived.early_data`` tells it apart."""

    keep_alive: float | None = None
    """Seconds of silence after which a PING keeps the connection open; ``None`` sends none."""

    max_streams_bidi: int = 128
    """Bidirectional streams that the peer may have open at once."""

    max_streams_uni: int = 128
    """Unidirectional streams that the peer may have open at once."""

    mtu_discovery: bool = True
    """Whether to probe for larger packets (RFC 8899)."""

    named_certificates: list[NamedCertificate] = field(default_factory=list)
    """What :meth:`add_certificate` added: certificates for clients that ask for one of their names,
    instead of ``certificate``. To renew them, clear the list and add them again. Servers only."""

    preferred_address: list[tuple[str, int]] = field(default_factory=list)
    """Addresses that clients are asked to use after the handshake (RFC 9000 section 9.6), at most
    one of IPv4 and one of IPv6, as ``(ip, port)``; servers on uringcore's loop, which receives
    there. Where the server's own socket is bound to all addresses, an address with its port needs
    no socket of its own."""

    send_buffer_high: int = 1048576
    """Bytes queued on a stream above which ``drain()`` waits."""

    send_buffer_low: int = 262144
    """Bytes queued on a stream below which ``drain()`` goes on."""

    session_store: MemorySessionStore | SessionStore | None = None
    """Where a server keeps the sessions that its clients may resume; several servers may share one,
    and several processes a :class:`~uringcore.quic.sessions.SharedSessionStore`. ``None``: in a
    memory of this configuration's own."""

    stateless_reset_key: bytes | None = None
    """32 secret bytes from which stateless reset tokens are made (RFC 9000 section 10.3.2); ``None``
    makes new ones for each endpoint. A server that is started again with the same key resets the
    connections of the one before at once, instead of letting them time out. To change it is to give
    that up for the connections that are open."""

    token_key: bytes | Sequence[bytes] | None = None
    """32 to 64 secret bytes that address validation tokens are sealed with (RFC 9000 section 8.1.4);
    ``None`` makes new ones for each server. Of several keys the first seals and all of them open: to
    change the key, put the new one in front and drop the old one when its tokens have expired."""

    use_preferred_address: bool = True
    """Whether a client moves to the address that its server prefers (RFC 9000 section 9.6). It asks
    there first, with at most three packets that carry nothing else, and stays where it is until the
    server has answered. On other loops than uringcore's the sockets of ``connect`` are connected to
    the first address, and clients stay there."""

    _setup: tuple[tuple[Any, ...], QuicClientSetup | QuicServerSetup] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    _own_sessions: MemorySessionStore | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def load_cert_chain(
        self,
        certfile: str | os.PathLike[str],
        keyfile: str | os.PathLike[str] | None = None,
        password: bytes | str | None = None,
    ) -> None:
        """Loads a certificate with its chain and the private key, from PEM files.

        Without ``keyfile`` the key is looked for in ``certfile``. Raises ``OSError`` when a file
        cannot be read and :class:`~uringcore.quic.errors.QuicConfigurationError`, a ``ValueError``,
        when it holds no certificate or no usable key. Whether key and certificate belong together
        is checked when they are used.
        """
        pem = Path(certfile).read_bytes()
        key_file = certfile if keyfile is None else keyfile
        key_pem = pem if keyfile is None else Path(keyfile).read_bytes()
        secret = password.encode() if isinstance(password, str) else password
        try:
            certificates = load_pem_x509_certificates(pem)
        except ValueError as exc:
            message = f"{os.fspath(certfile)}: {exc}"
            raise QuicConfigurationError("certificate", message) from exc
        if keyfile is not None or b"PRIVATE KEY-----" in key_pem:
            try:
                self.private_key = load_pem_private_key(key_pem, secret)
            except ValueError as exc:
                message = f"{os.fspath(key_file)}: {exc}"
                raise QuicConfigurationError("private_key", message) from exc
        self.certificate = certificates[0]
        self.certificate_chain = list(certificates[1:])

    def add_certificate(
        self,
        certfile: str | os.PathLike[str],
        keyfile: str | os.PathLike[str] | None = None,
        password: bytes | str | None = None,
        *,
        server_names: Sequence[str] | None = None,
    ) -> None:
        """Adds a certificate for clients that ask for one of ``server_names`` (RFC 6066 section 3).

        The files are as in :meth:`load_cert_chain`, whose certificate is for all other clients:
        those that give no name or an unknown one. A name is a DNS name (an international one as
        A-labels, ``xn--...``) or a wildcard such as ``*.example.org``, which stands for one label;
        the exact name wins. ``None`` means all DNS names in the certificate's subjectAltName, and the
        name ``*`` the clients that the certificate of :meth:`load_cert_chain` is for.

        One name may have certificates with keys of several kinds (ECDSA, Ed25519, RSA), e.g. an RSA
        one for clients that cannot verify ECDSA: a client is shown the first of them, in the order
        of addition, whose signature its ``signature_algorithms`` allow (RFC 8446 section 4.2.3).
        Under ``*`` that of :meth:`load_cert_chain` comes first.

        A server has at most 4096 names. Sessions are resumed only under the name that they were made
        with. A running server takes it up with ``server.reload()``.

        Raises :class:`~uringcore.quic.errors.QuicConfigurationError`, and then nothing is added, for
        a file that cannot be read, a key that is not the certificate's, a name that the certificate
        is not for or that has a certificate with a key of this kind already, and on a client.
        """
        if self.is_client:
            raise QuicConfigurationError("named_certificates", "are a server's")
        key_field = "certfile" if keyfile is None else "keyfile"
        chain = read_certificates("certfile", certfile)
        key_file = certfile if keyfile is None else keyfile
        secret = password.encode() if isinstance(password, str) else password
        try:
            key = load_pem_private_key(read_file(key_field, Path(key_file)), secret)
        except QuicConfigurationError:
            raise
        except ValueError as exc:
            raise QuicConfigurationError(key_field, str(exc)) from exc
        try:
            new = NamedCertificate.checked(chain, key, server_names)
        except QuicConfigurationError as exc:
            fields = {"certificate": "certfile", "private_key": key_field}
            raise QuicConfigurationError(fields.get(exc.field, exc.field), exc.message) from None
        refuse_names_twice(self.named_certificates, new)
        self.named_certificates.append(new)

    def load_verify_locations(
        self,
        cafile: str | os.PathLike[str] | None = None,
        capath: str | os.PathLike[str] | None = None,
        cadata: bytes | None = None,
    ) -> None:
        """Sets the authorities that may sign the peer's certificate, instead of the system's.

        ``cafile`` is a PEM file, ``capath`` a directory of them, ``cadata`` PEM bytes; several add
        up. In a directory, files without a usable certificate are passed over. Each source must
        hold a certificate: :meth:`setup` raises otherwise, and never falls back to the system's.
        """
        self.cafile = cafile
        self.capath = capath
        self.cadata = cadata

    def setup(
        self, *, retry: RetryPolicy = "auto", session_store: SessionStore | None = None
    ) -> QuicClientSetup | QuicServerSetup:
        """What the state machine takes, built at most once per state of this object.

        ``retry`` says when a server makes clients prove their address first (RFC 9000 section 8.1.2).
        ``session_store`` goes before the field, and 0-RTT data is read unless ``early_data`` says
        otherwise: that is what aioquic's callbacks for tickets mean.
        Raises :class:`~uringcore.quic.errors.QuicConfigurationError`.
        """
        key = (retry, session_store, *self._fingerprint())
        if self._setup is None or self._setup[0] != key:
            built: QuicClientSetup | QuicServerSetup
            try:
                built = (
                    client_setup(self)
                    if self.is_client
                    else server_setup(self, retry, session_store)
                )
            except QuicConfigurationError as exc:
                # Below there is only one source of authorities; here there are three.
                if exc.field == "cafile" and self.cafile is None:
                    field = "cadata" if self.cadata is not None else "capath"
                    raise QuicConfigurationError(field, exc.message) from None
                raise
            self._setup = (key, built)
        return self._setup[1]

    def _named(self, server_name: str) -> QuicConfiguration:
        """A copy for one server. The original may serve for many, so it is not written to."""
        self.setup()
        copy = replace(self, server_name=server_name)
        copy._setup = self._setup
        return copy

    def _without_credentials(self) -> QuicConfiguration:
        """The same, without what only one server may be shown: itself, or a copy."""
        if self.session_ticket is None and not self.token:
            return self
        return replace(self, session_ticket=None, token=b"")

    def _fingerprint(self) -> tuple[Any, ...]:
        # Objects stand for themselves: the tuple keeps them alive, so an id cannot be reused.
        values: list[Any] = []
        for name in self.__dataclass_fields__:
            # The server's name belongs to a connection, not to what all connections share.
            if name not in ("_setup", "_own_sessions", "server_name"):
                value = getattr(self, name)
                values.append(tuple(value) if isinstance(value, list) else value)
        return tuple(values)

    def _reads_early_data(self, default: bool) -> bool:
        return default if self.early_data is None else self.early_data

    def _sessions(self) -> MemorySessionStore | SessionStore:
        if self.session_store is not None:
            return self.session_store
        # Kept when the configuration changes, so that a new certificate ends no session.
        if self._own_sessions is None:
            self._own_sessions = MemorySessionStore()
        return self._own_sessions
