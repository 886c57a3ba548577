"""The authorities that QUIC trusts: exactly those that TCP trusts.

OpenSSL verifies with an SSL context, and QUIC needs the certificates of the authorities. This module finds
them; it verifies nothing.
"""

from __future__ import annotations

import os
import re
import ssl
from types import ModuleType
from typing import Any

from uringcore.contrib.httpx._httpx_modules import is_httpx2
from uringcore.http3._client import pooled_configuration
from uringcore.quic.configuration import QuicConfiguration

__all__ = ["quic_configuration", "tls_context"]

# Paths at which Linux distributions keep their trusted authorities (from truststore). They are tried if
# OpenSSL's own paths do not exist.
BUNDLES = (
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/ca-bundle.pem",
)

HASHED = re.compile(r"[0-9a-fA-F]{8}\.[0-9]")

Verify = ssl.SSLContext | str | bool


def tls_context(library: Any, verify: Verify, cert: Any, trust_env: bool) -> ssl.SSLContext:
    """Returns the SSL context for TCP, made by the library, which warns about paths and ``cert`` itself."""
    context: ssl.SSLContext
    if isinstance(verify, str):
        context = ssl.create_default_context(**at(verify))
    else:
        context = library.create_ssl_context(verify=verify, trust_env=trust_env)
    if cert is not None:
        context.load_cert_chain(*((cert,) if isinstance(cert, str) else cert))
    return context


def quic_configuration(
    library: ModuleType, context: ssl.SSLContext, verify: Verify, cert: Any, trust_env: bool
) -> QuicConfiguration:
    """Returns a QUIC configuration with the trust of ``context``, which was made from ``verify``.

    Raises ``ValueError`` for a context with unknown authorities.
    """
    verifies = context.verify_mode != ssl.CERT_NONE
    configuration = pooled_configuration(verify=verifies)
    locations = named(verify, trust_env)
    if locations:
        configuration.load_verify_locations(**locations)
    elif verifies:
        configuration.load_verify_locations(**authorities(library, context, verify))
    if cert is not None:
        configuration.load_cert_chain(*((cert,) if isinstance(cert, str) else cert))
    return configuration


def named(verify: Verify, trust_env: bool) -> dict[str, Any]:
    """Returns the files of authorities named by the user, or by the environment in httpx's manner."""
    if isinstance(verify, str):
        return at(verify)
    if verify is True and trust_env:
        for name, kind in (("SSL_CERT_FILE", "cafile"), ("SSL_CERT_DIR", "capath")):
            path = os.environ.get(name)
            if path:
                return {kind: path}
    return {}


def authorities(library: ModuleType, context: Any, verify: Verify) -> dict[str, Any]:
    """Returns the authorities of a context, as arguments of ``QuicConfiguration.load_verify_locations``."""
    try:
        loaded = context.get_ca_certs(binary_form=True)
    except NotImplementedError:
        # A truststore context trusts the system's authorities, and those that a program has loaded into its
        # inner context.
        return {**system(reads_environment=True), **inside(context)}
    if verify is True and is_httpx2(library):
        return system(reads_environment=False)
    if not loaded:
        raise unreadable()
    return as_cadata(loaded)


def inside(context: Any) -> dict[str, Any]:
    """Returns the inner context of a truststore context, which has the authorities that the program has
    loaded.
    """
    inner = getattr(context, "_ctx", None)
    if inner is None or not inner.cert_store_stats()["x509"]:
        return {}
    loaded = inner.get_ca_certs(binary_form=True)
    if not loaded:
        raise unreadable()
    return as_cadata(loaded)


def unreadable() -> ValueError:
    return ValueError(
        "verify: the authorities of this SSL context cannot be read (authorities in a directory, "
        "or a certificate of no authority): give the path instead, or a configuration"
    )


def as_cadata(certificates: list[bytes]) -> dict[str, Any]:
    return {"cadata": "".join(map(ssl.DER_cert_to_PEM_cert, certificates)).encode()}


def system(*, reads_environment: bool) -> dict[str, Any]:
    """Returns OpenSSL's system authorities, whose paths SSL_CERT_FILE and SSL_CERT_DIR may override."""
    paths = ssl.get_default_verify_paths()
    cafile, capath = paths.cafile, paths.capath
    if not reads_environment:
        cafile, capath = paths.openssl_cafile, paths.openssl_capath
    found: dict[str, Any] = {}
    if cafile and os.path.isfile(cafile):
        found["cafile"] = cafile
    if capath and os.path.isdir(capath) and any(map(HASHED.fullmatch, os.listdir(capath))):
        found["capath"] = capath
    if not found:
        bundle = next(filter(os.path.isfile, BUNDLES), None)
        found = {} if bundle is None else {"cafile": bundle}
    return found


def at(path: str) -> dict[str, Any]:
    return {"capath" if os.path.isdir(path) else "cafile": path}
