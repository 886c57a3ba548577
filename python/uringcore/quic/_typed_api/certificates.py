"""``Certificate``: a certificate with its private key, as a program names it, read into a configuration.

PEM and DER are read by :mod:`uringcore.quic._credential_loading`, and a server's certificate is selected by
:mod:`uringcore.quic._named_certificate`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from uringcore.quic._credential_loading import read_certificates, read_private_key
from uringcore.quic._errors import QuicConfigurationError
from uringcore.quic._named_certificate import NamedCertificate, refuse_duplicate_names
from uringcore.quic.configuration import QuicConfiguration

__all__ = ["Certificate", "CertificateSource", "PemSource", "load_certificate", "load_certificates"]

PemSource = str | os.PathLike[str] | bytes
"""A path, or PEM (a certificate or a key may be DER) in bytes."""


@dataclass(frozen=True)
class Certificate:
    """A certificate, the rest of its chain and its private key.

    The files are read when a ``ClientConfig`` or ``ServerConfig`` is made with it, and again by
    :meth:`Listener.reload`. A pair ``(chain, private_key)`` may replace it.
    """

    chain: PemSource
    """The certificate. If it is PEM, the rest of its chain may follow in it."""

    private_key: PemSource | None = field(default=None, repr=False)
    """The private key: PKCS #8, SEC 1 or PKCS #1. With ``None`` it is in the PEM of the chain."""

    password: str | bytes | None = field(default=None, repr=False)
    """The password of an encrypted PEM key, which the ``cryptography`` package decrypts."""

    server_names: Sequence[str] | None = None
    """The server names for which clients get this certificate (RFC 6066 section 3). The certificate must be
    valid for them. A name is a DNS name (an international one as A-labels, ``xn--...``) or a wildcard such as
    ``*.example.org``, which matches one label; an exact name takes precedence. ``"*"`` means clients that
    send no name or an unknown one. ``None`` means all DNS names in the certificate's subjectAltName. Servers
    only."""

    def __repr__(self) -> str:
        # PEM bytes are not shown, because they may contain the private key.
        chain = "<bytes>" if isinstance(self.chain, bytes) else repr(self.chain)
        return f"{type(self).__name__}(chain={chain}, server_names={self.server_names!r})"


CertificateSource = Certificate | tuple[PemSource, PemSource]
"""A certificate for an option: a ``Certificate``, or a pair of the certificate with its chain and its private
key."""

_Read = tuple[list[bytes], bytes, Sequence[str] | None]


def load_certificate(configuration: QuicConfiguration, source: CertificateSource) -> None:
    """Makes the configuration present one certificate to every peer. Raises :class:`QuicConfigurationError`,
    which names ``certificate``.
    """
    chain, key, names = _read("certificate", source)
    if names is not None:
        raise QuicConfigurationError(
            "certificate", "only a server's certificates have server_names"
        )
    _set(configuration, chain, key)


def load_certificates(
    configuration: QuicConfiguration, sources: Sequence[CertificateSource]
) -> None:
    """Makes a server use several certificates: the first one for clients with no or an unknown server name,
    and each under its names. Raises :class:`QuicConfigurationError`, which names ``certificates``.
    """
    if isinstance(sources, (Certificate, str, bytes)):
        raise QuicConfigurationError("certificates", "must be a list of certificates")
    for number, source in enumerate(sources, 1):
        try:
            chain, key, names = _read("certificates", source)
            if number == 1:
                _set(configuration, chain, key)
                if _is_default_only(chain, key, names):
                    continue
                names = _without_asterisk(names)
            new = NamedCertificate.checked(chain, key, names)
            refuse_duplicate_names(configuration.named_certificates, new)
        except QuicConfigurationError as error:
            message = f"certificate {number}: {error.message}"
            raise QuicConfigurationError("certificates", message) from None
        configuration.named_certificates.append(new)


def _is_default_only(chain: list[bytes], key: bytes, names: Sequence[str] | None) -> bool:
    """True if the first certificate has no server name of its own. Raises an error for an invalid one."""
    if names is not None and list(names) != ["*"]:
        return False
    try:
        NamedCertificate.checked(chain, key, names)
    except QuicConfigurationError as error:
        if error.field != "server_names":
            raise
        return True
    return names is not None


def _without_asterisk(names: Sequence[str] | None) -> Sequence[str] | None:
    """Returns the names without ``"*"``. That name means all clients without a certificate of their own,
    which get the first certificate."""
    if names is None or isinstance(names, (str, bytes)):
        return names
    return [name for name in names if name != "*"]


def _set(configuration: QuicConfiguration, chain: list[bytes], key: bytes) -> None:
    configuration.certificate, configuration.certificate_chain = chain[0], list(chain[1:])
    configuration.private_key = key


def _read(name: str, source: CertificateSource) -> _Read:
    """Reads a certificate. Returns its chain and its key in DER, and its names. Errors mention ``name``."""
    if isinstance(source, Certificate):
        given = source
    elif isinstance(source, tuple) and len(source) == 2:
        given = Certificate(*source)
    else:
        raise QuicConfigurationError(
            name, "must be a Certificate, or a pair: certificate and private key"
        )
    password = given.password.encode() if isinstance(given.password, str) else given.password
    if password is not None and not isinstance(password, bytes):
        raise QuicConfigurationError(name, "its password must be a string or bytes")
    try:
        chain = read_certificates(name, given.chain)
        key_source = given.chain if given.private_key is None else given.private_key
        return chain, read_private_key(name, key_source, password), given.server_names
    except QuicConfigurationError as error:
        raise QuicConfigurationError(name, error.message) from error.__cause__
