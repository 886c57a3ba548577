"""Servers with several certificates, selected by the client's server name (RFC 6066)."""

from __future__ import annotations

import dataclasses
import ssl

import pytest

from tests.quic.aioquic_peer import AioquicRecorder, aioquic_client, verifying
from tests.quic.harness import Echo, Recorder, eventually, serving
from uringcore.asyncio import connect, serve
from uringcore.quic import events
from uringcore.quic._errors import QuicConfigurationError
from uringcore.quic.configuration import QuicConfiguration

pytestmark = pytest.mark.either_backend

aioquic_asyncio = pytest.importorskip("aioquic.asyncio")
aioquic_tls = pytest.importorskip("aioquic.tls")
aioquic_events = pytest.importorskip("aioquic.quic.events")
serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")


@pytest.fixture(scope="module")
def named(issue):
    return {
        "one": issue("one", "one.example", "www.one.example"),
        "wild": issue("wild", "*.one.example"),
        "special": issue("special", "special.one.example"),
    }


def _add(configuration, identity, **options):
    configuration.add_certificate(identity.certfile, identity.keyfile, **options)


async def _shown(port, configuration, name):
    """Returns the certificate that a client gets for ``name``, and true if it resumed."""
    configuration.server_name = name
    async with connect(
        "127.0.0.1", port, configuration=configuration, create_protocol=Recorder
    ) as client:
        await client.ping()
        completed = await client.wait_for(events.HandshakeCompleted)
        return client._quic.get_peer_certificates()[0], completed.session_resumed


def test_each_name_has_its_certificate(run, pki, named, server_configuration, client_configuration):
    async def main():
        configuration = server_configuration()
        _add(configuration, named["wild"])
        _add(configuration, named["one"], server_names=["One.Example"])
        _add(configuration, named["special"], server_names=["special.one.example"])
        assert [one.server_names for one in configuration.named_certificates] == [
            ("*.one.example",),
            ("one.example",),
            ("special.one.example",),
        ]
        async with serving(configuration) as (port, servers):
            # The client verifies these: the certificate is valid for the name.
            for name, expected in {
                "one.example": named["one"],
                "any.one.example": named["wild"],
                "www.one.example": named["wild"],
                "SPECIAL.one.example": named["special"],
                "localhost": pki.server,
                "127.0.0.1": pki.server,
            }.items():
                assert await _shown(port, client_configuration(), name) == (expected.der, False)
            for name in ("a.b.one.example", "two.example"):
                careless = client_configuration(verify_mode=ssl.CERT_NONE)
                assert (await _shown(port, careless, name))[0] == pki.server.der
            assert len(servers) == 8

    run(main())


def test_a_client_gets_a_certificate_that_it_can_verify(run, pki, issue, server_configuration):
    keys = {
        "rsa": rsa.generate_private_key(65537, 2048),
        "ed25519": ed25519.Ed25519PrivateKey.generate(),
        "ecdsa": None,
    }
    mine = {kind: issue(f"one-{kind}", "one.example", key=key) for kind, key in keys.items()}
    fallback = issue("fallback", "localhost", key=keys["rsa"])
    configuration = server_configuration()
    for kind in ("ecdsa", "rsa", "ed25519"):
        _add(configuration, mine[kind])
    assert [one.key_kind for one in configuration.named_certificates] == ["ecdsa", "rsa", "ed25519"]
    _add(configuration, fallback, server_names=["*"])
    for names in (["one.example"], ["*"]):
        with pytest.raises(QuicConfigurationError, match="twice with rsa keys"):
            _add(configuration, mine["rsa"], server_names=names)

    async def shown(port, name, *algorithms):
        async with aioquic_asyncio.connect(
            "127.0.0.1",
            port,
            configuration=aioquic_client(pki, server_name=name),
            create_protocol=verifying(*algorithms),
        ) as client:
            await client.ping()
            return client._quic.tls._peer_certificate

    async def main():
        algorithm = aioquic_tls.SignatureAlgorithm
        async with serving(configuration, Echo) as (port, _):
            for name, offered, expected in (
                ("one.example", algorithm.RSA_PSS_RSAE_SHA256, mine["rsa"]),
                ("one.example", algorithm.ED25519, mine["ed25519"]),
                ("one.example", algorithm.ECDSA_SECP256R1_SHA256, mine["ecdsa"]),
                ("localhost", algorithm.RSA_PSS_RSAE_SHA256, fallback),
                ("localhost", algorithm.ECDSA_SECP256R1_SHA256, pki.server),
            ):
                assert await shown(port, name, offered) == expected.certificate
            # The order of the server's certificates decides, not the client's order of algorithms.
            both = (algorithm.RSA_PSS_RSAE_SHA256, algorithm.ECDSA_SECP256R1_SHA256)
            assert await shown(port, "one.example", *both) == mine["ecdsa"].certificate
            with pytest.raises(ConnectionError):
                await shown(port, "localhost", algorithm.ED25519)

    run(main())


def test_aioquic_gets_the_certificate_of_its_server_name(run, pki, named, server_configuration):
    async def main():
        configuration = server_configuration()
        _add(configuration, named["one"])
        _add(configuration, named["wild"], server_names=["*.one.example"])
        async with serving(configuration, Echo) as (port, _):
            tickets = {}
            for name, expected in {
                "one.example": named["one"],
                "www.one.example": named["one"],
                "any.one.example": named["wild"],
                "localhost": pki.server,
            }.items():
                got = []
                async with aioquic_asyncio.connect(
                    "127.0.0.1",
                    port,
                    configuration=aioquic_client(pki, server_name=name),
                    create_protocol=AioquicRecorder,
                    session_ticket_handler=got.append,
                ) as client:
                    await client.ping()
                    assert client._quic.tls._peer_certificate == expected.certificate
                    await eventually(lambda got=got: got)
                tickets[name] = got[0]

            # RFC 6066 section 3: no session is resumed under another name, not even a name of the same
            # certificate. aioquic offers a ticket only for its own name, so the test changes that name.
            async def resumes(name, ticket):
                ticket = dataclasses.replace(ticket, server_name=name)
                async with aioquic_asyncio.connect(
                    "127.0.0.1",
                    port,
                    configuration=aioquic_client(pki, server_name=name, session_ticket=ticket),
                    create_protocol=AioquicRecorder,
                ) as client:
                    await client.ping()
                    (completed,) = (
                        event
                        for event in client.events
                        if isinstance(event, aioquic_events.HandshakeCompleted)
                    )
                    return completed.session_resumed

            assert await resumes("one.example", tickets["one.example"])
            assert not await resumes("any.one.example", tickets["localhost"])
            assert not await resumes("localhost", tickets["any.one.example"])
            assert not await resumes("one.example", tickets["www.one.example"])

    run(main())


def test_our_client_keeps_the_sessions_of_names_apart(
    run, pki, named, server_configuration, client_configuration
):
    async def main():
        configuration = server_configuration()
        _add(configuration, named["one"])
        client = client_configuration()
        async with serving(configuration) as (port, _):
            for resumed in (False, True):
                for name, expected in {
                    "one.example": named["one"],
                    "www.one.example": named["one"],
                    "localhost": pki.server,
                }.items():
                    assert await _shown(port, client, name) == (expected.der, resumed)

    run(main())


def test_a_running_server_takes_up_certificates(
    run, pki, named, issue, server_configuration, client_configuration
):
    renewed = issue("renewed", "one.example")

    async def main():
        configuration = server_configuration()
        server = await serve("127.0.0.1", 0, configuration=configuration, create_protocol=Echo)
        port = server.sockname[1]

        async def shown(name):
            careless = client_configuration(verify_mode=ssl.CERT_NONE)
            return (await _shown(port, careless, name))[0]

        assert await shown("one.example") == pki.server.der
        _add(configuration, named["one"])
        assert await shown("one.example") == pki.server.der
        server.reload()
        assert await shown("one.example") == named["one"].der
        assert await shown("www.one.example") == named["one"].der

        configuration.named_certificates.clear()
        _add(configuration, renewed)
        server.reload()
        assert await shown("one.example") == renewed.der
        assert await shown("www.one.example") == pki.server.der

        # A list changed without add_certificate's checks: reload() refuses it, and nothing changes.
        (good,) = configuration.named_certificates
        bad = dataclasses.replace(good, server_names=("two.example",))
        configuration.named_certificates.append(bad)
        with pytest.raises(QuicConfigurationError, match="certificate 2.*two.example") as caught:
            server.reload()
        assert caught.value.field == "named_certificates"
        assert await shown("one.example") == renewed.der
        server.close()
        await server.wait_closed(1)

    run(main())


def test_invalid_named_certificates_are_refused_at_once(pki, named, tmp_path, server_configuration):
    configuration = server_configuration()
    one, wild = named["one"], named["wild"]
    empty = tmp_path / "empty.pem"
    empty.write_bytes(b"")
    _add(configuration, one)

    def refused(field, match, *files, **options):
        before = list(configuration.named_certificates)
        with pytest.raises(QuicConfigurationError, match=match) as caught:
            configuration.add_certificate(*files, **options)
        assert caught.value.field == field
        assert configuration.named_certificates == before

    missing = tmp_path / "missing.pem"
    refused("certfile", "cannot be read", missing, wild.keyfile)
    refused("certfile", "CERTIFICATE", wild.keyfile, wild.keyfile)
    refused("certfile", "PRIVATE KEY", wild.certfile)
    refused("keyfile", "cannot be read", wild.certfile, missing)
    refused("keyfile", "PRIVATE KEY", wild.certfile, empty)
    refused("keyfile", "does not belong", wild.certfile, one.keyfile)
    refused("server_names", "twice", one.certfile, one.keyfile)
    for names, match in {
        (): "empty",
        ("two.example",): "not for",
        ("one.example",): "not for",
        ("*.any.one.example",): "not for",
        ("b\u00fccher.one.example",): "not a DNS name",
        ("127.0.0.1",): "not a DNS name",
        ("a.one.example", "A.one.example"): "twice",
        ("a.one.example", "WWW.one.example"): "twice",
        tuple(f"n{i}.one.example" for i in range(4097)): "at most 4096",
    }.items():
        refused("server_names", match, wild.certfile, wild.keyfile, server_names=names)
    for names in ("a.one.example", [b"a.one.example"]):
        refused("server_names", "strings", wild.certfile, wild.keyfile, server_names=names)
    assert pki.server.key is not None and "PRIVATE" not in repr(configuration.named_certificates)

    with pytest.raises(QuicConfigurationError) as caught:
        _add(QuicConfiguration(is_client=True), one)
    assert caught.value.field == "named_certificates"
    client = QuicConfiguration(named_certificates=configuration.named_certificates)
    with pytest.raises(QuicConfigurationError, match="^named_certificates"):
        client.setup()


def test_an_encrypted_key_and_a_key_in_the_same_file(named, tmp_path, server_configuration):
    one, wild = named["one"], named["wild"]
    encrypted = tmp_path / "encrypted.key"
    encrypted.write_bytes(
        one.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    both = tmp_path / "both.pem"
    both.write_bytes(wild.pem + wild.keyfile.read_bytes())
    configuration = server_configuration()
    with pytest.raises(QuicConfigurationError, match="^keyfile: "):
        configuration.add_certificate(one.certfile, encrypted)
    with pytest.raises(QuicConfigurationError, match="^keyfile: "):
        configuration.add_certificate(one.certfile, encrypted, "wrong")
    configuration.add_certificate(one.certfile, encrypted, "secret")
    configuration.add_certificate(both)
    names = [one.server_names for one in configuration.named_certificates]
    assert names == [("one.example", "www.one.example"), ("*.one.example",)]
    configuration.setup()
