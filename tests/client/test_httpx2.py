"""`AsyncHTTP3Transport` for httpx and httpx2, whichever is installed, and the SSL contexts of
truststore.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import subprocess
import sys

import httpx
import pytest

from tests.client.scripted_server import Peer
from tests.client.test_httpx_fallback import Site
from tests.server.harness import ROOT, environment
from tests.support import certificates
from tests.support.free_ports import free_port
from tests.support.interpreter_roles import is_default_interpreter
from uringcore.contrib.httpx import AsyncHTTP3Transport

pytestmark = pytest.mark.either_backend

httpx2 = pytest.importorskip("httpx2")
truststore = pytest.importorskip("truststore")


@pytest.fixture(params=[httpx, httpx2], ids=["httpx", "httpx2"])
def library(request):
    return request.param


def client_of(library, transport, **options):
    return library.AsyncClient(transport=transport, timeout=library.Timeout(60), **options)


def program(text, *arguments, **environ):
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        env=environment() | environ,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# Both libraries ------------------------------------------------------------------------------------


def test_a_transport_is_of_both_libraries(library):
    transport = AsyncHTTP3Transport()
    assert isinstance(transport, library.AsyncBaseTransport)


def test_requests_and_responses(site, run, library):
    async def parts():
        for _ in range(30):
            yield bytes(10_000)

    async def main():
        transport = AsyncHTTP3Transport(verify=site.certificate, http3="always")
        base = f"https://localhost:{site.port}"
        async with client_of(library, transport, base_url=base) as client:
            response = await client.get("/version")
            assert isinstance(response, library.Response)
            assert response.http_version == "HTTP/3"
            posted = await client.post("/digest", content=parts())
            assert posted.text == hashlib.sha256(bytes(300_000)).hexdigest()
            async with client.stream("GET", "/parts/100") as streamed:
                received = b"".join([part async for part in streamed.aiter_raw()])
            assert received == b"".join(b"%d " % number * 1000 for number in range(100))

    run(main())


def test_one_transport_serves_clients_of_both(site, run):
    async def main():
        async with AsyncHTTP3Transport(verify=site.certificate, http3="always") as transport:
            for library in (httpx, httpx2, httpx):
                client = client_of(library, transport)
                response = await client.get(f"https://localhost:{site.port}/version")
                assert isinstance(response, library.Response)

    run(main())


def test_errors_are_the_librarys(peer, run, library):
    async def main():
        async with client_of(
            library, AsyncHTTP3Transport(verify=peer.certificate, http3="always")
        ) as client:
            # A connect may take longer than that on a busy machine.
            with pytest.raises(library.ReadTimeout):
                await client.get(f"{peer.url}/silence", timeout=library.Timeout(60, read=0.2))
            with pytest.raises(library.UnsupportedProtocol):
                await client.get("http://localhost/")
            with pytest.raises(library.ConnectError):
                await client.get(f"https://localhost:{free_port()}/")

    run(main())


def test_tcp_first_and_then_http3(certificate, run, library):
    """The TCP side is the library's own transport."""
    site, peer = Site(certificate), Peer(certificate)

    async def main():
        site.alt_svc = f'h3=":{peer.port}"'
        transport = AsyncHTTP3Transport(verify=certificate[0], fallback_delay=30.0)
        async with client_of(library, transport) as client:
            versions = [(await client.get(site.url)).http_version for _ in range(2)]
        assert versions == ["HTTP/1.1", "HTTP/3"]

    try:
        run(main())
    finally:
        site.stop()
        peer.stop()


@pytest.mark.skipif(not is_default_interpreter(), reason="one interpreter's tests are enough")
def test_httpx2_passes_the_tests_of_httpx():
    """The tests of httpx's transport, run with httpx2."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.client.httpx2_for_httpx"]
    command += ["-p", "no:cacheprovider", "-k", "not uring and not epoll"]
    command += ["tests/client/test_httpx.py", "tests/client/test_httpx_fallback.py"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout


ALONE = """
import asyncio, sys
sys.modules[sys.argv[1]] = None
import importlib
library = importlib.import_module(sys.argv[2])
from uringcore.contrib.httpx import AsyncHTTP3Transport

async def main():
    transport = AsyncHTTP3Transport(verify=sys.argv[4], http3="always")
    async with library.AsyncClient(transport=transport) as client:
        print((await client.get(sys.argv[3])).http_version)

asyncio.run(main())
assert sys.argv[1] not in [name for name, module in sys.modules.items() if module is not None]
"""


@pytest.mark.parametrize(("missing", "there"), [("httpx", "httpx2"), ("httpx2", "httpx")])
def test_one_library_is_enough(site, missing, there):
    url = f"https://localhost:{site.port}/version"
    assert program(ALONE, missing, there, url, site.certificate) == "HTTP/3\n"


def test_without_either_library_the_error_names_the_package():
    said = program(
        "import sys\n"
        "sys.modules['httpx'] = sys.modules['httpx2'] = None\n"
        "try:\n"
        "    import uringcore.contrib.httpx\n"
        "except ImportError as exc:\n"
        "    print(exc)\n"
    )
    # The packages of the extras: `uringcore` on the public index is another author's.
    assert "pip install 'httpx>=0.27' or pip install 'httpx2>=2'" in said
    extras = (ROOT / "pyproject.toml").read_text()
    assert '\nhttpx = ["httpx>=0.27"]\nhttpx2 = ["httpx2>=2;' in extras


ALIASED = """
import asyncio, sys
import httpx2
httpx2.alias_httpx()
import httpx
from uringcore.contrib.httpx import AsyncHTTP3Transport
from uringcore.contrib.httpx._httpx_modules import LIBRARIES
assert LIBRARIES == (httpx2,), LIBRARIES

async def main():
    transport = AsyncHTTP3Transport(verify=sys.argv[2], http3="always")
    async with httpx.AsyncClient(transport=transport) as client:
        print((await client.get(sys.argv[1])).http_version)

asyncio.run(main())
"""


def test_an_alias_is_one_library(site):
    url = f"https://localhost:{site.port}/version"
    assert program(ALIASED, url, site.certificate) == "HTTP/3\n"


# Trust --------------------------------------------------------------------------------------------


async def version(library, transport, site):
    async with client_of(library, transport) as client:
        return (await client.get(f"https://localhost:{site.port}/version")).http_version


def test_a_context_of_truststore_trusts_what_is_loaded_into_it(tmp_path, run, library):
    """Over both transports: the TCP response advertises HTTP/3."""
    identities = certificates.make(tmp_path)
    files = [str(identities.server.certfile), str(identities.server.keyfile)]
    site, peer = Site(files), Peer(files)

    def transport(authority):
        context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(authority.certfile)
        return AsyncHTTP3Transport(verify=context, fallback_delay=30.0)

    async def main():
        site.alt_svc = f'h3=":{peer.port}"'
        async with client_of(library, transport(identities.authority)) as client:
            versions = [(await client.get(site.url)).http_version for _ in range(2)]
        assert versions == ["HTTP/1.1", "HTTP/3"]
        with pytest.raises(library.ConnectError, match="certificate|CERTIFICATE"):
            async with client_of(library, transport(identities.stranger)) as client:
                await client.get(site.url)

    try:
        run(main())
    finally:
        site.stop()
        peer.stop()


def test_a_context_of_truststore_whose_certificates_cannot_be_read(site):
    """The certificate has no authority: OpenSSL trusts it, and does not list it."""
    context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(site.certificate)
    with pytest.raises(ValueError, match="cannot be read"):
        AsyncHTTP3Transport(verify=context)


def test_a_context_of_truststore_trusts_the_system(site, run, library, monkeypatch):
    """The system's store lacks this server's authority; with the environment variable set, it has
    it.
    """

    async def main():
        def transport():
            context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            return AsyncHTTP3Transport(verify=context, http3="always")

        with pytest.raises(library.ConnectError, match="certificate"):
            await version(library, transport(), site)
        monkeypatch.setenv("SSL_CERT_FILE", site.certificate)
        assert await version(library, transport(), site) == "HTTP/3"

    run(main())


def test_a_context_of_truststore_that_verifies_nothing(site, run, library):
    async def main():
        context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        transport = AsyncHTTP3Transport(verify=context, http3="always")
        assert await version(library, transport, site) == "HTTP/3"

    run(main())


INJECTED = """
import asyncio, sys
import truststore
truststore.inject_into_ssl()
import importlib
library = importlib.import_module(sys.argv[1])
from uringcore.contrib.httpx import AsyncHTTP3Transport

async def main():
    async with library.AsyncClient(transport=AsyncHTTP3Transport(http3="always")) as client:
        print((await client.get(sys.argv[2])).http_version)

asyncio.run(main())
"""


def test_truststore_injected_into_ssl(site, library):
    url = f"https://localhost:{site.port}/version"
    name = library.__name__
    assert program(INJECTED, name, url, SSL_CERT_FILE=site.certificate) == "HTTP/3\n"


def test_httpx2_trusts_the_system_by_default(site, run):
    """httpx2's default context has a directory of authorities, which cannot be read from the context."""

    async def main():
        with pytest.raises(httpx2.ConnectError, match="certificate"):
            await version(httpx2, AsyncHTTP3Transport(http3="always"), site)

    run(main())


@pytest.mark.parametrize("trust_env", [True, False])
def test_environment_variables_are_read_as_the_library_reads_them(
    site, run, library, monkeypatch, trust_env
):
    monkeypatch.setenv("SSL_CERT_FILE", site.certificate)

    async def main():
        transport = AsyncHTTP3Transport(http3="always", trust_env=trust_env)
        if trust_env:
            assert await version(library, transport, site) == "HTTP/3"
            return
        with pytest.raises(library.ConnectError, match="certificate"):
            await version(library, transport, site)

    run(main())


def test_unreadable_authorities_raise_in_the_constructor(tmp_path, monkeypatch):
    """The constructor raises the error, not the first request, which would read files on the loop."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing"))
    with pytest.raises(FileNotFoundError):
        AsyncHTTP3Transport()


# The Model Context Protocol ------------------------------------------------------------------------


def test_fastmcp_streams_over_http3(certificate, tmp_path, run_ours):
    """A tool reports its progress during its work: its response has to arrive as it is sent."""
    fastmcp = pytest.importorskip("fastmcp")
    from fastmcp.client.transports import StreamableHttpTransport

    from tests.server.harness import ForkedServer

    server = ForkedServer(tmp_path, certificate, app="tests.client.mcp_application:app")

    def make_client(**options):
        transport = AsyncHTTP3Transport(verify=server.certificate, http3="always")
        options.setdefault("timeout", httpx2.Timeout(60))
        return httpx2.AsyncClient(transport=transport, **options)

    async def main():
        seen = []
        at_first = asyncio.Event()

        async def progress(done, total, message):
            seen.append(done)
            at_first.set()

        transport = StreamableHttpTransport(f"{server.url}/mcp", httpx_client_factory=make_client)
        async with fastmcp.Client(transport) as client:
            working = asyncio.create_task(client.call_tool("steps", progress_handler=progress))
            await at_first.wait()
            assert seen == [1]
            assert (await client.call_tool("go_on")).data == "gone on"
            assert (await working).data == "HTTP/3"
        assert seen == [1, 2]

    try:
        run_ours(main())
    finally:
        server.kill()
    server.check_log()
