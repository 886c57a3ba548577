"""Certificates and keys that are read again while the server runs, for QUIC and for TLS over TCP: both take
them, or neither.

_certificate_reload.py detects renewed files, and _config.py reads them.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Protocol

from uringcore._private_files import warn_if_exposed
from uringcore._uringcore import TlsServerSetup
from uringcore.server._certificate_checks import load_chain, quic_refusal, tcp_refusal
from uringcore.server._config import Config
from uringcore.server._native_tls import make_setup, read_files
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
        files = setup = pem = None
        if config.tls_setup is not None:
            with refusing(tcp_refusal, config):
                files = read_files(config)
                setup = make_setup(config, files)
            pem = config.server_certificate_pem
        if config.quic is not None and listener is not None:
            with refusing(quic_refusal, config):
                config.load_certificates_into(config.quic)
                config.quic.setup()
                listener.reload()
        # Last, because nothing undoes it.
        if config.ssl is not None:
            load_chain(config.ssl, config)
        if setup is not None:
            config.tls_files = files
            use_setup(config, setup)
            if config.http1 is not None:
                config.http1.renew_certificate(pem)


def reload_keys(config: Config, listener: Listener | None) -> None:
    """Reads the files of the keys again, for new connections of TCP and of ``listener``, and logs a line for
    each key that has changed. If a file or the socket cannot be used, logs an error and keeps the keys of
    both."""
    keys = config.keys
    try:
        with restoring(config, listener):
            changed = keys.read_again()
            setup = None
            if "token" in changed and config.tls_files is not None:
                # With the certificates that were read last: renewed ones are checked first.
                with refusing(tcp_refusal, config):
                    setup = make_setup(config, config.tls_files)
            if changed and config.quic is not None and listener is not None:
                config.set_quic_keys(config.quic)
                listener.reload()
            if setup is not None:
                use_setup(config, setup)
    except (StartupError, OSError, ValueError) as exc:
        logger.error("The keys were not reloaded: %s", exc)
        return
    for kind in changed:
        warn_if_exposed(keys.files[kind], logger)
        logger.info("The %s key was reloaded from %s", kind, keys.files[kind])


def use_setup(config: Config, setup: TlsServerSetup) -> None:
    """Sets TLS over TCP for new connections."""
    config.tls_setup = setup
    if config.http1 is not None:
        config.http1.renew_tls(setup)


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
def refusing(
    refusal: Callable[[Config, Exception], StartupError], config: Config
) -> Iterator[None]:
    """A context whose errors become those that ``refusal`` makes of them."""
    try:
        yield
    except (ImportError, OSError, ValueError) as exc:
        raise refusal(config, exc) from None
