"""``--ssl-sni-certificate``: certificates for clients that request another host (RFC 6066 section 3).

QUIC and TLS over TCP get them in a :class:`QuicConfiguration`; Rust selects one in a handshake.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from uringcore.quic._errors import QuicConfigurationError
from uringcore.quic.configuration import QuicConfiguration
from uringcore.server._startup_errors import StartupError

__all__ = ["SNICertificate", "load_sni_certificates", "parse_sni_certificates"]

OPTION = "--ssl-sni-certificate"


@dataclass(frozen=True)
class SNICertificate:
    """The files of the certificate for one host."""

    host: str
    """A DNS name, or ``*.`` and a DNS name for all names with one more label."""

    certfile: str
    keyfile: str
    """The same file, if it contains both."""


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


def load_sni_certificates(
    configuration: QuicConfiguration,
    certificates: Iterable[SNICertificate],
    password: str | None,
) -> None:
    """Reads the files into a server's configuration, in place of its former certificates of this kind.

    Raises :class:`StartupError`, which names the option and the file, and then changes nothing.
    """
    before = configuration.named_certificates
    configuration.named_certificates = []
    try:
        for one in certificates:
            load(configuration, one, password)
    except BaseException:
        configuration.named_certificates = before
        raise


def load(configuration: QuicConfiguration, one: SNICertificate, password: str | None) -> None:
    for path in (one.certfile, one.keyfile):
        try:
            Path(path).read_bytes()
        except OSError as exc:
            raise StartupError(f"{OPTION}: {path}: {exc.strerror}") from None
    try:
        configuration.add_certificate(one.certfile, one.keyfile, password, server_names=[one.host])
    except (ImportError, QuicConfigurationError) as exc:
        said, path = str(exc), one.certfile
        if isinstance(exc, QuicConfigurationError):
            said, path = exc.message, one.keyfile if exc.field == "keyfile" else one.certfile
        raise StartupError(f"{OPTION}: {path}: {said}") from None
