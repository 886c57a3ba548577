"""Reads certificates, private keys and authorities from the sources in a configuration.

Paths, PEM and DER bytes and ``cryptography`` objects become DER certificates and keys, and PEM authorities.
Not here: the checks that a key belongs to its certificate, and of the certificate's names
(:mod:`uringcore.quic._named_certificate`, and Rust).
"""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path
from typing import Any

from uringcore._buffer_arguments import contiguous_bytes, is_buffer
from uringcore._private_files import warn_if_exposed
from uringcore._uringcore import QuicClientSetup
from uringcore.quic._configuration_fields import ConfigurationFields
from uringcore.quic._errors import QuicConfigurationError
from uringcore.tls import (
    _certificate_to_der,
    _key_to_der,
    load_pem_private_key,
    load_pem_x509_certificates,
)

LOGGER = logging.getLogger("uringcore")


def identity(configuration: ConfigurationFields) -> tuple[list[bytes], bytes]:
    """Returns the certificate chain in DER, leaf first, and its private key."""
    chain = read_certificates("certificate", configuration.certificate)
    for item in configuration.certificate_chain:
        chain += read_certificates("certificate_chain", item)
    if configuration.private_key is None:
        raise QuicConfigurationError("private_key", "a certificate needs its private key")
    return chain, read_private_key("private_key", configuration.private_key)


def roots(configuration: ConfigurationFields) -> bytes | None:
    """Returns the authorities as PEM, or ``None`` for the system's.

    A given source without any authority is an error: the system's authorities are trusted only if no source
    is given.
    """
    pem: list[bytes] = []
    if configuration.cadata is not None:
        pem.append(_with_certificates("cadata", _bytes("cadata", configuration.cadata)))
    if configuration.cafile is not None:
        pem.append(_with_certificates("cafile", read_file("cafile", Path(configuration.cafile))))
    if configuration.capath is not None:
        pem.append(_read_directory(Path(configuration.capath)))
    return b"\n".join(pem) if pem else None


def read_certificates(name: str, value: Any) -> list[bytes]:
    """Returns DER certificates from DER or PEM bytes, a path, or a ``cryptography`` object."""
    if hasattr(value, "public_bytes"):
        return [_certificate_to_der(value)]
    data = _bytes_or_file(name, value)
    if b"-----BEGIN" not in data:
        return [data]
    try:
        return load_pem_x509_certificates(data)
    except ValueError as exc:
        raise QuicConfigurationError(name, str(exc)) from exc


def read_private_key(name: str, value: Any, password: bytes | None = None) -> bytes:
    """Returns a DER private key from DER or PEM bytes, a path, or a ``cryptography`` object."""
    if hasattr(value, "private_bytes"):
        return _key_to_der(value)
    if isinstance(value, (str, os.PathLike)):
        data = read_key(name, Path(value))
    else:
        data = _bytes_or_file(name, value)
    if b"-----BEGIN" not in data:
        return data
    try:
        return load_pem_private_key(data, password)
    except ValueError as exc:
        raise QuicConfigurationError(name, str(exc)) from exc


def _bytes_or_file(name: str, value: Any) -> bytes:
    if is_buffer(value):
        return _bytes(name, value)
    if isinstance(value, (str, os.PathLike)):
        return read_file(name, Path(value))
    raise QuicConfigurationError(
        name,
        f"must be a path, PEM or DER bytes, or a cryptography object, not {type(value).__name__}",
    )


def read_file(name: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as exc:
        raise QuicConfigurationError(name, f"cannot be read: {exc}") from exc


def read_key(name: str, path: Path) -> bytes:
    """Reads the file of a private key, and warns if other users may read the file."""
    data = read_file(name, path)
    warn_if_exposed(path, LOGGER, data)
    return data


def _bytes(name: str, value: Any) -> bytes:
    try:
        return contiguous_bytes(value, name)
    except TypeError:
        message = f"must be PEM bytes, not {type(value).__name__}"
    except BufferError:
        message = "must be PEM bytes in a contiguous buffer"
    raise QuicConfigurationError(name, message)


def _with_certificates(name: str, pem: bytes) -> bytes:
    if b"-----BEGIN CERTIFICATE-----" not in pem:
        raise QuicConfigurationError(name, "holds no certificate")
    return pem


def _read_directory(path: Path) -> bytes:
    """Every certificate in the files of a directory as PEM, each once.

    Such directories contain some files under several names, and files of other programs or without permission
    to read. OpenSSL ignores the latter, so they are ignored here.
    """
    found: dict[bytes, None] = {}
    passed_over: list[str] = []
    try:
        for entry in sorted(path.iterdir()):
            try:
                certificates = load_pem_x509_certificates(entry.read_bytes())
            except IsADirectoryError:
                continue
            except (OSError, ValueError) as exc:
                passed_over.append(f"{entry.name}: {exc}")
                continue
            for certificate in certificates:
                if QuicClientSetup._can_be_trusted(certificate):
                    found[certificate] = None
                else:
                    passed_over.append(f"{entry.name}: not a usable X.509 certificate")
    except OSError as exc:
        raise QuicConfigurationError("capath", f"cannot be read: {exc}") from exc
    if not found:
        why = "; ".join(passed_over[:3])
        raise QuicConfigurationError("capath", f"holds no certificate{why and f' ({why})'}")
    return "".join(ssl.DER_cert_to_PEM_cert(certificate) for certificate in found).encode()
