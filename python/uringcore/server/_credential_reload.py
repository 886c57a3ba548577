"""Certificates and keys that are read again while the server runs, for QUIC and for TLS over TCP: both take
them, or neither.

_certificate_reload.py detects renewed files, and _config.py reads them.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Protocol

from uringcore._private_files import warn_if_exposed
from uringcore._uringcore import TlsServerSetup
from uringcore.quic._errors import QuicConfigurationError
from uringcore.quic.configuration import QuicConfiguration
from uringcore.server._certificate_checks import load_chain, quic_refusal, tcp_refusal
from uringcore.server._config import Config
from uringcore.server._native_tls import make_setup, renewed_files
from uringcore.server._startup_errors import StartupError

__all__ = ["reload_certificate", "reload_keys"]

logger = logging.getLogger("uvicorn.error")

CREDENTIALS = (
    "certificate",
    "certificate_chain",
    "named_certificates",
    "private_key",
    "stateless_reset_key",
    "token_key",
)
"""The fields of QUIC's configuration that a reload changes."""


class Listener(Protocol):
    """QUIC's endpoints, which take the present configuration for new connections."""

    def reload(self) -> None: ...


def reload_certificate(config: Config, listener: Listener | None) -> None:
    """Reads the certificate's files again, for new connections of TCP and of ``listener``.

    Raises :class:`StartupError` and changes nothing if they cannot be used.
    """
    with restoring(config, listener):
        config.check_certificates()
        has_rustls = config.tls_setup is not None
        files, pem = config.tls_files, None
        if has_rustls:
            files, pem = renewed_files(config), config.server_certificate_pem
        tls = new_setup(config, files)
        quic = None if listener is None else config.quic
        if quic is not None:
            with refusing(config):
                config.load_certificates_into(quic)
                quic.setup()
        if quic is not None and listener is not None:
            with refusing(config):
                listener.reload()
        # Last, because nothing undoes it.
        if config.ssl is not None:
            load_chain(config.ssl, config)
        config.tls_files = files
        renew_tls(config, tls)
        if has_rustls and config.http1 is not None:
            config.http1.renew_certificate(pem)


def reload_keys(config: Config, listener: Listener | None) -> None:
    """Reads the files of the keys again, for new connections of TCP and of ``listener``, and logs a line for
    each key that has changed. If a file or the socket cannot be used, logs an error and keeps the keys of
    both."""
    keys = config.keys
    try:
        with restoring(config, listener):
            changed = keys.read_again()
            # With the certificates that were read last: renewed ones are checked first.
            tls = new_setup(config, config.tls_files) if "token" in changed else None
            if changed and config.quic is not None and listener is not None:
                config.set_quic_keys(config.quic)
                listener.reload()
            renew_tls(config, tls)
    except (StartupError, OSError, ValueError) as exc:
        logger.error("The keys were not reloaded: %s", exc)
        return
    for kind in changed:
        warn_if_exposed(keys.files[kind], logger)
        logger.info("The %s key was reloaded from %s", kind, keys.files[kind])


def new_setup(config: Config, files: QuicConfiguration | None) -> TlsServerSetup | None:
    """Returns the settings of TLS over TCP; ``None`` if CPython's ``ssl`` or nothing does it."""
    if config.tls_setup is None or files is None:
        return None
    try:
        return make_setup(config, files)
    except (OSError, QuicConfigurationError) as exc:
        raise tcp_refusal(config, exc) from None


def renew_tls(config: Config, new: TlsServerSetup | None) -> None:
    if new is not None:
        config.tls_setup = new
        if config.http1 is not None:
            config.http1.renew_tls(new)


@contextlib.contextmanager
def restoring(config: Config, listener: Listener | None) -> Iterator[None]:
    """A context that undoes the changes of keys and of QUIC's configuration if it is left by an exception."""
    quic, keys = config.quic, (config.keys.token, config.keys.reset)
    named = config.named_certificates
    fields = {} if quic is None else {name: getattr(quic, name) for name in CREDENTIALS}
    try:
        yield
    except BaseException:
        config.keys.token, config.keys.reset = keys
        config.named_certificates = named
        for name, value in fields.items():
            setattr(quic, name, value)
        if quic is not None and listener is not None:
            # If one of several sockets has failed, those before it have the new setup.
            with contextlib.suppress(OSError, ValueError):
                listener.reload()
        raise


@contextlib.contextmanager
def refusing(config: Config) -> Iterator[None]:
    """A context whose errors become errors about the files that HTTP/3 uses."""
    try:
        yield
    except (ImportError, OSError, ValueError) as exc:
        raise quic_refusal(config, exc) from None
