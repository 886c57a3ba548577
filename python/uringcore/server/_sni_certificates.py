"""``--ssl-sni-certificate``: certificates for clients that request another host (RFC 6066 section 3).

QUIC and TLS over TCP get them in a :class:`QuicConfiguration`; Rust selects one in a handshake.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from uringcore.quic._errors import QuicConfigurationError
from uringcore.quic._named_certificate import NamedCertificate
from uringcore.quic.configuration import QuicConfiguration
from uringcore.server._certificate_checks import check_dates
from uringcore.server._startup_errors import StartupError

__all__ = ["SNICertificate", "parse_sni_certificates", "read_sni_certificates"]

OPTION = "--ssl-sni-certificate"

logger = logging.getLogger("uvicorn.error")


@dataclass(frozen=True)
class SNICertificate:
    """The files of the certificate for one host."""

    host: str
    """A DNS name, or ``*.`` and a DNS name for all names with one more label."""

    certfile: str
    keyfile: str
    """The file of the private key. It may be the certificate's file."""


def parse_sni_certificates(texts: Iterable[str]) -> tuple[SNICertificate, ...]:
    """Reads options of the form ``HOST=CERTFILE:KEYFILE``, or ``HOST=FILE`` for one file with both. Raises
    :class:`StartupError`."""
    if isinstance(texts, str):
        raise StartupError(f"{OPTION}: must be a list of HOST=CERTFILE:KEYFILE, not a string")
    return tuple(parsed(text) for text in texts)


def parsed(text: str) -> SNICertificate:
    host, _, files = text.partition("=")
    # The last colon separates the files, because a path may contain one.
    certfile, _, keyfile = files.rpartition(":")
    certfile = certfile or keyfile
    if not host or not certfile or not keyfile or host == "*":
        raise StartupError(f"{OPTION}: {text!r} is not of the form HOST=CERTFILE:KEYFILE")
    return SNICertificate(host, certfile, keyfile)


def read_sni_certificates(
    certificates: Sequence[SNICertificate],
    password: str | None,
    former: Sequence[NamedCertificate],
) -> list[NamedCertificate]:
    """Returns the certificates in the files, in order. With ``former``, those that were read before, one that
    cannot be used is replaced by its former one, and an error is logged: the others are renewed all the same.

    Raises :class:`StartupError`, which names the option and the file, if there is no former one.
    """
    found = QuicConfiguration(is_client=False)
    for number, one in enumerate(certificates):
        try:
            load(found, one, password)
            check_dates(one.certfile)
        except StartupError as exc:
            if number >= len(former):
                raise
            logger.error("The certificate of %s was not reloaded: %s", one.host, exc)
            del found.named_certificates[number:]
            found.named_certificates.append(former[number])
    return found.named_certificates


def load(configuration: QuicConfiguration, one: SNICertificate, password: str | None) -> None:
    try:
        configuration.add_certificate(one.certfile, one.keyfile, password, server_names=[one.host])
    except (ImportError, QuicConfigurationError) as exc:
        said, path = str(exc), one.certfile
        if isinstance(exc, QuicConfigurationError):
            said, path = exc.message, one.keyfile if exc.field == "keyfile" else one.certfile
            if isinstance(exc.__cause__, OSError):
                said = exc.__cause__.strerror or said
        raise StartupError(f"{OPTION}: {path}: {said}") from None
