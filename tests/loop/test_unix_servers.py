"""Unix stream sockets: paths of every kind, abstract names, their removal, TLS, accepted sockets."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.loop.harness import Echo, Recorder, Runner, open_descriptors, python_version

REMOVES_ITS_PATH = python_version() >= (3, 13)


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a short name: a Unix path has at most 107 bytes."""
    base = Path("/tmp") / f"uc-{os.getpid()}-{os.urandom(4).hex()}"
    base.mkdir()
    yield base
    for left in base.iterdir():
        left.unlink()
    base.rmdir()


async def talk(path: Any, **options: Any) -> bytes:
    """Send through a new connection to `path` and return what comes back."""
    reader, writer = await asyncio.open_unix_connection(path, **options)
    writer.write(b"hello")
    answer = await reader.readexactly(5)
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.mark.parametrize("kind", ["str", "bytes", "path"])
def test_paths(run: Runner, folder: Path, kind: str) -> None:
    path = folder / "s"
    given: Any = {"str": str(path), "bytes": os.fsencode(path), "path": path}[kind]

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(Echo, given)
        assert stat.S_ISSOCK(path.stat().st_mode)
        assert server.sockets[0].getsockname() == str(path)
        assert await talk(given) == b"hello"
        server.close()
        await server.wait_closed()
        assert path.exists() is not REMOVES_ITS_PATH

    run(main())


@pytest.mark.parametrize("as_bytes", [False, True])
def test_abstract_names(run: Runner, as_bytes: bool) -> None:
    name = f"\0uringcore-{os.getpid()}-{os.urandom(4).hex()}"
    given: Any = name.encode() if as_bytes else name

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(3):  # the name is free as soon as the server is closed
            server = await loop.create_unix_server(Echo, given)
            assert server.sockets[0].getsockname() == name.encode()
            assert await talk(given) == b"hello"
            with pytest.raises(OSError) as caught:
                await loop.create_unix_server(Echo, given)
            assert caught.value.errno == errno.EADDRINUSE
            server.close()
            await server.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await talk(given)

    run(main())


def test_a_stale_socket_is_replaced_and_other_files_are_not(run: Runner, folder: Path) -> None:
    path, plain = folder / "s", folder / "f"
    plain.write_text("precious")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(path))
        server = await loop.create_unix_server(Echo, path)
        assert await talk(path) == b"hello"
        server.close()
        await server.wait_closed()
        before = open_descriptors()
        with pytest.raises(OSError, match="already in use") as caught:
            await loop.create_unix_server(Echo, plain)
        assert caught.value.errno == errno.EADDRINUSE
        with pytest.raises(FileNotFoundError):
            await loop.create_unix_server(Echo, folder / "no" / "s")
        assert open_descriptors() == before

    run(main())
    assert plain.read_text() == "precious"


@pytest.mark.skipif(not REMOVES_ITS_PATH, reason="cleanup_socket came with Python 3.13")
def test_cleanup_socket(run: Runner, folder: Path) -> None:
    path = folder / "s"

    async def main() -> None:
        loop = asyncio.get_running_loop()
        bound = socket.socket(socket.AF_UNIX)
        bound.bind(str(path))
        server = await loop.create_unix_server(Echo, sock=bound)
        server.close()
        assert not path.exists()

        server = await loop.create_unix_server(Echo, path, cleanup_socket=False)  # type: ignore[call-arg]
        server.close()
        assert path.exists()

        server = await loop.create_unix_server(Echo, path)
        path.unlink()
        server.close()  # another process removed it

        server = await loop.create_unix_server(Echo, path)
        path.unlink()
        with socket.socket(socket.AF_UNIX) as successor:
            successor.bind(str(path))
            server.close()
            assert path.exists()

        # A server that never served is cleaned up as well.
        path.unlink()
        server = await loop.create_unix_server(Echo, path, start_serving=False)
        server.close()
        assert not path.exists()

    run(main())


def test_wrong_arguments(run: Runner, folder: Path) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        path = folder / "s"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagram, socket.socket() as tcp:
            for make in (loop.create_unix_server, loop.create_unix_connection):
                with pytest.raises(ValueError, match="at the same time"):
                    await make(Echo, path, sock=tcp)
                with pytest.raises(ValueError, match="no (path and )?sock"):
                    await make(Echo)
                for wrong in (datagram, tcp):
                    with pytest.raises(ValueError, match="UNIX Domain Stream"):
                        await make(Echo, sock=wrong)
                with pytest.raises(ValueError, match="ssl_handshake_timeout"):
                    await make(Echo, path, ssl_handshake_timeout=1)
                with pytest.raises(TypeError):
                    await make(Echo, 42)
            with pytest.raises(TypeError, match="SSLContext"):
                await loop.create_unix_server(Echo, path, ssl=True)
            with pytest.raises(ValueError, match="server_hostname"):
                await loop.create_unix_connection(Echo, path, server_hostname="x")
            with pytest.raises(ValueError, match="server_hostname"):
                await loop.create_unix_connection(Echo, path, ssl=ssl.create_default_context())
        with pytest.raises(OSError, match="too long"):
            await loop.create_unix_server(Echo, "/tmp/" + "x" * 200)
        with pytest.raises(FileNotFoundError):
            await loop.create_unix_connection(Echo, path)
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(str(path))
            with pytest.raises(ConnectionRefusedError):
                await loop.create_unix_connection(Echo, path)

    run(main())


def test_an_existing_connected_socket(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with theirs:
            transport, protocol = await loop.create_unix_connection(Recorder, sock=ours)
            assert ours.getblocking() is False
            assert transport.get_extra_info("sockname") == ""
            assert transport.get_extra_info("peername") == ""
            extra = transport.get_extra_info("socket")
            assert (extra.family, extra.type) == (socket.AF_UNIX, socket.SOCK_STREAM)
            transport.write(b"x" * 100)
            await loop.sock_sendall(_nonblocking(theirs), b"y" * 100)
            await protocol.until(lambda: len(protocol.data) == 100)
            assert await loop.sock_recv(theirs, 200) == b"x" * 100
            transport.close()
            await protocol.until_call("lost")
            assert ours.fileno() == -1
            assert (extra.family, extra.type) == (socket.AF_UNIX, socket.SOCK_STREAM)

    run(main())


def _nonblocking(sock: socket.socket) -> socket.socket:
    sock.setblocking(False)
    return sock


def test_addresses_and_credentials(run: Runner, folder: Path) -> None:
    path = folder / "s"
    made: list[Recorder] = []

    def remember() -> Recorder:
        made.append(Recorder())
        return made[-1]

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(remember, str(path))
        transport, client = await loop.create_unix_connection(Recorder, str(path))
        while not made:
            await asyncio.sleep(0)
        accepted = made[0]
        await accepted.until_call("made")
        assert transport.get_extra_info("peername") == str(path)
        assert transport.get_extra_info("sockname") == ""
        assert accepted.transport.get_extra_info("sockname") == str(path)
        assert accepted.transport.get_extra_info("peername") == ""
        raw = accepted.transport.get_extra_info("socket").getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, 12
        )
        assert int.from_bytes(raw[:4], "little") == os.getpid()
        transport.close()
        await accepted.until_call("lost")
        await client.until_call("lost")
        server.close()

    run(main())


def test_half_close_and_large_transfers(run: Runner, folder: Path) -> None:
    path = folder / "s"
    payload = os.urandom(3 << 20)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.read()
        writer.write(data[::-1])
        await writer.drain()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_unix_server(serve, path)
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(payload)
        assert writer.can_write_eof()
        writer.write_eof()
        assert await reader.read() == payload[::-1]
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()

    run(main())


def test_tls(
    run: Runner, folder: Path, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    path = folder / "s"

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(Echo, path, ssl=server_tls)
        assert await talk(path, ssl=client_tls, server_hostname="localhost") == b"hello"
        with pytest.raises(ssl.SSLCertVerificationError):
            await talk(path, ssl=client_tls, server_hostname="elsewhere")
        if loop.get_debug():  # there the server's side of it is reported
            run.complaints.contexts.clear()
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(path))
        transport, protocol = await loop.create_unix_connection(
            Recorder, sock=sock, ssl=client_tls, server_hostname="localhost"
        )
        transport.write(b"over a socket of mine")
        await protocol.until(lambda: protocol.data == b"over a socket of mine")
        transport.close()
        await protocol.until_call("lost")
        server.close()

    run(main())


def test_accepted_sockets(
    run: Runner, folder: Path, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    """connect_accepted_socket() accepts a socket from another acceptor, with TLS and without."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for tls in (False, True):
            with socket.socket(socket.AF_UNIX) as listener:
                path = folder / f"accept{tls}"
                listener.bind(str(path))
                listener.listen()
                options: dict[str, Any] = {}
                if tls:
                    options = {"ssl": client_tls, "server_hostname": "localhost"}
                client = asyncio.ensure_future(talk(path, **options))
                listener.setblocking(False)
                accepted, _ = await loop.sock_accept(listener)
                transport, protocol = await loop.connect_accepted_socket(
                    Echo, accepted, ssl=server_tls if tls else None
                )
                assert await client == b"hello"
                assert protocol.transport is transport
                transport.close()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagram:
            with pytest.raises(ValueError, match="Stream Socket"):
                await loop.connect_accepted_socket(Echo, datagram)
        with pytest.raises(ValueError, match="ssl_handshake_timeout"):
            await loop.connect_accepted_socket(Echo, accepted, ssl_handshake_timeout=1)

    run(main())


def test_serving_starts_on_request(run: Runner, folder: Path) -> None:
    path = folder / "s"

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(Echo, path, start_serving=False)
        assert not server.is_serving()
        with pytest.raises(ConnectionRefusedError):  # bound, but not listening
            await talk(path)
        await server.start_serving()
        await server.start_serving()
        assert server.is_serving()
        assert await talk(path) == b"hello"
        serving = asyncio.ensure_future(server.serve_forever())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="already being awaited"):
            await server.serve_forever()
        assert await talk(path) == b"hello"
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert not server.is_serving()
        assert server.sockets == ()
        with pytest.raises(OSError):
            await talk(path)

    run(main())


def test_a_closed_server_stays_closed(run: Runner, folder: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        path = folder / "s"
        server = await loop.create_unix_server(Echo, path)
        assert await talk(path) == b"hello"
        server.close()
        server.close()
        await server.wait_closed()
        assert not server.is_serving()
        with pytest.raises(OSError):
            await talk(path)

    run(main())


def test_many_clients_and_no_descriptor_left(run: Runner, folder: Path) -> None:
    path = folder / "s"

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(Echo, path, backlog=300)
        assert await talk(path) == b"hello"
        before = open_descriptors()
        for _ in range(3):
            answers = await asyncio.gather(*(talk(path) for _ in range(100)))
            assert answers == [b"hello"] * 100
        for _ in range(200):
            if open_descriptors() <= before:
                break
            await asyncio.sleep(0.01)
        assert open_descriptors() <= before
        server.close()
        await server.wait_closed()

    run(main())
