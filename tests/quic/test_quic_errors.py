"""An error while connecting is raised at once, with its cause."""

from __future__ import annotations

import asyncio
import hashlib
import pickle
import socket
import ssl
import time

import pytest

from tests.quic.harness import Recorder, eventually, serving
from tests.support import certificates
from tests.support.free_ports import free_port
from uringcore.asyncio import connect
from uringcore.quic import events
from uringcore.quic._errors import (
    QuicAlpnError,
    QuicCertificateError,
    QuicConfigurationError,
    QuicConnectionError,
    QuicConnectionRefusedError,
    QuicIdleTimeoutError,
    QuicTlsError,
    error_from_event,
)
from uringcore.quic.configuration import QuicConfiguration
from uringcore.tls import AlertDescription

pytestmark = pytest.mark.either_backend


async def _fails(port, configuration, host="127.0.0.1"):
    """Returns the exception of a connection attempt that must fail at once."""
    started = time.monotonic()
    with pytest.raises(QuicConnectionError) as caught:
        async with connect(host, port, configuration=configuration):
            pytest.fail("the connection must fail")
    assert time.monotonic() - started < 30, "the error has to be raised at once, not after a minute"
    return caught.value


def test_an_unknown_authority(run_anywhere, pki, server_configuration, client_configuration):
    async def main():
        async with serving(server_configuration()) as (port, _):
            error = await _fails(port, client_configuration(authority=pki.stranger))
            assert isinstance(error, QuicCertificateError)
            assert error.alert == AlertDescription.unknown_ca
            assert "certificate" in str(error) and "authority" in str(error)

    run_anywhere(main())


def test_a_certificate_for_another_name(
    run_anywhere, pki, server_configuration, client_configuration
):
    async def main():
        async with serving(server_configuration(pki.elsewhere)) as (port, _):
            error = await _fails(port, client_configuration(), "localhost")
            assert isinstance(error, QuicCertificateError)
            assert "localhost" in str(error)
            # A connection to the name in the server's certificate succeeds.
            named = client_configuration(server_name="elsewhere.example")
            async with connect("127.0.0.1", port, configuration=named) as client:
                await client.ping()

    run_anywhere(main())


def test_an_expired_certificate(run, pki, server_configuration, client_configuration):
    async def main():
        async with serving(server_configuration(pki.expired)) as (port, _):
            error = await _fails(port, client_configuration())
            assert isinstance(error, QuicCertificateError)
            assert "expired" in str(error).lower()
            lenient = client_configuration(verify_mode=ssl.CERT_NONE)
            async with connect("127.0.0.1", port, configuration=lenient) as client:
                await client.ping()

    run(main())


def test_an_authority_of_the_same_name_with_another_key(
    run, pki, tmp_path, server_configuration, client_configuration
):
    impostor = certificates.make(tmp_path).authority

    async def main():
        async with serving(server_configuration()) as (port, _):
            error = await _fails(port, client_configuration(authority=impostor))
            assert isinstance(error, QuicCertificateError)

    run(main())


def test_the_server_gets_the_alert_for_a_refused_certificate(
    run, pki, server_configuration, client_configuration
):
    async def main():
        async with serving(server_configuration(), Recorder) as (port, protocols):
            await _fails(port, client_configuration(authority=pki.stranger))
            end = await protocols[0].wait_for(events.ConnectionTerminated)
            assert end.kind == "tls" and end.alert == AlertDescription.unknown_ca

    run(main())


def test_no_common_alpn(run_anywhere, server_configuration, client_configuration):
    async def main():
        async with serving(server_configuration(alpn_protocols=["this"])) as (port, _):
            error = await _fails(port, client_configuration(alpn_protocols=["that"]))
            assert isinstance(error, QuicAlpnError)
            assert error.alert == AlertDescription.no_application_protocol
            assert "application protocol" in str(error)

    run_anywhere(main())


def test_a_dead_port(run_anywhere, client_configuration):
    port = free_port()

    async def main():
        error = await _fails(port, client_configuration())
        assert isinstance(error, QuicConnectionRefusedError)
        assert isinstance(error, ConnectionRefusedError)
        assert str(port) in str(error) and "refused" in str(error)
        loop = asyncio.get_running_loop()
        if run_anywhere.kind != "asyncio":
            assert loop.stats()["quic_endpoints"] == loop.stats()["quic_connections"] == 0

    run_anywhere(main())


def test_a_server_that_never_answers(run_anywhere, client_configuration):
    async def main():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mute:
            mute.bind(("127.0.0.1", 0))
            error = await _fails(mute.getsockname()[1], client_configuration(idle_timeout=0.5))
            assert isinstance(error, QuicIdleTimeoutError) and isinstance(error, TimeoutError)

    run_anywhere(main())


def test_client_certificates(run, pki, server_configuration, client_configuration):
    async def main():
        server = server_configuration(verify_mode=ssl.CERT_REQUIRED)
        server.load_verify_locations(cafile=str(pki.authority.certfile))
        async with serving(server, Recorder) as (port, protocols):
            client = client_configuration()
            client.load_cert_chain(pki.client.certfile, pki.client.keyfile)
            async with connect("127.0.0.1", port, configuration=client) as protocol:
                await protocol.ping()
                chain = protocols[0]._quic.get_peer_certificates()
                from cryptography import x509

                assert x509.load_der_x509_certificate(chain[0]) == pki.client.certificate
            # A client without a certificate is connected until the server has checked (RFC 8446 section
            # 4.4.2.4).
            with pytest.raises(QuicTlsError) as caught:
                async with connect(
                    "127.0.0.1", port, configuration=client_configuration()
                ) as protocol:
                    await asyncio.wait_for(protocol.ping(), 5)
            assert caught.value.alert == AlertDescription.certificate_required

    run(main())


def test_several_waiters_get_the_error(run, pki, server_configuration, client_configuration):
    async def main():
        async with serving(server_configuration()) as (port, _):
            configuration = client_configuration(authority=pki.stranger)
            async with connect(
                "127.0.0.1", port, configuration=configuration, wait_connected=False
            ) as client:
                results = await asyncio.gather(
                    client.wait_connected(), client.wait_connected(), return_exceptions=True
                )
                assert all(isinstance(result, QuicCertificateError) for result in results)
                with pytest.raises(QuicCertificateError):
                    await client.wait_connected()
                await asyncio.wait_for(client.wait_closed(), 5)

    run(main())


def test_leaving_before_the_handshake_is_over_leaves_nothing(
    run, server_configuration, client_configuration
):
    async def main():
        loop = asyncio.get_running_loop()
        async with serving(server_configuration()) as (port, _):
            async with connect(
                "127.0.0.1", port, configuration=client_configuration(), wait_connected=False
            ):
                pass
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mute:
                mute.bind(("127.0.0.1", 0))

                async def forever():
                    async with connect(
                        "127.0.0.1", mute.getsockname()[1], configuration=client_configuration()
                    ):
                        pass

                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(forever(), 0.2)
        # The socket waits in the background for the answer to its close.
        await eventually(lambda: loop.stats()["quic_endpoints"] == 0)
        assert loop.stats()["quic_connections"] == 0

    run(main())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("alpn_protocols", [""]),
        ("alpn_protocols", "h3"),
        ("cafile", "/nonexistent/authority.pem"),
        ("cadata", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        ("capath", "/nonexistent"),
        ("cipher_suites", [0x1399]),
        ("cipher_suites", [0x1301, 0x1399]),
        ("cipher_suites", ["TLS_AES_128_GCM_SHA256"]),
        ("congestion_control_algorithm", "vegas"),
        ("certificate_hashes", [b"short"]),
        ("certificate_hashes", bytes(32)),
        ("connection_id_length", 21),
        ("idle_timeout", -1.0),
        ("idle_timeout", "soon"),
        ("keep_alive", "often"),
        ("initial_rtt", 0.0),
        ("max_data", 1 << 62),
        ("max_data", -1),
        ("max_datagram_frame_size", -1),
        ("max_datagram_size", 1 << 20),
        ("quic_logger", object()),
        ("secrets_log_file", 5),
        ("verify_mode", 99),
        ("max_datagram_size", 1000),
        ("max_stream_data", 1 << 62),
        ("max_streams_bidi", 1 << 60),
        ("original_version", 1 << 32),
        ("quantum_readiness_test", True),
        ("send_buffer_low", 1 << 30),
        ("session_store", object()),
        ("session_ticket", object()),
        ("supported_versions", [0x0A0A0A0A]),
        ("token", bytes(601)),
        ("token", "token"),
    ],
)
def test_an_impossible_field_is_named_at_once(client_configuration, field, value):
    configuration = client_configuration()
    setattr(configuration, field, value)
    if field in ("cadata", "capath"):
        configuration.cafile = None
    with pytest.raises(QuicConfigurationError) as caught:
        configuration.setup()
    assert field in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("field", ["certificate", "private_key"])
def test_a_file_of_the_wrong_kind_is_named(pki, tmp_path, field):
    """The error occurs when the file is read, and names the field and the file."""
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nothing of the kind")
    files = {"certificate": pki.server.certfile, "private_key": pki.server.keyfile, field: wrong}
    with pytest.raises(QuicConfigurationError, match=rf"^{field}: .*wrong\.pem: ") as caught:
        QuicConfiguration(is_client=False).load_cert_chain(*files.values())
    assert caught.value.field == field


@pytest.mark.parametrize("side", ["client", "server"])
@pytest.mark.parametrize("source", ["cadata", "cafile", "capath"])
def test_an_empty_source_of_authorities_is_refused(
    pki, tmp_path, client_configuration, server_configuration, source, side
):
    """An empty source must not fall back to the system's authorities."""
    empty = {"cadata": b"", "cafile": tmp_path / "empty.pem", "capath": tmp_path / "directory"}
    empty["cafile"].touch()
    empty["capath"].mkdir()
    configuration = client_configuration() if side == "client" else server_configuration()
    configuration.verify_mode = ssl.CERT_REQUIRED
    configuration.load_verify_locations(**{source: empty[source]})
    with pytest.raises(QuicConfigurationError, match=f"^{source}: holds no certificate"):
        configuration.setup()
    # An empty source is refused even next to one that holds a certificate.
    others = (
        {"cadata": pki.authority.pem} if source != "cadata" else {"cafile": pki.server.certfile}
    )
    configuration.load_verify_locations(**{source: empty[source]}, **others)
    with pytest.raises(QuicConfigurationError, match=f"^{source}: holds no certificate"):
        configuration.setup()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_authorities_are_any_buffer(pki, client_configuration, kind):
    configuration = client_configuration()
    configuration.load_verify_locations(cadata=kind(pki.authority.pem))
    configuration.setup()


@pytest.mark.parametrize("value", [range(1 << 40), "text", 5])
def test_authorities_that_are_no_buffer_are_named(client_configuration, value):
    configuration = client_configuration()
    configuration.load_verify_locations(cadata=value)
    with pytest.raises(QuicConfigurationError, match="^cadata: must be PEM bytes, not "):
        configuration.setup()


def test_a_directory_of_authorities_may_hold_other_files(
    run, pki, tmp_path, server_configuration, client_configuration
):
    (tmp_path / "authority.pem").write_bytes(pki.authority.pem)
    (tmp_path / "0a1b2c3d.0").symlink_to("authority.pem")
    (tmp_path / "dangling.0").symlink_to("nowhere")
    (tmp_path / "README").write_text("not a certificate")
    (tmp_path / "binary.der").write_bytes(bytes(range(256)))
    broken = b"-----BEGIN CERTIFICATE-----\n%s\n-----END CERTIFICATE-----\n"
    (tmp_path / "not-base64.pem").write_bytes(broken % b"!!!!")
    (tmp_path / "not-x509.pem").write_bytes(broken % b"AAAA")
    (tmp_path / "directory.pem").mkdir()
    configuration = client_configuration()
    configuration.load_verify_locations(capath=tmp_path)

    async def main():
        async with serving(server_configuration()) as (port, _):
            async with connect("127.0.0.1", port, configuration=configuration) as client:
                await client.ping()

    run(main())
    (tmp_path / "authority.pem").unlink()
    configuration.max_data += 1
    with pytest.raises(QuicConfigurationError, match="^capath: holds no certificate") as caught:
        configuration.setup()
    assert "README" in str(caught.value) or "not-x509" in str(caught.value)


def test_a_forged_signature_is_a_certificate_error(
    run, pki, tmp_path, server_configuration, client_configuration
):
    """TLS uses one alert for this and for a broken handshake (RFC 8446 section 6.2)."""
    der = bytearray(ssl.PEM_cert_to_DER_cert(pki.server.pem.decode()))
    der[-1] ^= 1
    configuration = server_configuration()
    configuration.certificate = bytes(der)

    async def main():
        async with serving(configuration) as (port, _):
            with pytest.raises(QuicCertificateError):
                async with connect("127.0.0.1", port, configuration=client_configuration()):
                    raise AssertionError("accepted")

    run(main())


def test_an_impossible_certificate_is_named_at_once(pki, server_configuration):
    configuration = server_configuration()
    configuration.certificate = None
    with pytest.raises(QuicConfigurationError, match="^certificate"):
        configuration.setup()
    for field, value in [
        ("certificate", b"not a certificate"),
        ("certificate", 7),
        ("private_key", b"not a key"),
        ("private_key", None),
        ("private_key", pki.stranger.key),
        ("private_key", "/nonexistent/key.pem"),
    ]:
        configuration = server_configuration()
        setattr(configuration, field, value)
        with pytest.raises(QuicConfigurationError) as caught:
            configuration.setup()
        assert caught.value.field in ("certificate", "private_key"), (field, value)


def test_errors_survive_pickling():
    event = events.ConnectionTerminated(0x100 + 48, 6, "invalid peer certificate")
    error = error_from_event(event, "somewhere port 1")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is QuicCertificateError
    assert str(again) == str(error) and again.alert == 48
    named = pickle.loads(pickle.dumps(QuicConfigurationError("token", "no")))
    assert named.field == "token" and str(named) == "token: no"


def test_a_pinned_certificate_is_trusted_as_it_stands_and_no_other_is(
    run, pki, server_configuration, client_configuration
):
    def pinned(identity):
        digest = hashlib.sha256(identity.der).digest()
        configuration = client_configuration(certificate_hashes=[digest])
        configuration.load_verify_locations()
        return configuration

    async def main():
        # The certificate is for another name, and its authority is unknown to this client.
        async with serving(server_configuration(pki.elsewhere)) as (port, _):
            async with connect("127.0.0.1", port, configuration=pinned(pki.elsewhere)) as client:
                await client.ping()
            with pytest.raises(QuicCertificateError, match=r"pinned.*\[TLS alert 46"):
                async with connect("127.0.0.1", port, configuration=pinned(pki.server)):
                    pass
        async with serving(server_configuration(pki.expired)) as (port, _):
            with pytest.raises(QuicCertificateError, match="expired"):
                async with connect("127.0.0.1", port, configuration=pinned(pki.expired)):
                    pass

    run(main())
