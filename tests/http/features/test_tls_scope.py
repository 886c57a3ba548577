"""ASGI's `tls` extension over HTTP/3, and the clients from which the server requests certificates."""

from __future__ import annotations

import json
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

import uringcore
import uringcore.http3
from tests.server.harness import command
from tests.support.certificates import make
from tests.support.handmade_certificates import with_subject
from uringcore.http3._unpooled_connection import connect as connect_origin
from uringcore.quic._errors import QuicConnectionError
from uringcore.quic.configuration import QuicConfiguration
from uringcore.server._certificate_subject import subject

pytestmark = pytest.mark.either_backend

TLS_1_3 = 0x0304
SUITES = {0x1301, 0x1302, 0x1303}


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return make(tmp_path_factory.mktemp("pki"))


def fetch(server, pki, identity=None):
    """Returns the extension that a request's application gets."""

    async def main():
        configuration = QuicConfiguration(
            is_client=True, alpn_protocols=["h3"], server_name="localhost"
        )
        configuration.load_verify_locations(cafile=str(pki.authority.certfile))
        if identity is not None:
            configuration.load_cert_chain(*identity.files)
        async with connect_origin(server.url, configuration=configuration) as client:
            return json.loads((await client.get("/scope")).content)["extensions"]["tls"]

    return uringcore.run(main())


def test_the_extension_contains_the_negotiated_parameters(server, certificate):
    told = json.loads(server.get("/scope").content)["extensions"]["tls"]
    assert told.pop("cipher_suite") in SUITES
    with open(certificate[0]) as file:
        assert told.pop("server_cert") == file.read()
    assert told == {
        "client_cert_chain": [],
        "client_cert_name": None,
        "client_cert_error": None,
        "tls_version": TLS_1_3,
    }


@pytest.mark.parametrize("demand", [ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED])
def test_a_clients_certificate_is_shown_to_the_application(start_features, pki, demand):
    server = start_features(
        "--ssl-cert-reqs",
        str(int(demand)),
        "--ssl-ca-certs",
        str(pki.authority.certfile),
        certificate=pki.server.files,
    )
    told = fetch(server, pki, pki.client)
    assert [pem.strip() for pem in told["client_cert_chain"]] == [pki.client.pem.decode().strip()]
    assert told["client_cert_name"] == "CN=uringcore test client,OU=tests,O=uringcore"
    if demand == ssl.CERT_OPTIONAL:
        assert fetch(server, pki)["client_cert_chain"] == []
    else:
        with pytest.raises(QuicConnectionError):
            fetch(server, pki)
    with pytest.raises(QuicConnectionError):
        fetch(server, pki, pki.stranger)


def test_a_self_signed_certificate_that_the_server_names_is_good(start_features, pki):
    server = start_features(
        "--ssl-cert-reqs",
        "2",
        "--ssl-ca-certs",
        str(pki.stranger.certfile),
        certificate=pki.server.files,
    )
    assert fetch(server, pki, pki.stranger)["client_cert_name"] == (
        "OU=uringcore test stranger,O=uringcore"
    )


def test_client_certificates_without_authorities_are_refused(certificate):
    certfile, keyfile = certificate
    options = ["--ssl-certfile", certfile, "--ssl-keyfile", keyfile, "--ssl-cert-reqs", "1"]
    done = command("tests.http.features.application:app", "--port", "0", *options)
    assert done.returncode != 0
    assert "--ssl-ca-certs" in done.stderr
    assert "Traceback" not in done.stderr


def test_debug_messages_of_an_application_are_logged_at_level_debug(server, start_features):
    loud = start_features("--log-level", "debug")
    for asked in (server, loud):
        assert asked.get("/debug").content == b"debugged"
    loud.wait_log("Debug information of an ASGI application: {'template': 'a.html'}")
    assert "a.html" not in server.log()


# The text of the name


NAMES = {
    "plain": [[(NameOID.COUNTRY_NAME, "DE")], [(NameOID.COMMON_NAME, "a.example")]],
    "escaped": [
        [(NameOID.ORGANIZATION_NAME, ' #"quoted", + <and> ; \\ equal=\N{GREEK SMALL LETTER PI} ')]
    ],
    "several": [[(NameOID.USER_ID, "u"), (NameOID.ORGANIZATIONAL_UNIT_NAME, "o")]],
    "long": [[(NameOID.COMMON_NAME, "x" * 64)] for _ in range(5)],
    "empty": [],
}


@pytest.mark.parametrize("parts", NAMES.values(), ids=NAMES.keys())
def test_a_subject_is_written_as_rfc_4514_wants(parts):
    name = x509.Name(
        x509.RelativeDistinguishedName([x509.NameAttribute(*pair) for pair in part])
        for part in parts
    )
    made = with_subject(name)
    der = made.public_bytes(encoding=Encoding.DER)
    text = subject(der)
    assert x509.Name.from_rfc4514_string(text) == made.subject if parts else text == ""


def test_an_unknown_attribute_is_a_number_and_what_is_no_certificate_has_no_name():
    name = x509.Name([x509.NameAttribute(x509.ObjectIdentifier("1.2.840.113549.1.9.1"), "a@b")])
    der = with_subject(name).public_bytes(encoding=Encoding.DER)
    assert subject(der).startswith("1.2.840.113549.1.9.1=#")
    for broken in (b"", b"\x30", b"\x30\x03\x02\x01", b"\x02\x01\x00", der[:40], der[:200]):
        assert subject(broken) is None
