"""Ed448 keys and certificates, with aioquic (whose cryptography is OpenSSL's) as the other side."""

from __future__ import annotations

import dataclasses
import ssl

import pytest

from tests.quic.aioquic_peer import aioquic_client, aioquic_serving, verifying
from tests.quic.harness import Echo, Recorder, serving
from tests.support import certificates, handmade_certificates
from uringcore.asyncio import connect
from uringcore.quic._errors import QuicCertificateError
from uringcore.tls import AlertDescription

pytestmark = pytest.mark.either_backend

aioquic_asyncio = pytest.importorskip("aioquic.asyncio")
aioquic_tls = pytest.importorskip("aioquic.tls")
ed448 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed448")


@pytest.fixture(scope="module")
def of_ed448(pki, tmp_path_factory):
    """The certificates of the tests, but the authority, the server and the client have Ed448 keys."""
    directory = tmp_path_factory.mktemp("ed448")

    def issue(name, issuer, *hosts):
        key = ed448.Ed448PrivateKey.generate()
        return handmade_certificates.with_key(directory, name, issuer, hosts, key=key)

    authority = issue("authority", None)
    return dataclasses.replace(
        pki,
        authority=authority,
        server=issue("server", authority, *certificates.LOCAL),
        client=issue("client", authority, "client.example"),
        stranger=issue("stranger", None),
    )


def identified(configuration, identity, as_files):
    """`configuration` with a certificate and its key, from files or as `cryptography`'s objects."""
    if as_files:
        configuration.load_cert_chain(identity.certfile, identity.keyfile)
    else:
        configuration.certificate, configuration.private_key = identity.certificate, identity.key
    return configuration


@pytest.mark.parametrize("as_files", [True, False], ids=["files", "objects"])
def test_aioquics_client_verifies_our_certificate(run, of_ed448, server_configuration, as_files):
    async def main():
        configuration = identified(server_configuration(), of_ed448.server, as_files)
        async with (
            serving(configuration, Echo) as (port, _),
            aioquic_asyncio.connect(
                "127.0.0.1", port, configuration=aioquic_client(of_ed448)
            ) as client,
        ):
            await client.ping()
            assert client._quic.tls._peer_certificate == of_ed448.server.certificate

    run(main())


def test_our_client_verifies_aioquics_certificate(run, of_ed448, client_configuration):
    async def main():
        async with aioquic_serving(of_ed448) as port:
            configuration = client_configuration(authority=of_ed448.authority)
            async with connect("127.0.0.1", port, configuration=configuration) as client:
                await client.ping()
            stranger = client_configuration(authority=of_ed448.stranger)
            with pytest.raises(QuicCertificateError) as caught:
                async with connect("127.0.0.1", port, configuration=stranger):
                    pass
            assert caught.value.alert == AlertDescription.unknown_ca

    run(main())


def test_clients_with_ed448_certificates_are_known(
    run, of_ed448, server_configuration, client_configuration
):
    async def main():
        server = identified(
            server_configuration(verify_mode=ssl.CERT_REQUIRED), of_ed448.server, True
        )
        server.load_verify_locations(cafile=str(of_ed448.authority.certfile))
        ours = client_configuration(authority=of_ed448.authority)
        theirs = aioquic_client(of_ed448)
        expected = of_ed448.client.der
        async with serving(server, Recorder) as (port, protocols):
            for connecting, configuration, as_files in (
                (connect, ours, False),
                (aioquic_asyncio.connect, theirs, True),
            ):
                identified(configuration, of_ed448.client, as_files)
                async with connecting("127.0.0.1", port, configuration=configuration) as client:
                    await client.ping()
                    assert protocols[-1]._quic.get_peer_certificates() == [expected]

    run(main())


def test_it_stands_beside_other_kinds_under_one_name(run, pki, of_ed448, server_configuration):
    async def main():
        configuration = server_configuration()
        configuration.add_certificate(
            of_ed448.server.certfile, of_ed448.server.keyfile, server_names=["*"]
        )
        assert configuration.named_certificates[0].key_kind == "ed448"
        async with serving(configuration, Echo) as (port, _):
            for authority, only, expected in (
                (pki, aioquic_tls.SignatureAlgorithm.ECDSA_SECP256R1_SHA256, pki.server),
                (of_ed448, aioquic_tls.SignatureAlgorithm.ED448, of_ed448.server),
            ):
                async with aioquic_asyncio.connect(
                    "127.0.0.1",
                    port,
                    configuration=aioquic_client(authority),
                    create_protocol=verifying(only),
                ) as client:
                    await client.ping()
                    assert client._quic.tls._peer_certificate == expected.certificate

    run(main())
