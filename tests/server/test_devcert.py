"""OpenSSL and `cryptography` read the certificate of `--dev-cert`."""

import hashlib
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from uringcore.devcert import DevelopmentCertificate


def handshake(made, folder, name):
    """Runs a TLS handshake in memory with strict verification by RFC 5280."""
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(*made.write(folder))
    client_side = ssl.create_default_context(cadata=made.certificate_pem.decode())
    client_side.verify_flags |= ssl.VERIFY_X509_STRICT
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_side.wrap_bio(back, there, server_hostname=name)
    server = server_side.wrap_bio(there, back, server_side=True)
    waiting = [client, server]
    while waiting:
        try:
            waiting[0].do_handshake()
            waiting.pop(0)
        except ssl.SSLWantReadError:
            waiting.reverse()
    return client.version()


def test_an_unwritable_folder_of_a_certificate_is_named(tmp_path):
    folder = tmp_path / "missing"
    with pytest.raises(FileNotFoundError, match="cannot be made in its folder: No such") as caught:
        DevelopmentCertificate.make().write(folder)
    assert caught.value.filename == str(folder / "cert.pem")
    assert list(tmp_path.iterdir()) == []


# The names take more bytes than DER lengths of one and of two bytes can express.
MANY = [f"{index}.{'x' * 40}.example.org" for index in range(1500)]


@pytest.mark.parametrize("names", [["localhost", "127.0.0.1", "::1"], ["*.example.org"], MANY])
def test_a_development_certificate_has_the_requested_names(names):
    made = DevelopmentCertificate.make(names, 3)
    certificate = x509.load_pem_x509_certificate(made.certificate_pem)
    certificate.verify_directly_issued_by(certificate)
    key = load_pem_private_key(made.key_pem, None)
    assert key.public_key() == certificate.public_key()
    assert made.sha256 == hashlib.sha256(certificate.public_bytes(Encoding.DER)).digest()
    lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    assert lifetime.total_seconds() == 3 * 24 * 3600
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = found.get_values_for_type(x509.IPAddress)
    assert [*found.get_values_for_type(x509.DNSName), *map(str, addresses)] == names
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    assert usage.value.digital_signature
    assert not usage.value.key_cert_sign
    other = x509.load_pem_x509_certificate(DevelopmentCertificate.make(names, 3).certificate_pem)
    assert other.serial_number != certificate.serial_number


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("localhost", "example.org"), ("127.0.0.1", "127.0.0.2"), ("::1", "::2")],
)
def test_a_client_that_trusts_a_development_certificate_connects(name, wrong, tmp_path):
    made = DevelopmentCertificate.make()
    assert handshake(made, tmp_path, name) == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(made, tmp_path, wrong)
