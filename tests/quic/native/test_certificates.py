"""Several certificates of a typed server, chosen by the client's name and by what it can verify."""

from __future__ import annotations

import ssl

import pytest

from tests.quic.aioquic_peer import AioquicRecorder, aioquic_asyncio, aioquic_client, verifying
from tests.quic.harness import eventually
from tests.quic.native.connection_pairs import client_config, connecting, listening, server_config
from uringcore import quic

pytestmark = pytest.mark.either_backend

aioquic_tls = pytest.importorskip("aioquic.tls")
serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")


@pytest.fixture(scope="module")
def named(issue):
    return {
        "first": issue("first", "first.example", "localhost", "127.0.0.1"),
        "wild": issue("wild", "*.one.example"),
        "special": issue("special", "special.one.example", "other.example"),
    }


def files(identity):
    return identity.certfile, identity.keyfile


async def shown(pki, listener, name, **fields):
    """Returns the certificate that the server presents to a client that asks for ``name``."""
    async with connecting(pki, listener, server_name=name, **fields) as one:
        return one.peer_certificate


async def shown_to_aioquic(pki, listener, name, *algorithms):
    async with aioquic_asyncio.connect(
        *listener.address,
        configuration=aioquic_client(pki, server_name=name),
        create_protocol=verifying(*algorithms) if algorithms else AioquicRecorder,
    ) as client:
        await client.ping()
        return client._quic.tls._peer_certificate


def test_a_client_gets_the_certificate_of_its_server_name(run, pki, named):
    given = [
        files(named["first"]),
        quic.Certificate(*files(named["wild"])),
        quic.Certificate(*files(named["special"]), server_names=["Special.one.example"]),
    ]

    async def main():
        async with listening(pki, certificate=None, certificates=given) as listener:
            for name, expected in {
                "first.example": "first",
                "localhost": "first",
                "any.one.example": "wild",
                "special.one.example": "special",
            }.items():
                # Both clients verify that the certificate is valid for the name.
                assert await shown(pki, listener, name) == named[expected].der
                assert await shown_to_aioquic(pki, listener, name) == named[expected].certificate
            # An IP address sends no server name, and the others are names without a certificate: both get the
            # first one.
            assert await shown(pki, listener, None) == named["first"].der
            for name in ("other.example", "two.example"):
                got = await shown(pki, listener, name, verify=False, authorities=None)
                assert got == named["first"].der

    run(main())


def test_certificates_of_a_call_go_before_those_of_the_settings(run, pki, named):
    async def main():
        settings = server_config(pki)
        several = [files(named["first"]), files(named["wild"])]
        async with quic.listen("127.0.0.1", 0, settings, certificates=several) as listener:
            assert await shown(pki, listener, "a.one.example") == named["wild"].der
            assert await shown(pki, listener, None) == named["first"].der
        settings = server_config(pki, certificate=None, certificates=several)
        single = files(pki.server)
        async with quic.listen("127.0.0.1", 0, settings, certificate=single) as listener:
            assert await shown(pki, listener, "localhost") == pki.server.der
        async with quic.listen("127.0.0.1", 0, certificates=several, alpn=["test"]) as listener:
            assert await shown(pki, listener, "b.one.example") == named["wild"].der

    run(main())


def test_a_client_is_shown_a_certificate_that_it_can_verify(run, pki, issue):
    key = rsa.generate_private_key(65537, 2048)
    ec, of_rsa = issue("of-ec", "one.example"), issue("of-rsa", "one.example", key=key)
    given = [files(ec), quic.Certificate(*files(of_rsa), server_names=["one.example", "*"])]
    algorithm = aioquic_tls.SignatureAlgorithm

    async def main():
        async with listening(pki, certificate=None, certificates=given) as listener:
            for algorithms, expected in (
                ([algorithm.RSA_PSS_RSAE_SHA256], of_rsa),
                ([algorithm.ECDSA_SECP256R1_SHA256], ec),
                # The order of the server's certificates decides.
                ([algorithm.RSA_PSS_RSAE_SHA256, algorithm.ECDSA_SECP256R1_SHA256], ec),
            ):
                got = await shown_to_aioquic(pki, listener, "one.example", *algorithms)
                assert got == expected.certificate
            # A client without a known name gets one of the first certificates or of those under "*".
            configuration = aioquic_client(pki, server_name="two.example")
            configuration.verify_mode = ssl.CERT_NONE
            async with aioquic_asyncio.connect(
                *listener.address,
                configuration=configuration,
                create_protocol=verifying(algorithm.RSA_PSS_RSAE_SHA256),
            ) as client:
                await client.ping()
                assert client._quic.tls._peer_certificate == of_rsa.certificate

    run(main())


def test_a_key_may_be_encrypted_or_in_the_certificates_file(run, pki, tmp_path):
    encrypted = pki.server.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    keyfile, both = tmp_path / "encrypted.key", tmp_path / "both.pem"
    keyfile.write_bytes(encrypted)
    both.write_bytes(pki.server.pem + pki.server.keyfile.read_bytes())
    given = [
        quic.Certificate(pki.server.certfile, keyfile, password="secret"),
        quic.Certificate(pki.server.pem, encrypted, password=b"secret"),
        quic.Certificate(both),
        quic.Certificate(both.read_bytes()),
    ]

    async def main():
        for certificate in given:
            assert "secret" not in repr(certificate)
            async with listening(pki, certificate=certificate) as listener:
                assert await shown(pki, listener, "localhost") == pki.server.der

    run(main())
    for wrong in (
        quic.Certificate(pki.server.certfile, keyfile),
        quic.Certificate(pki.server.certfile, keyfile, password="wrong"),
        quic.Certificate(pki.server.certfile),
        quic.Certificate(pki.server.certfile, keyfile, password=7),
    ):
        with pytest.raises(quic.QuicConfigurationError) as caught:
            server_config(pki, certificate=wrong)
        assert caught.value.field == "certificate"


def test_clients_may_show_a_certificate_or_have_to(run, pki):
    of_client = (pki.client.certfile, pki.client.keyfile)

    async def main():
        fields = {"client_authorities": pki.authority.certfile}
        async with listening(pki, **fields, client_certificate_required=False) as listener:
            for certificate, expected in ((None, None), (of_client, pki.client.der)):
                async with connecting(pki, listener, certificate=certificate):
                    async with await listener.accept() as other:
                        assert other.peer_certificate == expected
        async with listening(pki, **fields) as listener:
            async with connecting(pki, listener, certificate=of_client):
                async with await listener.accept() as other:
                    assert other.peer_certificate == pki.client.der
            # The client's handshake is complete before the server has verified the client's certificate (RFC
            # 8446 section 4.4.2.4).
            refused = await connecting(pki, listener)
            await refused.wait_closed()
            with pytest.raises(quic.QuicTlsError):
                await refused.ping()

    run(main())


def test_a_session_is_resumed_under_its_name_alone(run, pki, named):
    several = [files(named["first"]), files(named["wild"])]

    async def main():
        async with listening(pki, certificate=None, certificates=several) as listener:
            async with connecting(pki, listener, server_name="a.one.example") as one:
                await eventually(lambda: one.session_ticket is not None)
                ticket = one.session_ticket
            for name, resumes in (("b.one.example", False), ("a.one.example", True)):
                fields = {"server_name": name, "session_ticket": ticket}
                async with connecting(pki, listener, **fields) as one:
                    assert one.is_resumed is resumes

    run(main())


def test_a_wrong_certificate_is_named(pki, named, tmp_path):
    def refused(field, match, **fields):
        fields.setdefault("certificate", None)
        with pytest.raises(quic.QuicConfigurationError, match=match) as caught:
            server_config(pki, **fields)
        assert caught.value.field == field

    first, wild = files(named["first"]), files(named["wild"])
    refused("certificate", "needs one")
    refused("certificates", "with certificate", certificate=first, certificates=[wild])
    refused("certificates", "list", certificates=quic.Certificate(*first))
    refused("certificates", "certificate 1: must be a Certificate", certificates=[first[0]])
    refused("certificates", "certificate 2: .*read", certificates=[first, (tmp_path / "no", b"")])
    mixed = (named["wild"].certfile, named["first"].keyfile)
    for number, given in ((1, [mixed, wild]), (2, [first, mixed])):
        refused("certificates", f"certificate {number}: .*key", certificates=given)
    refused("certificates", "certificate 2: .*twice", certificates=[first, first])
    unlike = quic.Certificate(*mixed, server_names=["*"])
    refused("certificates", "certificate 1: .*key", certificates=[unlike, first])
    for names in (["two.example"], [], "one.example", [7], ["*.example"]):
        for given in (
            [first, quic.Certificate(*wild, server_names=names)],
            [quic.Certificate(*first, server_names=names), wild],
        ):
            refused("certificates", "certificate [12]: ", certificates=given)
    one = quic.Certificate(*first, server_names=["first.example"])
    refused("certificate", "server_names", certificate=one)
    with pytest.raises(quic.QuicConfigurationError) as caught:
        client_config(pki, certificate=one)
    assert caught.value.field == "certificate"
    refused(
        "client_authorities", "read", certificate=first, client_authorities=str(tmp_path / "none")
    )
    refused("client_authorities", "no certificate", certificate=first, client_authorities=b"none")
    refused(
        "client_certificate_required", "needs", certificate=first, client_certificate_required=False
    )


def test_a_certificates_repr_shows_no_secrets(issue):
    identity = issue("shown", "shown.example")
    combined = identity.certfile.read_bytes() + identity.keyfile.read_bytes()
    shown = repr(quic.Certificate(combined, password="secret", server_names=["shown.example"]))
    assert shown == "Certificate(chain=<bytes>, server_names=['shown.example'])"
    assert (
        repr(quic.Certificate("a.pem", b"key")) == "Certificate(chain='a.pem', server_names=None)"
    )
