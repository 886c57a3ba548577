"""Certificates that are renewed while the server runs."""

import hashlib
import logging
import os
import shutil
import signal
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

import uringcore
from tests.server.conftest import backends, starting
from tests.server.harness import ForkedServer
from tests.server.worker_application import Asking, eventually
from uringcore.asyncio.client import connect as quic_connect
from uringcore.devcert import DevelopmentCertificate
from uringcore.quic.configuration import QuicConfiguration
from uringcore.server import Config
from uringcore.server._certificate_reload import CertificateReloader

start = starting(ForkedServer)

pytestmark = pytest.mark.either_backend


@pytest.fixture
def renewable(tmp_path):
    """Returns the paths of a certificate and its key, which a test may overwrite."""
    return DevelopmentCertificate.make().write(tmp_path)


def renew(paths, folder):
    """Writes another certificate to these paths as certbot does: each file atomically, one after the
    other.
    """
    fresh = folder / "fresh"
    fresh.mkdir(exist_ok=True)
    for source, path in zip(DevelopmentCertificate.make().write(fresh), paths, strict=True):
        os.replace(source, path)
    return digest(paths[0])


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(
            x509.load_pem_x509_certificate(file.read()).public_bytes(Encoding.DER)
        ).hexdigest()


def over_tcp(server):
    pem = ssl.get_server_certificate(("127.0.0.1", server.port))
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


async def over_quic(server):
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=["h3"], verify_mode=ssl.CERT_NONE
    )
    async with quic_connect("127.0.0.1", server.port, configuration=configuration) as client:
        found = client._quic.get_peer_certificates()
    der = found[0] if isinstance(found[0], bytes) else found[0].public_bytes(Encoding.DER)
    return hashlib.sha256(der).hexdigest()


async def shown_by_both(server, wanted):
    async def shown():
        return over_tcp(server) == wanted and await over_quic(server) == wanted

    await eventually(shown, "both protocols show the certificate")


@pytest.mark.parametrize("backend", backends())
@pytest.mark.parametrize("how", ["signal", "file"])
def test_new_connections_get_the_new_certificate_and_old_ones_go_on(
    start, renewable, tmp_path, backend, how
):
    server = start(
        certificate=renewable, backend=backend, app="tests.server.worker_application:app"
    )
    before = digest(renewable[0])

    async def main():
        assert over_tcp(server) == await over_quic(server) == before
        configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"])
        configuration.load_verify_locations(renewable[0])
        async with quic_connect(
            "127.0.0.1", server.port, configuration=configuration, create_protocol=Asking
        ) as old:
            first = await old.get("/")
            after = renew(renewable, tmp_path)
            assert after != before
            if how == "signal":
                server.send_signal(signal.SIGHUP)
            await shown_by_both(server, after)
            assert await old.get("/") == first

    uringcore.run(main())
    assert server.log().count("Certificate reloaded from") == 1
    assert server.stop() == 0


RENEWED_MEANWHILE = """
import os, sys
from uringcore.server import run

async def app(scope, receive, send):
    assert scope["type"] == "lifespan"
    await receive()
    for path in sys.argv[1:]:
        os.replace(path + ".fresh", path)
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})

run(app, port=0, ssl_certfile=sys.argv[1], ssl_keyfile=sys.argv[2])
"""


def test_a_certificate_that_is_renewed_while_the_application_starts(start, renewable, tmp_path):
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    for source, path in zip(DevelopmentCertificate.make().write(fresh), renewable, strict=True):
        os.replace(source, f"{path}.fresh")
    wanted = digest(f"{renewable[0]}.fresh")
    server = start(certificate=renewable, program=RENEWED_MEANWHILE)
    uringcore.run(shown_by_both(server, wanted))


def test_an_invalid_certificate_changes_nothing(start, renewable, tmp_path):
    server = start(certificate=renewable)
    before = digest(renewable[0])

    async def main():
        with open(renewable[0], "w") as file:
            file.write("nonsense")
        server.send_signal(signal.SIGHUP)
        server.wait_log("The certificate was not reloaded")
        assert over_tcp(server) == await over_quic(server) == before
        # The next renewal is picked up.
        await shown_by_both(server, renew(renewable, tmp_path))

    uringcore.run(main())
    assert server.log().count("The certificate was not reloaded") == 1
    assert "Traceback" not in server.log()


def test_a_key_without_its_certificate_changes_nothing(start, renewable, tmp_path):
    server = start(certificate=renewable)
    before = digest(renewable[0])
    other = tmp_path / "other"
    other.mkdir()
    _, key = DevelopmentCertificate.make().write(other)
    shutil.copy(key, renewable[1])

    async def main():
        server.wait_log(f"The certificate was not reloaded: .*is not the key of {renewable[0]}")
        assert over_tcp(server) == await over_quic(server) == before

    uringcore.run(main())


def test_workers_show_the_new_certificate_too(start, renewable, tmp_path):
    server = start(
        "--workers", "2", certificate=renewable, app="tests.server.worker_application:app"
    )
    server.wait_log("(?s)(HTTP/3 running.*){2}")

    async def main():
        after = renew(renewable, tmp_path)
        for _ in range(10):
            await shown_by_both(server, after)

    uringcore.run(main())
    server.wait_log("(?s)(Certificate reloaded from.*){2}")
    assert server.stop() == 0


def test_workers_go_on_when_their_successors_would_have_no_certificate(start, renewable):
    server = start(
        "--workers", "2", certificate=renewable, app="tests.server.worker_application:app"
    )
    server.wait_log("(?s)(HTTP/3 running.*){2}")
    before = digest(renewable[0])
    with open(renewable[0], "w") as file:
        file.write("nonsense")
    server.send_signal(signal.SIGHUP)
    server.wait_log("The restart has ended")
    assert over_tcp(server) == before
    assert uringcore.run(over_quic(server)) == before
    assert "Traceback" not in server.log()
    assert server.stop() == 0


@pytest.mark.parametrize("http", ["native", "h11"])
def test_a_file_that_goes_while_it_is_read_changes_nothing(renewable, caplog, monkeypatch, http):
    """A renewal may remove or write the files at any moment."""
    config = Config(
        "tests.server.application:app",
        ssl_certfile=renewable[0],
        ssl_keyfile=renewable[1],
        http=http,
    )
    config.load()
    logging.getLogger("uvicorn.error").addHandler(caplog.handler)

    class Listener:
        """HTTP/3 has the certificate of TCP at any time."""

        def reload(self):
            assert config.quic.certificate == shown

    # TLS of the extension reads the files after the first of these steps, CPython's after the second.
    step = "check_certificates" if http == "native" else "load_certificates_into"
    done = getattr(config, step)
    monkeypatch.setattr(config, step, lambda *given: (done(*given), os.remove(renewable[1])))
    shown = config.quic.certificate
    before = config.tls_setup
    try:
        keeper = CertificateReloader(config)
        assert not keeper.renew(Listener())
    finally:
        logging.getLogger("uvicorn.error").removeHandler(caplog.handler)
    assert "The certificate was not reloaded: " in caplog.text
    assert str(renewable[1]) in caplog.text
    assert config.tls_setup is before
    assert config.quic.certificate == shown
    # The next check reads the files again.
    keeper.has_changed()
    assert keeper.has_changed()
