"""TLS over TCP for native HTTP/1.1 and HTTP/2: rustls in the extension, with the certificates of HTTP/3.

Records pass no Python. Options that rustls cannot express make the server use CPython's ``ssl`` for TCP
instead, with a line in the log: a program's ``ssl_context_factory``, ``--ssl-version``, ``--ssl-ciphers``,
and keys that rustls does not support.

The application protocols (ALPN) that a server offers are here for both.

Session tickets are sealed with the secret of HTTP/3's address tokens (``--http3-token-key``), or one that all
processes of the server share.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from typing import Any

from uringcore._uringcore import TlsServerSetup
from uringcore.quic._credential_loading import identity, roots
from uringcore.quic._errors import QuicConfigurationError
from uringcore.quic.configuration import QuicConfiguration
from uringcore.server._certificate_checks import clients_without_authorities
from uringcore.server._startup_errors import StartupError

__all__ = [
    "ALPN",
    "make_setup",
    "offer_versions",
    "read_files",
    "setup_or_none",
    "with_alpn",
]

ALPN = ("h2", "http/1.1")
"""The application protocols, the preferred one first."""

DEFAULT_CIPHERS = (None, "TLSv1")
"""uvicorn's default for ``ssl_ciphers``, and that of its older versions."""

logger = logging.getLogger("uvicorn.error")

ContextFactory = Callable[[Any, Callable[[], ssl.SSLContext]], ssl.SSLContext]


def setup_or_none(config: Any) -> TlsServerSetup | None:
    """Returns the settings of rustls; ``None`` if CPython's ``ssl`` has to be used, which is logged. Raises
    :class:`StartupError`."""
    why = reason_for_openssl(config)
    if why is None:
        try:
            config.tls_files = read_files(config)
            return make_setup(config, config.tls_files)
        except QuicConfigurationError as exc:
            why = f"{exc.field}: {exc.message}"
        except ImportError as exc:
            why = str(exc)
    if config.sni_certificates:
        raise StartupError(f"--ssl-sni-certificate: Python's ssl module cannot use it: {why}")
    logger.info("TLS over TCP uses Python's ssl module: %s", why)
    return None


def reason_for_openssl(config: Any) -> str | None:
    """Returns the option that rustls cannot express."""
    if config.ssl_context_factory is not None:
        return "ssl_context_factory makes the context"
    if config.ssl_version != ssl.PROTOCOL_TLS_SERVER:
        return "--ssl-version is set"
    if config.ssl_ciphers not in DEFAULT_CIPHERS:
        return "--ssl-ciphers is set"
    return None


def read_files(config: Any) -> QuicConfiguration:
    """Reads the certificate's files.

    Raises :class:`QuicConfigurationError`, and ``ImportError`` for an encrypted key without the package that
    decrypts it; :class:`StartupError` if clients need a certificate that nothing could verify.
    """
    if config.ssl_cert_reqs and config.ssl_ca_certs is None:
        # Without authorities the extension would ask clients for no certificate.
        raise clients_without_authorities(config.ssl_cert_reqs)
    files = QuicConfiguration(
        is_client=False,
        verify_mode=ssl.VerifyMode(config.ssl_cert_reqs) if config.ssl_cert_reqs else None,
    )
    files.load_cert_chain(config.ssl_certfile, config.ssl_keyfile, config.ssl_keyfile_password)
    files.named_certificates = list(config.named_certificates)
    if config.ssl_ca_certs is not None:
        files.load_verify_locations(cafile=str(config.ssl_ca_certs))
    return files


def make_setup(config: Any, files: QuicConfiguration) -> TlsServerSetup:
    """Returns the settings of rustls. Raises :class:`QuicConfigurationError`."""
    chain, key = identity(files)
    return TlsServerSetup(
        # rustls refuses a client that offers protocols but none of these (RFC 7301). Some old clients offer
        # only HTTP/1.0.
        alpn=[name.encode() for name in (*ALPN, "http/1.0")],
        certificate_chain=chain,
        client_required=config.ssl_cert_reqs == ssl.CERT_REQUIRED,
        client_roots=roots(files) if config.ssl_cert_reqs else None,
        named_certificates=[one._fields() for one in files.named_certificates],
        private_key=key,
        ticket_keys=config.keys.token or [config.ticket_key],
    )


def offer_versions(config: Any, context: ssl.SSLContext) -> None:
    """Sets the ALPN of an ``ssl`` context to the HTTP versions that the server implements. Without ALPN, a
    handshake would succeed with a client that offers only other versions, and the first request would fail.

    Does nothing if the class of ``--http`` has the attribute ``alpn_protocols``: uvicorn sets ALPN from it.
    """
    if getattr(config.http_protocol_class, "alpn_protocols", None) is None:
        context.set_alpn_protocols(ALPN if config.is_native_http else ALPN[1:])


def with_alpn(config: Any, make_context: ContextFactory) -> ContextFactory:
    """Wraps a user's factory of SSL contexts. The default context that the factory gets has the server's
    ALPN."""

    def make(given: Any, default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        def offering() -> ssl.SSLContext:
            context = default()
            offer_versions(config, context)
            return context

        return make_context(given, offering)

    return make
