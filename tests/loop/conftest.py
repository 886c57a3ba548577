"""Fixtures of the loop's tests."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.loop.support import BACKENDS, LOOPS, Runner


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """Runs a coroutine on stock asyncio and on both of our backends, one after the other."""
    runner = Runner(request.param)
    yield runner
    assert runner.complaints.contexts == []


@pytest.fixture(params=BACKENDS)
def run_ours(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """Runs a coroutine on both of our backends: for what asyncio does not have."""
    runner = Runner(request.param)
    yield runner
    assert runner.complaints.contexts == []


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for localhost and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("certificate")
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "key.pem").write_bytes(private)
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture(scope="session")
def server_tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    """A server's context with the test certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


@pytest.fixture(scope="session")
def client_tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    """A client's context that trusts the test certificate."""
    return ssl.create_default_context(cafile=str(certificate[0]))
