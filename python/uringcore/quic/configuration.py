"""The configuration of one side of a QUIC connection, with aioquic's fields.

The fields are in :mod:`uringcore.quic._configuration_fields`.
Certificates and keys may be files, PEM or DER bytes, or ``cryptography`` objects.
:meth:`QuicConfiguration.setup` converts everything for the state machine
(:mod:`uringcore.quic._configuration_conversion`). It raises :class:`~uringcore.quic.QuicConfigurationError`,
with the field's name, for impossible and unsupported values.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from uringcore._private_files import warn_if_exposed
from uringcore._uringcore import QuicClientSetup, QuicServerSetup
from uringcore.quic._configuration_conversion import client_setup, server_setup
from uringcore.quic._configuration_fields import SMALLEST_MAX_DATAGRAM_SIZE, ConfigurationFields
from uringcore.quic._credential_loading import LOGGER, read_certificates, read_key
from uringcore.quic._errors import QuicConfigurationError
from uringcore.quic._named_certificate import NamedCertificate, refuse_duplicate_names
from uringcore.quic.limits import RetryPolicy
from uringcore.quic.sessions import SessionStore
from uringcore.tls import MemorySessionStore, load_pem_private_key, load_pem_x509_certificates

__all__ = ["SMALLEST_MAX_DATAGRAM_SIZE", "QuicConfiguration"]


@dataclass
class QuicConfiguration(ConfigurationFields):
    """The settings of a client or of a server, and their converted form.

    Its ``repr`` leaves out private keys, the session ticket, the token and the keys of tokens. A pickled
    configuration contains all of them, so it is as secret as they are.
    """

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

        Without ``keyfile`` the key is read from ``certfile``. Raises ``OSError`` when a file cannot be read,
        and :class:`~uringcore.quic.QuicConfigurationError`, a ``ValueError``, when it has no certificate or
        no usable key. :meth:`setup` checks that key and certificate belong together.
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
            warn_if_exposed(key_file, LOGGER, key_pem)
            try:
                self.private_key: Any = load_pem_private_key(key_pem, secret)
            except ValueError as exc:
                message = f"{os.fspath(key_file)}: {exc}"
                raise QuicConfigurationError("private_key", message) from exc
        self.certificate: Any = certificates[0]
        self.certificate_chain: list[Any] = list(certificates[1:])

    def add_certificate(
        self,
        certfile: str | os.PathLike[str],
        keyfile: str | os.PathLike[str] | None = None,
        password: bytes | str | None = None,
        *,
        server_names: Sequence[str] | None = None,
    ) -> None:
        """Adds a certificate for clients that request one of ``server_names`` (RFC 6066 section 3).

        The files are as in :meth:`load_cert_chain`, whose certificate serves all other clients: those with no
        name or an unknown one. A name is a DNS name (an international one as A-labels, ``xn--...``) or a
        wildcard such as ``*.example.org`` for one label; the exact name wins. ``None`` means all DNS names in
        the certificate's subjectAltName, and the name ``*`` the clients of :meth:`load_cert_chain`'s
        certificate.

        One name may have certificates with keys of several types (ECDSA, Ed25519, Ed448, RSA), e.g. an RSA
        one for clients that cannot verify ECDSA: a client gets the first of them, in the order of addition,
        whose signature its ``signature_algorithms`` allow (RFC 8446 section 4.2.3). Under ``*`` the
        certificate of
        :meth:`load_cert_chain` comes first.

        A server has at most 4096 names. Sessions are resumed only under the name that they were made with. A
        running server needs ``server.reload()``.

        Raises :class:`~uringcore.quic.QuicConfigurationError`, and then adds nothing, for a file that cannot
        be read, a key of another certificate, a name that is not the certificate's or already has a
        certificate with a key of this type, and on a client.
        """
        if self.is_client:
            raise QuicConfigurationError("named_certificates", "belong to a server")
        key_field = "certfile" if keyfile is None else "keyfile"
        chain = read_certificates("certfile", certfile)
        key_file = certfile if keyfile is None else keyfile
        secret = password.encode() if isinstance(password, str) else password
        try:
            key = load_pem_private_key(read_key(key_field, Path(key_file)), secret)
        except QuicConfigurationError:
            raise
        except ValueError as exc:
            raise QuicConfigurationError(key_field, str(exc)) from exc
        try:
            new = NamedCertificate.checked(chain, key, server_names)
        except QuicConfigurationError as exc:
            fields = {"certificate": "certfile", "private_key": key_field}
            raise QuicConfigurationError(fields.get(exc.field, exc.field), exc.message) from None
        refuse_duplicate_names(self.named_certificates, new)
        self.named_certificates.append(new)

    def load_verify_locations(
        self,
        cafile: str | os.PathLike[str] | None = None,
        capath: str | os.PathLike[str] | None = None,
        cadata: bytes | None = None,
    ) -> None:
        """Sets the authorities that may sign the peer's certificate, instead of the system's.

        ``cafile`` is a PEM file, ``capath`` a directory of such files, ``cadata`` PEM bytes; several add up.
        In a directory, files without a usable certificate are ignored. Each source must have a certificate:
        otherwise :meth:`setup` raises, and never uses the system's authorities instead.
        """
        self.cafile = cafile
        self.capath = capath
        self.cadata = cadata

    def setup(
        self, *, retry: RetryPolicy = "auto", session_store: SessionStore | None = None
    ) -> QuicClientSetup | QuicServerSetup:
        """The settings for the state machine, built once until a field changes.

        ``retry``: when a server makes clients validate their address first (RFC 9000 section 8.1.2).
        ``session_store`` replaces the field, and makes the server read 0-RTT data unless ``early_data`` is
        false, as aioquic's callbacks for tickets do. Raises :class:`~uringcore.quic.QuicConfigurationError`.
        """
        key = (retry, session_store, *self._fingerprint())
        if self._setup is None or self._setup[0] != key:
            built: QuicClientSetup | QuicServerSetup
            try:
                built = (
                    client_setup(self)
                    if self.is_client
                    else server_setup(
                        self,
                        retry,
                        self._sessions() if session_store is None else session_store,
                        early_data=session_store is not None,
                    )
                )
            except QuicConfigurationError as exc:
                # The extension has one field for authorities, and a configuration has three, so the error
                # names the one that is set.
                if exc.field == "cafile" and self.cafile is None:
                    field = "cadata" if self.cadata is not None else "capath"
                    raise QuicConfigurationError(field, exc.message) from None
                raise
            self._setup = (key, built)
        return self._setup[1]

    def __getstate__(self) -> dict[str, Any]:
        """Returns the fields without the form that was made for Rust. A copy converts them again and has its
        own sessions."""
        return {**self.__dict__, "_setup": None, "_own_sessions": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> QuicConfiguration:
        """Copies the fields; loggers, files and stores are shared."""
        state = self.__getstate__()
        shared = {name: state.pop(name) for name in _SHARED}
        copied = object.__new__(type(self))
        memo[id(self)] = copied
        copied.__dict__.update(copy.deepcopy(state, memo))
        copied.__dict__.update(shared)
        return copied

    def _named(self, server_name: str) -> QuicConfiguration:
        """Returns a copy with the name of a server. The original may be used for many servers."""
        self.setup()
        named = replace(self, server_name=server_name)
        named._setup = self._setup
        return named

    def _without_credentials(self) -> QuicConfiguration:
        """Returns this configuration, or a copy without the ticket and the token, which are for one
        server.
        """
        if self.session_ticket is None and not self.token:
            return self
        return replace(self, session_ticket=None, token=b"")

    def _fingerprint(self) -> tuple[Any, ...]:
        # Objects are compared by their ID. The tuple keeps them alive, so that no later object gets such an
        # ID.
        values: list[Any] = []
        for name in ConfigurationFields.__dataclass_fields__:
            # Each connection has its own server name, so the name is not part of the shared form.
            if name != "server_name":
                value = getattr(self, name)
                values.append(tuple(value) if isinstance(value, list) else value)
        return tuple(values)

    def _sessions(self) -> MemorySessionStore | SessionStore:
        if self.session_store is not None:
            return self.session_store
        # The store stays when the configuration changes, so that sessions can be resumed after a new
        # certificate.
        if self._own_sessions is None:
            self._own_sessions = MemorySessionStore()
        return self._own_sessions


# Fields with objects that a deep copy shares.
_SHARED = ("quic_logger", "secrets_log_file", "session_store")
