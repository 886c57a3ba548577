"""``ClientConfig`` and ``ServerConfig``: what one side is set up with, checked when they are made.

They become a :class:`~uringcore.quic.configuration.QuicConfiguration`, which has more fields, in
aioquic's names, and does the checking.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TextIO

from uringcore.quic._errors import QuicConfigurationError
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.limits import RetryPolicy, ServerLimits
from uringcore.quic.logger import QuicLogger
from uringcore.quic.sessions import SessionStore
from uringcore.tls import MemorySessionStore, SessionTicket

__all__ = ["Certificate", "ClientConfig", "EndpointConfig", "PemSource", "ServerConfig"]

PemSource = str | os.PathLike[str] | bytes
"""A path, or PEM (a certificate or a key may be DER) in bytes."""

Certificate = tuple[PemSource, PemSource]
"""A certificate, with the rest of its chain behind it if it is PEM, and its private key."""

_MEBIBYTE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class EndpointConfig:
    """What both sides have in common."""

    alpn: Sequence[str] = ()
    """Application protocols to offer or accept, the preferred one first (RFC 7301)."""

    idle_timeout: float = 60.0
    """Seconds without a packet from the peer after which the connection is over."""

    keep_alive: float | None = None
    """Seconds of silence after which a PING keeps the connection open; ``None`` sends none."""

    max_streams: int = 100
    """Streams in both directions that the peer may have open at once. Of more than 114 the first
    hundred are announced in the handshake, and all as soon as the peer has more than fifty open."""

    max_uni_streams: int = 100
    """Streams in its direction only that the peer may have open at once. Of more than 13 the first
    twelve are announced in the handshake, and all as soon as the peer has more than six open."""

    receive_window: int = _MEBIBYTE
    """Bytes of one stream that may wait to be read; the peer gets credit for what is read."""

    connection_receive_window: int = 4 * _MEBIBYTE
    """Bytes of all streams together that may wait to be read."""

    send_buffer: int = _MEBIBYTE
    """Bytes queued on a stream from which on ``send`` waits. It goes on at a quarter of them."""

    datagrams: bool = True
    """True if datagrams are taken (RFC 9221)."""

    datagram_buffer: int = _MEBIBYTE
    """Bytes of received datagrams that may wait to be asked for."""

    datagram_overflow: Literal["oldest", "newest"] = "oldest"
    """Which are dropped when more come: the oldest make room, or the newest are not taken."""

    congestion: Literal["reno", "cubic", "bbr"] = "reno"
    """The congestion controller."""

    close_timeout: float = 5.0
    """Seconds that leaving a connection's ``async with`` waits at most for the peer to acknowledge what
    was finished on streams."""

    key_log: TextIO | None = None
    """A text file to which TLS secrets are appended in NSS key log format, for Wireshark."""

    qlog: QuicLogger | None = None
    """Where traces go that say what every packet said."""

    def __post_init__(self) -> None:
        if isinstance(self.alpn, (str, bytes)):
            raise QuicConfigurationError("alpn", "must be a list of strings")
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
        try:
            made = self._make()
            made.setup()
        except QuicConfigurationError as error:
            name = _NAMES.get(error.field, error.field)
            if name == error.field:
                raise
            raise QuicConfigurationError(name, error.message) from None
        object.__setattr__(self, "_made", made)

    @property
    def _configuration(self) -> QuicConfiguration:
        made: QuicConfiguration = vars(self)["_made"]
        return made

    def _make(self) -> QuicConfiguration:
        raise TypeError("make a ClientConfig or a ServerConfig")

    def _fill(self, configuration: QuicConfiguration) -> None:
        configuration.alpn_protocols = list(self.alpn)
        configuration.congestion_control_algorithm = self.congestion
        configuration.idle_timeout = self.idle_timeout
        configuration.keep_alive = self.keep_alive
        configuration.max_data = self.connection_receive_window
        configuration.max_datagram_frame_size = 65536 if self.datagrams else None
        configuration.max_stream_data = self.receive_window
        configuration.max_streams_bidi = self.max_streams
        configuration.max_streams_uni = self.max_uni_streams
        configuration.quic_logger = self.qlog
        configuration.secrets_log_file = self.key_log
        configuration.send_buffer_high = self.send_buffer
        configuration.send_buffer_low = max(1, self.send_buffer // 4)


@dataclass(frozen=True, kw_only=True)
class ClientConfig(EndpointConfig):
    """The settings of a client. Raises :class:`QuicConfigurationError`, which names the field."""

    server_name: str | None = None
    """The name that the server's certificate must carry, if it is not the host connected to."""

    authorities: PemSource | None = None
    """Who may sign the server's certificate: a PEM file, a directory of them, or PEM bytes. ``None``
    means the system's."""

    verify: bool = True
    """True if the server's certificate is looked at."""

    certificate_hashes: Sequence[bytes] = ()
    """SHA-256 hashes of certificates in DER, one of which the server has to show; who signed it and for
    which name is then not asked."""

    certificate: Certificate | None = field(default=None, repr=False)
    """What the client shows of itself to a server that asks."""

    session_ticket: SessionTicket | None = field(default=None, repr=False)
    """``Connection.session_ticket`` of an earlier connection to this server, which is then resumed."""

    early_data: bool = False
    """True if ``connect`` returns before the handshake is complete if there is a ticket: what is sent then
    leaves at once, as 0-RTT data if the ticket allows it, and again if the server rejects that. An
    attacker can have it come twice (RFC 9001 section 9.2). Without a ticket nothing is different."""

    def _make(self) -> QuicConfiguration:
        configuration = QuicConfiguration(is_client=True, server_name=self.server_name)
        self._fill(configuration)
        configuration.verify_mode = None if self.verify else ssl.CERT_NONE
        if self.certificate_hashes:
            configuration.certificate_hashes = list(self.certificate_hashes)
        configuration.session_ticket = self.session_ticket
        _set_authorities(configuration, self.authorities)
        if self.certificate is not None:
            configuration.certificate, configuration.private_key = self.certificate
            _load(configuration, self.certificate)
        return configuration


@dataclass(frozen=True, kw_only=True)
class ServerConfig(EndpointConfig):
    """The settings of a server. Raises :class:`QuicConfigurationError`, which names the field."""

    certificate: Certificate = field(repr=False)
    """The certificate that the server shows, and its key."""

    client_authorities: PemSource | None = None
    """Who may sign the certificates of clients, which then have to show one: as
    ``ClientConfig.authorities``. ``None`` asks for none."""

    backlog: int = 128
    """Connections that may wait to be accepted, with ``early_data`` also before their handshake is
    complete; more are refused."""

    limits: ServerLimits = field(default_factory=ServerLimits)
    """How many connections and handshakes, altogether and from one address."""

    retry: RetryPolicy = "auto"
    """When a client has to prove its address first (RFC 9000 section 8.1.2)."""

    session_store: MemorySessionStore | SessionStore | None = None
    """Where sessions are kept that clients may resume; ``None``: in memory."""

    early_data: bool = False
    """True if 0-RTT data is read. A connection that brings some is accepted before its handshake is
    complete if an address validation token proves where its client is, and after the handshake otherwise;
    :attr:`Connection.early_data` says so, and what to mind."""

    def __post_init__(self) -> None:
        if not self.backlog > 0:
            raise QuicConfigurationError("backlog", f"must be above 0, not {self.backlog}")
        super().__post_init__()

    def _make(self) -> QuicConfiguration:
        configuration = QuicConfiguration(
            is_client=False, session_store=self.session_store, early_data=self.early_data
        )
        self._fill(configuration)
        _load(configuration, self.certificate)
        if self.client_authorities is not None:
            configuration.verify_mode = ssl.CERT_REQUIRED
            _set_authorities(configuration, self.client_authorities)
        return configuration


def _set_authorities(configuration: QuicConfiguration, source: PemSource | None) -> None:
    if source is None:
        return
    if isinstance(source, bytes):
        configuration.load_verify_locations(cadata=source)
    elif Path(source).is_dir():
        configuration.load_verify_locations(capath=os.fspath(source))
    else:
        configuration.load_verify_locations(cafile=os.fspath(source))


def _load(configuration: QuicConfiguration, certificate: Certificate) -> None:
    if not isinstance(certificate, tuple) or len(certificate) != 2:
        raise QuicConfigurationError("certificate", "must be a pair: certificate and private key")
    configuration.certificate, configuration.private_key = certificate


# The fields of a QuicConfiguration that have another name here.
_NAMES = {
    "alpn_protocols": "alpn",
    "cadata": "authorities",
    "cafile": "authorities",
    "capath": "authorities",
    "certificate_chain": "certificate",
    "congestion_control_algorithm": "congestion",
    "max_data": "connection_receive_window",
    "max_stream_data": "receive_window",
    "max_streams_bidi": "max_streams",
    "max_streams_uni": "max_uni_streams",
    "private_key": "certificate",
    "quic_logger": "qlog",
    "secrets_log_file": "key_log",
}
