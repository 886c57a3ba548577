"""Certificates of further hosts (``--ssl-sni-certificate``) over each version of HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import ssl
from pathlib import Path

import pytest

import uringcore
from tests.server.conftest import backends, starting
from tests.server.harness import ForkedServer, command
from uringcore.asyncio.client import connect as quic_connect
from uringcore.devcert import DevelopmentCertificate
from uringcore.quic.configuration import QuicConfiguration
from uringcore.server import Config
from uringcore.server._startup_errors import StartupError

start = starting(ForkedServer)

pytestmark = pytest.mark.either_backend

OPTION = "--ssl-sni-certificate"


def issued(folder, *names):
    folder.mkdir(exist_ok=True)
    return DevelopmentCertificate.make(names).write(folder)


def der(path):
    return ssl.PEM_cert_to_DER_cert(Path(path).read_text())


def over_tcp(server, host, version):
    """Makes a request. Returns the certificate for it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([version])
    with socket.create_connection(("127.0.0.1", server.port), 30) as sock:
        with context.wrap_socket(sock, server_hostname=host) as secure:
            assert secure.selected_alpn_protocol() == version
            if version == "http/1.1":
                secure.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                assert secure.recv(100).startswith(b"HTTP/1.1 200")
            else:
                secure.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
                # SETTINGS of the server.
                assert secure.recv(9)[3] == 4
            return secure.getpeercert(binary_form=True)


async def over_quic(server, host):
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=["h3"], verify_mode=ssl.CERT_NONE, server_name=host
    )
    async with quic_connect("127.0.0.1", server.port, configuration=configuration) as client:
        (found, *_) = client._quic.get_peer_certificates()
    return found


async def shown(server, host):
    """Returns the certificates for a host over HTTP/1.1, HTTP/2 and HTTP/3."""
    tcp = [await asyncio.to_thread(over_tcp, server, host, one) for one in ("http/1.1", "h2")]
    return [*tcp, await over_quic(server, host)]


@pytest.mark.parametrize("backend", backends())
def test_clients_get_the_certificate_of_the_host_that_they_request(start, tmp_path, backend):
    one = issued(tmp_path / "one", "one.example", "localhost")
    many = issued(tmp_path / "many", "*.many.example")
    both = tmp_path / "many" / "both.pem"
    both.write_bytes(b"".join(Path(path).read_bytes() for path in many))
    both.chmod(0o600)
    options = (OPTION, f"one.example={one[0]}:{one[1]}", OPTION, f"*.many.example={both}")
    server = start(*options, backend=backend)
    default = der(server.certificate)

    async def main():
        for host, wanted in {
            "one.example": der(one[0]),
            "a.many.example": der(many[0]),
            "localhost": default,
            "another.example": default,
        }.items():
            assert await shown(server, host) == [wanted] * 3
        # A renewal of one of the files is read for all versions.
        fresh = issued(tmp_path / "fresh", "one.example")
        for source, path in zip(fresh, one, strict=True):
            os.replace(source, path)
        server.send_signal(signal.SIGHUP)
        await asyncio.to_thread(server.wait_log, "Certificate reloaded from")
        assert await shown(server, "one.example") == [der(one[0])] * 3
        assert await shown(server, "localhost") == [default] * 3
        before = der(one[0])
        # The certificate of a host that cannot be read stays, and the others are renewed.
        os.remove(one[1])
        fresh = issued(tmp_path / "later", "*.many.example")
        later = tmp_path / "later" / "both.pem"
        later.write_bytes(b"".join(Path(path).read_bytes() for path in fresh))
        later.chmod(0o600)
        os.replace(later, both)
        server.send_signal(signal.SIGHUP)
        refused = (
            f"The certificate of one.example was not reloaded: {OPTION}: {one[1]}: No such file"
        )
        await asyncio.to_thread(server.wait_log, f"(?s){refused}.*Certificate reloaded from")
        assert await shown(server, "one.example") == [before] * 3
        assert await shown(server, "b.many.example") == [der(fresh[0])] * 3

    uringcore.run(main())
    assert "Traceback" not in server.log()


def test_the_certificate_of_a_scope_is_unknown_among_several(start, tmp_path):
    """ASGI's ``server_cert`` is the certificate that the server has sent, or None."""
    one = issued(tmp_path / "one", "one.example")
    server = start(OPTION, f"one.example={one[0]}:{one[1]}")
    scope = json.loads(server.get("/scope").content)
    assert scope["extensions"]["tls"]["server_cert"] is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("one.example", "'one.example' is not of the form HOST=CERTFILE:KEYFILE"),
        ("=a:b", "'=a:b' is not of the form"),
        ("*=a:b", ".* is not of the form"),
        ("one.example={cert}:{folder}/missing", "{folder}/missing: No such file or directory"),
        ("two.example={cert}:{key}", "{cert}: .*two.example"),
        ("one.example={cert}:{other}", "{other}|{cert}: .*key"),
        ("one.example={key}:{key}", "{key}: "),
    ],
)
def test_mistakes_name_the_option_and_the_file(certificate, tmp_path, text, said):
    cert, key = issued(tmp_path / "one", "one.example")
    names = {"cert": cert, "key": key, "folder": tmp_path, "other": certificate[1]}
    with pytest.raises(StartupError, match=f"{OPTION}: ({said.format(**names)})"):
        Config(
            "tests.server.application:app",
            ssl_certfile=certificate[0],
            ssl_keyfile=certificate[1],
            ssl_sni_certificate=[text.format(**names)],
            log_config=None,
        )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--http", "h11"), "needs --http native"),
        (("--ssl-ciphers", "ECDHE+AESGCM"), "cannot use it: --ssl-ciphers is set"),
    ],
)
def test_openssl_selects_no_certificate(certificate, tmp_path, options, said):
    cert, key = issued(tmp_path / "one", "one.example")
    given = ("--ssl-certfile", certificate[0], "--ssl-keyfile", certificate[1], "--port", "0")
    done = command(
        "tests.server.application:app", *given, OPTION, f"one.example={cert}:{key}", *options
    )
    assert done.returncode != 0
    assert f"{OPTION}: " in done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_option_needs_a_certificate_of_the_other_clients(tmp_path):
    cert, key = issued(tmp_path / "one", "one.example")
    with pytest.raises(StartupError, match="needs --ssl-certfile"):
        Config("a:b", ssl_sni_certificate=[f"one.example={cert}:{key}"], log_config=None)
