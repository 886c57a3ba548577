"""`sock_connect` and `sock_accept`, as on asyncio."""

from __future__ import annotations

import asyncio
import gc
import re
import socket
from pathlib import Path

import pytest

from tests.loop.harness import Runner
from tests.loop.test_sock_streams import started


def nonblocking(family: int = socket.AF_INET) -> socket.socket:
    """A fresh stream socket."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    return sock


def test_connect_and_accept(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as listener, nonblocking() as client:
            listener.setblocking(False)
            task = await started(loop.sock_accept(listener))
            assert await loop.sock_connect(client, listener.getsockname()) is None
            conn, address = await task
            with conn:
                assert type(conn) is socket.socket
                assert address == client.getsockname()
                assert conn.gettimeout() == 0
                assert (conn.family, conn.type) == (socket.AF_INET, socket.SOCK_STREAM)
                assert not conn.get_inheritable()
                conn.send(b"hello")
                assert await loop.sock_recv(client, 100) == b"hello"

    run(main())


def test_connections_that_wait_already(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0), backlog=50) as listener:
            listener.setblocking(False)
            clients = [socket.create_connection(listener.getsockname()) for _ in range(40)]
            addresses = []
            for _ in clients:
                conn, address = await loop.sock_accept(listener)
                conn.close()
                addresses.append(address)
            assert addresses == [client.getsockname() for client in clients]
            for client in clients:
                client.close()

    run(main())


def test_a_host_name_is_resolved(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as listener, nonblocking() as client:
            await loop.sock_connect(client, ("localhost", listener.getsockname()[1]))
            assert client.getpeername() == listener.getsockname()

    run(main())


def test_a_refused_connection_names_the_address(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = free.getsockname()
            for _ in range(3):
                with nonblocking() as client:
                    message = re.escape(f"[Errno 111] Connect call failed {address}")
                    with pytest.raises(ConnectionRefusedError, match=message):
                        await loop.sock_connect(client, address)

    run(main())


@pytest.mark.parametrize("is_replaced", [False, True], ids=["ring", "asyncio's code"])
def test_the_error_of_a_refused_connection_is_in_no_cycle(
    run: Runner, monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    if is_replaced:
        connect = socket.socket.connect
        monkeypatch.setattr(socket.socket, "connect", lambda *args: connect(*args))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.socket() as free, nonblocking() as client:
            free.bind(("127.0.0.1", 0))
            error: BaseException | None = None
            try:
                await loop.sock_connect(client, free.getsockname())
            except ConnectionRefusedError as exc:
                error = exc
            assert error is not None
            # The task's step that raised the error has the future.
            await asyncio.sleep(0)
            while error is not None:
                holders = gc.get_referrers(error)
                assert not [one for one in holders if isinstance(one, asyncio.Future)]
                error = error.__context__

    run(main())


def test_a_connect_that_fails_at_once_raises_its_error(run: Runner, tmp_path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with nonblocking(socket.AF_UNIX) as client:
            with pytest.raises(FileNotFoundError, match="No such file"):
                await loop.sock_connect(client, str(tmp_path / "nobody"))
            with socket.socket(socket.AF_UNIX) as silent:
                silent.bind(str(tmp_path / "silent"))
                with pytest.raises(ConnectionRefusedError, match="Connection refused"):
                    await loop.sock_connect(client, str(tmp_path / "silent"))
            with pytest.raises(OSError, match="AF_UNIX path too long"):
                await loop.sock_connect(client, "x" * 200)

    run(main())


@pytest.mark.parametrize("name", ["path", "bytes", "abstract"])
def test_unix_sockets(run: Runner, tmp_path: Path, name: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        path = str(tmp_path / "listener")
        address: str | bytes = {
            "path": path,
            "bytes": path.encode(),
            "abstract": "\0uringcore-test-" + path,
        }[name]
        with nonblocking(socket.AF_UNIX) as listener, nonblocking(socket.AF_UNIX) as client:
            listener.bind(address)
            listener.listen()
            task = await started(loop.sock_accept(listener))
            await loop.sock_connect(client, address)
            conn, peer = await task
            with conn:
                assert peer == ""
                assert conn.family == socket.AF_UNIX
                await loop.sock_sendall(conn, b"hello")
                assert await loop.sock_recv(client, 100) == b"hello"

    run(main())


def test_accepting_on_what_does_not_listen(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with nonblocking() as sock:
            with pytest.raises(OSError, match="Invalid argument"):
                await loop.sock_accept(sock)
        with pytest.raises(OSError, match="Bad file descriptor"):
            await loop.sock_accept(sock)

    run(main())


def test_many_connections_at_once(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0), backlog=200) as listener:
            listener.setblocking(False)

            async def serve() -> None:
                for _ in range(100):
                    conn, _ = await loop.sock_accept(listener)
                    tasks.append(asyncio.create_task(echo(conn)))

            async def echo(conn: socket.socket) -> None:
                with conn:
                    while data := await loop.sock_recv(conn, 100):
                        await loop.sock_sendall(conn, data)

            async def ask(number: int) -> bytes:
                with nonblocking() as client:
                    await loop.sock_connect(client, listener.getsockname())
                    await loop.sock_sendall(client, b"%d" % number)
                    return await loop.sock_recv(client, 100)

            tasks: list[asyncio.Task[None]] = []
            server = asyncio.create_task(serve())
            answers = await asyncio.gather(*[ask(number) for number in range(100)])
            assert answers == [b"%d" % number for number in range(100)]
            await server
            await asyncio.gather(*tasks)

    run(main())
