"""``ClientConfig`` and ``ServerConfig``: the settings of one side, checked in their constructors.

``endpoint_config`` has the settings that both share.
"""

from __future__ import annotations

import dataclasses
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from uringcore.quic._configuration_conversion import KEYS_MAX, key_list, retry_name
from uringcore.quic._errors import QuicConfigurationError
from uringcore.quic._typed_api.certificates import (
    Certificate,
    CertificateSource,
    PemSource,
    load_certificate,
    load_certificates,
)
from uringcore.quic._typed_api.endpoint_config import EndpointConfig, set_authorities
from uringcore.quic._typed_api.field_type_checks import check_types
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.limits import RetryPolicy, ServerLimits
from uringcore.quic.sessions import SessionStore
from uringcore.tls import MemorySessionStore, SessionTicket

__all__ = [
    "Certificate",
    "CertificateSource",
    "ClientConfig",
    "EndpointConfig",
    "PemSource",
    "ServerConfig",
]


@dataclass(frozen=True, kw_only=True)
class ClientConfig(EndpointConfig):
    """The settings of a client. Raises :class:`QuicConfigurationError`, which names the field."""

    server_name: str | None = None
    """The name for which the server's certificate must be valid; ``None`` means the host of ``connect``."""

    authorities: PemSource | None = None
    """The authorities that may sign the server's certificate: a PEM file, a directory of such files, or PEM
    bytes; ``None`` means the system's."""

    verify: bool = True
    """True if the server's certificate is verified. With False ``authorities`` must not be set."""

    certificate_hashes: Sequence[bytes] = ()
    """SHA-256 hashes of certificates in DER. If there are any, the server must have one of these
    certificates, and its issuer and names are not checked."""

    certificate: CertificateSource | None = field(default=None, repr=False)
    """The certificate that the client sends to a server that requests one."""

    first_version: int | None = None
    """The QUIC version of the first packets; ``None`` means the first of ``versions``. If every server
    supports this version, and ``versions`` begins with a preferred one, the handshake changes to the
    preferred one without another round trip (RFC 9368 section 2.3). With a number that is no version, servers
    answer with the versions that they support."""

    session_ticket: SessionTicket | None = field(default=None, repr=False)
    """``Connection.session_ticket`` of an earlier connection to this server, whose session is resumed."""

    early_data: bool = False
    """True if ``connect`` returns before the handshake is complete, which needs a ticket. Data that is sent
    then leaves at once, as 0-RTT data if the ticket allows it, and is sent again if the server rejects it. An
    attacker can replay 0-RTT data (RFC 9001 section 9.2)."""

    address_token: bytes = field(default=b"", repr=False)
    """``Connection.address_token`` of an earlier connection to this server, which proves the client's
    address (RFC 9000 section 8.1.3): no Retry, and a larger first flight of the server's. Empty: one that
    an earlier connection with this object got. A copy remembers none: ``dataclasses.replace`` makes one, and
    so does ``connect`` with ``alpn``."""

    use_preferred_address: bool = True
    """True if the client moves to the address that its server prefers (RFC 9000 section 9.6), as soon as the
    server has answered there. On a loop that is not uringcore's the client stays at the first address."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.authorities is not None and not self.verify:
            raise QuicConfigurationError("authorities", "have no effect without verify")
        super().__post_init__()

    def _make(self) -> QuicConfiguration:
        configuration = QuicConfiguration(is_client=True, server_name=self.server_name)
        self._fill(configuration)
        configuration.verify_mode = None if self.verify else ssl.CERT_NONE
        if self.certificate_hashes:
            configuration.certificate_hashes = list(self.certificate_hashes)
        configuration.original_version = self.first_version
        configuration.session_ticket = self.session_ticket
        configuration.token = self.address_token
        configuration.use_preferred_address = self.use_preferred_address
        set_authorities(configuration, self.authorities)
        if self.certificate is not None:
            load_certificate(configuration, self.certificate)
        return configuration


@dataclass(frozen=True, kw_only=True)
class ServerConfig(EndpointConfig):
    """The settings of a server. Raises :class:`QuicConfigurationError`, which names the field."""

    certificate: CertificateSource | None = field(default=None, repr=False)
    """The certificate of a server that has a single one, with its key."""

    certificates: Sequence[CertificateSource] = field(default=(), repr=False)
    """Several certificates, instead of ``certificate``. A client is shown the one for the name that it
    asks for (RFC 6066 section 3), and the first one if it asks for none or an unknown one. One name may
    have certificates with keys of several kinds (ECDSA, Ed25519, Ed448, RSA): a client is shown the first
    of them whose signature it can verify (RFC 8446 section 4.2.3). A server has at most 4,096 names.
    A session is resumed only under the name that it was made with."""

    client_authorities: PemSource | None = None
    """The authorities that may sign the certificates of clients, as ``ClientConfig.authorities``. With
    ``None`` no certificates are requested from clients."""

    client_certificate_required: bool = True
    """False if clients without a certificate are accepted too, with ``client_authorities``. Their
    ``Connection.peer_certificate`` is ``None``."""

    backlog: int = 128
    """The maximum number of connections that wait for :meth:`Listener.accept`. Further ones are refused
    (CONNECTION_REFUSED)."""

    limits: ServerLimits = field(default_factory=ServerLimits)
    """Limits on connections and handshakes, altogether and from one address."""

    retry: RetryPolicy = "auto"
    """When a client has to prove its address first (RFC 9000 section 8.1.2): ``True`` always, ``False``
    never, ``"auto"`` under load."""

    token_keys: Sequence[bytes] = field(default=(), repr=False)
    """Secrets of at least 32 bytes each that encrypt address validation tokens (RFC 9000 section 8.1.4). The
    first one encrypts, and all decrypt. To change the key, put the new one in front, call
    :meth:`Listener.reload`, and remove the old one a day later, when its tokens have expired. If empty, the
    key is the worker's or a random one, with which tokens are invalid after a restart."""

    stateless_reset_key: bytes | Sequence[bytes] | None = field(default=None, repr=False)
    """32 secret bytes from which stateless reset tokens are made (RFC 9000 section 10.3.2). A server that is
    restarted with its address and its key resets the connections from before at once. With another key, or
    with ``None`` (the worker's, or a random one), they time out.

    Of several keys, at most three, the first one is for new connections, and the others reset those from
    before a restart. To change the key, put the new one in front and call :meth:`Listener.reload`; a
    listener that is open keeps its newest former keys: three keys in all.

    Two servers that run at the same time on one address must not share a key: each would answer packets of
    the other's connections with tokens that end them (section 21.11). So a key is refused with
    ``reuse_port``, and on a socket whose address another socket has (``SO_REUSEADDR``); workers of a
    ``PortGroup`` share one safely, and so do several addresses of one machine.
    Give each machine a key of its own."""

    preferred_address: Sequence[tuple[str, int]] = ()
    """Addresses to which clients should move after the handshake (RFC 9000 section 9.6), as ``(ip, port)``:
    at most one of IPv4 and one of IPv6. The listener also receives there, which needs uringcore's loop."""

    session_store: MemorySessionStore | SessionStore | None = None
    """The store of the sessions that clients may resume; ``None`` means a store in memory. Several processes
    share a :class:`~uringcore.quic.sessions.SharedSessionStore`."""

    early_data: bool = False
    """True if 0-RTT data is accepted. A connection with such data is accepted before its handshake is
    complete if an address validation token proves the client's address, and after the handshake otherwise.
    :attr:`Connection.early_data` is true for it, and its documentation explains the risk of replays."""

    _names: ClassVar[dict[str, str]] = EndpointConfig._names | {
        "cadata": "client_authorities",
        "cafile": "client_authorities",
        "capath": "client_authorities",
        "named_certificates": "certificates",
        "server_names": "certificates",
    }

    def __post_init__(self) -> None:
        check_types(self)
        if not self.backlog > 0:
            raise QuicConfigurationError("backlog", f"must be above 0, not {self.backlog}")
        if not isinstance(self.limits, ServerLimits):
            raise QuicConfigurationError("limits", f"must be ServerLimits, not {self.limits!r}")
        try:
            retry_name(self.retry)
        except ValueError as error:
            raise QuicConfigurationError("retry", str(error).removeprefix("retry: ")) from None
        if self.client_authorities is None and not self.client_certificate_required:
            raise QuicConfigurationError(
                "client_certificate_required", "needs client_authorities if it is false"
            )
        _check_keys(self.token_keys, self.stateless_reset_key)
        super().__post_init__()

    def _retry(self) -> RetryPolicy:
        return self.retry

    def _make(self) -> QuicConfiguration:
        configuration = QuicConfiguration(
            is_client=False, session_store=self.session_store, early_data=self.early_data
        )
        self._fill(configuration)
        if self.certificate is not None and self.certificates:
            raise QuicConfigurationError("certificates", "cannot be given with certificate")
        if self.certificate is not None:
            load_certificate(configuration, self.certificate)
        elif self.certificates:
            load_certificates(configuration, self.certificates)
        else:
            raise QuicConfigurationError("certificate", "a server needs one")
        if self.client_authorities is not None:
            is_required = self.client_certificate_required
            configuration.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
            set_authorities(configuration, self.client_authorities)
        configuration.preferred_address = list(self.preferred_address)
        configuration.stateless_reset_key = key_list(self.stateless_reset_key) or None
        configuration.token_key = list(self.token_keys) or None
        return configuration

    def _with(self, **changes: Any) -> ServerConfig:
        """Returns a copy with the arguments of a call, which override the fields; ``None`` keeps a field.
        Either of ``certificate`` and ``certificates`` replaces both.
        """
        given = {name: value for name, value in changes.items() if value is not None}
        if not given:
            return self
        if "certificate" in given or "certificates" in given:
            given = {"certificate": None, "certificates": (), **given}
        return dataclasses.replace(self, **given)


def _check_keys(token_keys: Any, reset_key: Any) -> None:
    """Checks the keys. Raises :class:`QuicConfigurationError`, which does not show them."""
    if not all(isinstance(key, bytes) for key in token_keys):
        raise QuicConfigurationError("token_keys", "must be a list of bytes")
    if any(len(key) < TOKEN_KEY_MIN for key in token_keys):
        raise QuicConfigurationError("token_keys", f"must have {TOKEN_KEY_MIN} bytes at least each")
    if isinstance(reset_key, (bytes, type(None))):
        reset_keys: Sequence[Any] = key_list(reset_key)
    elif isinstance(reset_key, (list, tuple)) and 0 < len(reset_key) <= KEYS_MAX:
        reset_keys = reset_key
    else:
        message = f"must be bytes, or a list of 1 to {KEYS_MAX} keys"
        raise QuicConfigurationError("stateless_reset_key", message)
    if not all(isinstance(key, bytes) and len(key) == RESET_KEY_SIZE for key in reset_keys):
        raise QuicConfigurationError("stateless_reset_key", f"must be {RESET_KEY_SIZE} bytes")


TOKEN_KEY_MIN = 32
RESET_KEY_SIZE = 32
