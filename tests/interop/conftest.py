"""aioquic as a process, for the tests that run one text on both libraries."""

from __future__ import annotations

import datetime
import ipaddress
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.children import bound

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

Command = list[str]


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate for localhost and its key. It is its own authority, marked as one: Go insists."""
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
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("certificate")
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "key.pem").write_bytes(private)
    return str(folder / "cert.pem"), str(folder / "key.pem")


@pytest.fixture
def peer() -> Command:
    """The command of aioquic's side, to which a role and its options are added."""
    pytest.importorskip("aioquic")
    return [sys.executable, "-m", "tests.interop.endpoint"]


@pytest.fixture
def start_peer() -> Iterator[Callable[[Command], subprocess.Popen[str]]]:
    """Starts a peer in the repository's root; it is killed at the test's end if it still runs."""
    started: list[subprocess.Popen[str]] = []

    def start(command: Command) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            bound(command), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
