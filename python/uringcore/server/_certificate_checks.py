"""Checks of the certificate files that an operator names: each file, and the key against its certificate.

They run before anything starts, and an error names the option and the file. uvicorn and QUIC make the TLS
contexts.
"""

from __future__ import annotations

import logging
import ssl
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from uvicorn.config import Config

from uringcore._uringcore import certificate_validity
from uringcore.quic._errors import QuicConfigurationError
from uringcore.server._startup_errors import StartupError
from uringcore.tls import load_pem_x509_certificates

__all__ = [
    "check_certificate",
    "clients_without_authorities",
    "load_chain",
    "quic_refusal",
    "tcp_refusal",
]

logger = logging.getLogger("uvicorn.error")


def check_certificate(config: Any) -> None:
    """Raises :class:`StartupError`; logs a warning if clients will refuse the certificate for its dates."""
    if not config.ssl_certfile:
        raise StartupError("--ssl-keyfile needs --ssl-certfile too")
    for option, path in (
        ("--ssl-certfile", config.ssl_certfile),
        ("--ssl-keyfile", config.ssl_keyfile),
        ("--ssl-ca-certs", config.ssl_ca_certs),
    ):
        if path is not None:
            try:
                Path(path).read_bytes()
            except OSError as exc:
                raise StartupError(f"{option}: {path}: {exc.strerror}") from None
    context = context_of(config.ssl_version)
    load_chain(context, config)
    set_clients(context, config)
    if config.ssl_ciphers:
        try:
            context.set_ciphers(config.ssl_ciphers)
        except ssl.SSLError:
            raise StartupError(
                f"--ssl-ciphers: OpenSSL has no cipher of {config.ssl_ciphers!r} "
                "(`openssl ciphers` lists them)"
            ) from None
    check_dates(config.ssl_certfile)


def context_of(version: int) -> ssl.SSLContext:
    try:
        return ssl.SSLContext(version)
    except ValueError:
        raise StartupError(
            f"--ssl-version: {version} is not one of this Python's ssl.PROTOCOL_ constants: "
            "leave it out"
        ) from None


def load_chain(context: ssl.SSLContext, config: Config) -> None:
    certfile = config.ssl_certfile
    assert certfile is not None
    keyfile = config.ssl_keyfile or certfile
    # A password is always passed. Otherwise OpenSSL would prompt for one, and a server may have no terminal.
    password = config.ssl_keyfile_password or ""
    try:
        context.load_cert_chain(certfile, config.ssl_keyfile, lambda: password)
    except ssl.SSLError as exc:
        if exc.reason == "KEY_VALUES_MISMATCH":
            text = f"--ssl-keyfile: {keyfile} is not the key of {certfile}"
        elif exc.reason == "EE_KEY_TOO_SMALL":
            text = f"--ssl-certfile: {certfile} has a key that is too small: RSA needs 2048 bits"
        elif b"ENCRYPTED" in Path(keyfile).read_bytes():
            how = "wrong" if config.ssl_keyfile_password else "missing"
            text = f"--ssl-keyfile: {keyfile} is encrypted: --ssl-keyfile-password is {how}"
        else:
            text = (
                f"--ssl-certfile/--ssl-keyfile: {certfile} and {keyfile} are not a "
                f"certificate and its key in PEM ({exc.reason or exc})"
            )
        raise StartupError(text) from None
    except OSError as exc:
        # The files were changed after they were read. OpenSSL does not say which one it could not open.
        raise StartupError(
            f"--ssl-certfile/--ssl-keyfile: {certfile}, {keyfile}: {exc.strerror}"
        ) from None


def set_clients(context: ssl.SSLContext, config: Config) -> None:
    """Checks the options for client certificates."""
    wanted = config.ssl_cert_reqs
    if wanted not in (ssl.CERT_NONE, ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED):
        raise StartupError(
            f"--ssl-cert-reqs: must be 0 (none), 1 (optional) or 2 (required), not {wanted}"
        )
    if config.ssl_ca_certs is not None:
        try:
            context.load_verify_locations(config.ssl_ca_certs)
        except ssl.SSLError:
            raise StartupError(
                f"--ssl-ca-certs: {config.ssl_ca_certs} has no certificate in PEM"
            ) from None
    elif wanted != ssl.CERT_NONE:
        raise clients_without_authorities(wanted)


def clients_without_authorities(wanted: int) -> StartupError:
    """Returns the error for clients that need a certificate which nothing could verify."""
    return StartupError(
        f"--ssl-cert-reqs {int(wanted)} needs --ssl-ca-certs: the authorities of the clients"
    )


def check_dates(certfile: Any) -> None:
    """Logs a warning only, because the file may be renewed while the server runs."""
    certificate = load_pem_x509_certificates(Path(certfile).read_bytes())[0]
    since, until = (
        datetime.fromtimestamp(seconds, timezone.utc)
        for seconds in certificate_validity(certificate)
    )
    now = datetime.now(timezone.utc)
    if now > until:
        what = f"expired on {until:%Y-%m-%d %H:%M} UTC: clients refuse it until it is renewed"
    elif now < since:
        what = f"is not valid before {since:%Y-%m-%d %H:%M} UTC: clients refuse it until then"
    else:
        return
    logger.warning("The certificate in %s %s.", certfile, what)


def quic_refusal(config: Config, error: Exception) -> StartupError:
    """Returns the error for files that TLS over TCP accepts and HTTP/3 does not."""
    text = refusal_text(config, error)
    return StartupError(f"HTTP/3 cannot use {text} (--no-http3 serves without HTTP/3)")


def tcp_refusal(config: Config, error: Exception) -> StartupError:
    """Returns the error for renewed files that TLS over TCP cannot use."""
    return StartupError(f"TLS over TCP cannot use {refusal_text(config, error)}")


def refusal_text(config: Config, error: Exception) -> str:
    """Returns the option and the file of an error, and its reason."""
    option, path = "the certificate", ""
    said = str(error)
    if isinstance(error, QuicConfigurationError):
        said = error.message
        files = {
            "certificate": ("--ssl-certfile", config.ssl_certfile),
            "private_key": ("--ssl-keyfile", config.ssl_keyfile or config.ssl_certfile),
            "cafile": ("--ssl-ca-certs", config.ssl_ca_certs),
        }
        if error.field in files:
            option, file = files[error.field]
            # Some errors name the file themselves.
            path = "" if file is None or said.startswith(f"{file}: ") else f": {file}"
    return f"{option}{path}: {said}"
