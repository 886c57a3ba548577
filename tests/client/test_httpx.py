"""httpx on `AsyncHTTP3Transport`: httpx's own features over HTTP/3, against our server over real
sockets.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import socket
import ssl

import anyio
import httpx
import pytest

from tests.client.scripted_server import Peer
from tests.support import certificates
from tests.support.free_ports import free_port
from uringcore.contrib.httpx import AsyncHTTP3Transport
from uringcore.http3 import AlternativeCache
from uringcore.quic.configuration import QuicConfiguration

pytestmark = pytest.mark.either_backend

TIMEOUT = httpx.Timeout(60)


def client_for(server, http3="always", *, timeout=TIMEOUT, transport_options=None, **options):
    # The machine may be busy; another file tests the delay of the fallback.
    options_of_transport = {"fallback_delay": 30.0} | (transport_options or {})
    transport = AsyncHTTP3Transport(verify=server.certificate, http3=http3, **options_of_transport)
    base = f"https://localhost:{server.port}"
    return httpx.AsyncClient(transport=transport, base_url=base, timeout=timeout, **options)


def test_a_request(site, run):
    async def main():
        async with client_for(site) as client:
            response = await client.get("/version", params={"q": "ü"}, headers={"X-One": "1"})
            assert response.http_version == "HTTP/3"
            shown = response.json()
            assert shown["version"] == "3"
            assert shown["headers"]["x-one"] == "1"
            assert shown["headers"]["host"] == f"localhost:{site.port}"
            assert "connection" not in shown["headers"]
            stream = response.extensions["network_stream"]
            assert stream.get_extra_info("server_addr")[1] == site.port
            assert stream.get_extra_info("client_addr") is not None
            assert stream.get_extra_info("stats")["packets_sent"] > 0
            assert response.extensions["stream_id"] == 0
            assert response.elapsed.total_seconds() > 0

    run(main())


def test_methods(site, run):
    async def main():
        async with client_for(site) as client:
            for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
                assert (await client.request(method, "/version")).json()["method"] == method
            head = await client.head("/version")
            assert (head.status_code, head.content) == (200, b"")

    run(main())


def test_uploads(site, run):
    data = bytes(range(256)) * 8192
    digest = hashlib.sha256(data).hexdigest()

    async def parts():
        for start in range(0, len(data), 100_000):
            yield data[start : start + 100_000]

    async def main():
        async with client_for(site) as client:
            assert (await client.post("/digest", content=data)).text == digest
            assert (await client.post("/digest", content=parts())).text == digest
            empty = hashlib.sha256(b"").hexdigest()
            assert (await client.post("/digest")).text == empty
            form = await client.post("/digest", data={"a": "b"})
            assert form.text == hashlib.sha256(b"a=b").hexdigest()
            files = await client.post("/digest", files={"file": ("name", data)})
            assert files.status_code == 200
            assert files.text != digest

    run(main())


def test_streaming(site, run):
    async def main():
        async with client_for(site) as client:
            async with client.stream("GET", "/parts/2000") as response:
                lines = b"".join([part async for part in response.aiter_raw()])
            assert lines == b"".join(b"%d " % number * 1000 for number in range(2000))
            # A response that is closed early leaves its connection usable.
            async with client.stream("GET", "/parts/2000") as response:
                async for _ in response.aiter_raw():
                    break
            assert (await client.get("/version")).status_code == 200

    run(main())


def test_redirects_keep_what_they_should(site, run):
    async def main():
        async with client_for(site, follow_redirects=True) as client:
            response = await client.post("/redirect/3", content=b"body")
            assert response.json()["method"] == "GET"
            assert len(response.history) == 4
            assert {one.http_version for one in response.history} == {"HTTP/3"}
            again = await client.post("/again/307", content=b"body")
            assert again.text == hashlib.sha256(b"body").hexdigest()
            with pytest.raises(httpx.TooManyRedirects):
                await client.get("/redirect/30")

    run(main())


def test_cookies_and_authentication(site, run):
    async def main():
        async with client_for(site) as client:
            assert (await client.get("/set/jar")).text == "baked"
            assert (await client.get("/cookie")).text == "crumb=jar"
            assert (await client.get("/private")).status_code == 401
            assert (await client.get("/private", auth=("user", "secret"))).text == "welcome"
            digest = httpx.DigestAuth("user", "secret")
            answer = await client.post("/challenge", content=b"twice", auth=digest)
            assert (answer.status_code, answer.text) == (200, "twice")

    run(main())


def test_many_at_once(site, run):
    async def main():
        async with client_for(site) as client:
            answers = await asyncio.gather(*(client.get("/parts/3") for _ in range(200)))
            assert {len(answer.content) for answer in answers} == {6000}

    run(main())


def test_under_anyio(site):
    async def main():
        async with client_for(site) as client:
            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(client.get, "/parts/3")
            with anyio.move_on_after(0.01):
                await client.get("/parts/100000")
            assert (await client.get("/version")).status_code == 200

    anyio.run(main)


# Discovery of HTTP/3: Alt-Svc


def test_the_first_request_goes_over_tcp_and_the_next_over_http3(site, run):
    async def main():
        async with client_for(site, "alt-svc") as client:
            first = await client.get("/version")
            assert first.http_version == "HTTP/1.1"
            second = await client.get("/version")
            assert second.http_version == "HTTP/3"
            assert second.json()["headers"]["alt-used"] == f"localhost:{site.port}"
            third = await client.post("/digest", content=b"x")
            assert third.http_version == "HTTP/3"

    run(main())


def test_a_cache_may_be_shared(site, run):
    cache = AlternativeCache()

    async def main():
        for expected in ("HTTP/1.1", "HTTP/3"):
            options = {"alternatives": cache}
            async with client_for(site, "alt-svc", transport_options=options) as client:
                assert (await client.get("/version")).http_version == expected

    run(main())


def test_errors_are_httpxs(peer, run):
    async def main():
        async with client_for(peer) as client:
            for path in ("/reset", "/upper-case", "/rejected", "/data-first"):
                with pytest.raises(httpx.RemoteProtocolError) as raised:
                    await client.get(path)
                assert raised.value.request.url.path == path
            with pytest.raises(httpx.ReadTimeout):
                await client.get("/silent", timeout=httpx.Timeout(60, read=0.1))
            async with client.stream("GET", "/stalls", timeout=httpx.Timeout(60, read=2)) as half:
                with pytest.raises(httpx.ReadTimeout):
                    await half.aread()
            with pytest.raises(httpx.LocalProtocolError):
                await client.get("/", headers={"bad name": "x"})
            with pytest.raises(httpx.UnsupportedProtocol):
                await client.get("http://localhost/")
            with pytest.raises(httpx.UnsupportedProtocol, match="port must be from 1"):
                await client.get("https://localhost:0/")

    run(main())


def test_errors_of_connecting(peer, run):
    async def main():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
            # A port that the kernel did not choose: it may assign a chosen one again after the
            # close.
            silent.bind(("127.0.0.1", free_port()))
            url = f"https://127.0.0.1:{silent.getsockname()[1]}/"
            transport = AsyncHTTP3Transport(http3="always")
            async with httpx.AsyncClient(transport=transport) as client:
                with pytest.raises(httpx.ConnectTimeout):
                    await client.get(url, timeout=httpx.Timeout(60, connect=0.1))
                with pytest.raises(httpx.ConnectError, match="certificate"):
                    await client.get(peer.url, timeout=TIMEOUT)
                silent.close()
                with pytest.raises(httpx.ConnectError, match="refused"):
                    await client.get(url, timeout=TIMEOUT)

    run(main())


def test_all_connections_in_use(peer, run):
    options = {"limits": httpx.Limits(max_connections=1, keepalive_expiry=None)}

    async def main():
        async with client_for(peer, transport_options=options) as client:
            busy = asyncio.ensure_future(client.get("/gate"))
            await peer.wait_gated(1)
            with pytest.raises(httpx.PoolTimeout):
                await client.get(
                    f"https://127.0.0.1:{peer.port}/",
                    timeout=httpx.Timeout(60, pool=0.1, connect=0.2),
                )
            peer.release()
            assert (await busy).text == "released"

    run(main())


def test_extensions_of_a_request(peer, run):
    async def main():
        told, interim = [], []

        async def trace(name, info):
            told.append(name)

        extensions = {"trace": trace, "on_interim": lambda status, fields: interim.append(status)}
        async with client_for(peer) as client:
            assert (await client.get("/hints", extensions=extensions)).text == "hinted"
            with pytest.raises(httpx.RemoteProtocolError):
                await client.get("/reset", extensions=extensions)
        assert interim == [103]
        assert [name.rpartition(".")[2] for name in told] == [
            "started", "complete", "started", "failed",
        ]  # fmt: skip

    run(main())


def test_a_trace_that_fails_leaves_no_stream_behind(peer, run):
    async def trace(name, info):
        if name.endswith("complete"):
            raise LookupError(name)

    async def main():
        async with client_for(peer) as client:
            with pytest.raises(LookupError):
                await client.get("/", extensions={"trace": trace})
            (line,) = client._transport._client._pools.values()
            assert [one.streams for one in line.connections] == [0]

    run(main())


def test_proxies_are_refused(site):
    with pytest.raises(ValueError, match="proxy"):
        AsyncHTTP3Transport(proxy="http://localhost:1")
    with pytest.raises(ValueError, match="proxy"):
        AsyncHTTP3Transport(tcp=httpx.AsyncHTTPTransport(proxy="http://localhost:1"))
    with pytest.raises(ValueError, match="neither"):
        AsyncHTTP3Transport(http3="sometimes")


def test_whom_a_context_trusts_has_to_be_known(site):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(ValueError, match="cannot be read"):
        AsyncHTTP3Transport(verify=context)
    configuration = QuicConfiguration(alpn_protocols=["h3"])
    AsyncHTTP3Transport(verify=context, configuration=configuration)


def test_an_authority_in_a_context_is_trusted_by_both(tmp_path, run):
    identities = certificates.make(tmp_path)
    files = [str(identities.server.certfile), str(identities.server.keyfile)]
    peer = Peer(files)

    async def status(authority):
        context = ssl.create_default_context(cafile=authority.certfile)
        transport = AsyncHTTP3Transport(verify=context, http3="always")
        async with httpx.AsyncClient(transport=transport, timeout=TIMEOUT) as client:
            return (await client.get(peer.url)).status_code

    async def main():
        assert await status(identities.authority) == 200
        with pytest.raises(httpx.ConnectError, match="certificate"):
            await status(identities.stranger)

    try:
        run(main())
    finally:
        peer.stop()


def test_verification_switched_off(site, run):
    async def main():
        transport = AsyncHTTP3Transport(verify=False, http3="always")
        async with httpx.AsyncClient(transport=transport, timeout=TIMEOUT) as client:
            shown = json.loads((await client.get(f"https://localhost:{site.port}/version")).text)
            assert shown["version"] == "3"

    run(main())


def test_the_name_of_the_certificate_and_the_target_may_be_others(peer, run):
    async def main():
        async with client_for(peer) as client:
            url = f"https://127.0.0.1:{peer.port}/nothing/here"
            extensions = {"sni_hostname": "localhost", "target": b"/hints"}
            assert (await client.get(url, extensions=extensions)).text == "hinted"
            with pytest.raises(httpx.ConnectError):
                await client.get(url, extensions={"sni_hostname": "elsewhere.test"})
            with pytest.raises(httpx.LocalProtocolError, match="not ASCII"):
                await client.get("/", extensions={"target": b"/\xff"})

    run(main())


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_authorities_that_the_environment_names(peer, run_ours, tmp_path, monkeypatch, name):
    if name == "SSL_CERT_DIR":
        shutil.copy(peer.certificate, tmp_path / "one.pem")
    path = peer.certificate if name == "SSL_CERT_FILE" else str(tmp_path)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv(name, path)

    async def main():
        transport = AsyncHTTP3Transport(http3="always")
        async with httpx.AsyncClient(transport=transport) as client:
            assert (await client.get(peer.url + "/")).text == "hello"
        with pytest.raises(httpx.ConnectError):
            transport = AsyncHTTP3Transport(http3="always", trust_env=False)
            async with httpx.AsyncClient(transport=transport) as client:
                await client.get(peer.url + "/")

    run_ours(main())
