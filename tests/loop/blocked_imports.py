"""Runs a loop's operations while imports fail, and prints the attempted imports.

A process that has changed its root directory or its user, or has no descriptor left, cannot import
any module: each operation has to work with the modules that were loaded when its loop was made.
``test_late_imports`` runs this as ``python -m tests.loop.blocked_imports LOOP CERTIFICATE KEY``.
"""

from __future__ import annotations

import asyncio
import builtins
import io
import json
import os
import signal
import socket
import ssl
import sys
import tempfile
import threading
import traceback
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from importlib.machinery import ModuleSpec
from typing import Any

from tests.loop.harness import Echo, Recorder, connected_pair, factory, listen

if sys.argv[1:2] != ["stock"]:
    import uringcore.aio
    from uringcore.quic import ClientConfig, ServerConfig, connect
    from uringcore.quic import listen as listen_for_quic

Operation = Callable[[], Awaitable[None]]
OPERATIONS: list[Operation] = []
TLS: dict[str, ssl.SSLContext] = {}


class ShutFinder:
    """Finds no module, and records the requested names."""

    def __init__(self) -> None:
        self.tried: list[str] = []

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        self.tried.append(name)
        raise ImportError(f"imports are shut: {name}")


def operation(function: Operation) -> Operation:
    """Adds `function` to the operations."""
    OPERATIONS.append(function)
    return function


@operation
async def callbacks_and_timers() -> None:
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    loop.call_soon(loop.call_later, 0.001, loop.call_at, loop.time(), done.set)
    await done.wait()
    woken = asyncio.Event()
    thread = threading.Thread(target=loop.call_soon_threadsafe, args=(woken.set,))
    thread.start()
    await woken.wait()
    thread.join()
    repr(loop.call_soon(print)), repr(loop.call_later(1, print))
    await asyncio.wait_for(asyncio.sleep(0), 5)


@operation
async def tasks() -> None:
    loop = asyncio.get_running_loop()
    await asyncio.create_task(asyncio.sleep(0), name="named")
    loop.set_task_factory(lambda loop, coro, **options: asyncio.Task(coro, loop=loop, **options))
    await asyncio.create_task(asyncio.sleep(0))
    loop.set_task_factory(None)
    waiting = asyncio.create_task(asyncio.sleep(10))
    await asyncio.sleep(0)
    waiting.print_stack(file=io.StringIO())
    repr(waiting)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def _talk(server: asyncio.AbstractServer, address: Any, **options: Any) -> None:
    loop = asyncio.get_running_loop()
    transport, client = await loop.create_connection(Recorder, *address, **options)
    for name in ("socket", "sockname", "peername", "cipher", "ssl_object", "other"):
        transport.get_extra_info(name)
    assert isinstance(transport, asyncio.Transport)
    repr(transport)
    transport.set_write_buffer_limits(high=10)
    transport.write(b"hello")
    transport.writelines([b"h", b"ello" * 50_000])
    await client.until(lambda: len(client.data) >= 200_006)
    transport.close()
    await client.until_call("lost")
    repr(transport)
    server.close()
    await server.wait_closed()


@operation
async def tcp() -> None:
    await _talk(*await listen(Echo))


@operation
async def tls() -> None:
    server, address = await listen(Echo, ssl=TLS["server"])
    await _talk(server, address, ssl=TLS["client"])


@operation
async def tls_refused() -> None:
    server, address = await listen(Echo, ssl=TLS["server"])
    loop = asyncio.get_running_loop()
    try:
        await loop.create_connection(Recorder, *address, ssl=ssl.create_default_context())
    except ssl.SSLError:
        pass
    else:
        raise AssertionError("an unknown authority was trusted")
    server.close()
    await server.wait_closed()


@operation
async def start_tls() -> None:
    loop = asyncio.get_running_loop()
    one, other = connected_pair()
    first, near = await loop.create_connection(Recorder, sock=one)
    second, far = await loop.create_connection(Recorder, sock=other)
    await asyncio.gather(
        loop.start_tls(first, near, TLS["client"], server_hostname="localhost"),
        loop.start_tls(second, far, TLS["server"], server_side=True),
    )
    first.abort()
    await far.until_call("lost")


@operation
async def streams() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"line\n")
    assert await reader.read() == b"line\n"
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()


@operation
async def unix_sockets() -> None:
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "socket")
        server = await loop.create_unix_server(Echo, path)
        transport, client = await loop.create_unix_connection(Recorder, path)
        transport.write(b"hello")
        await client.until(lambda: client.data == b"hello")
        transport.close()
        await client.until_call("lost")
        server.close()
        await server.wait_closed()


@operation
async def datagrams() -> None:
    loop = asyncio.get_running_loop()
    got = loop.create_future()

    class Receiver(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            got.set_result(data)

    receiver, _ = await loop.create_datagram_endpoint(Receiver, local_addr=("127.0.0.1", 0))
    address = receiver.get_extra_info("sockname")
    sender, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=address)
    sender.sendto(b"hello")
    assert await got == b"hello"
    repr(sender)
    sender.close()
    receiver.abort()


@operation
async def protocol_errors() -> None:
    """Exceptions of a protocol go to the handler, whose report has a traceback."""
    loop = asyncio.get_running_loop()

    class Raising(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            raise RuntimeError("raised for the test")

    reports: list[Any] = []
    loop.set_exception_handler(lambda loop, context: reports.append(context))
    server, address = await listen(Raising)
    transport, client = await loop.create_connection(Recorder, *address)
    transport.write(b"x")
    await client.until_call("lost")
    loop.call_soon(_raise)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    loop.set_exception_handler(None)
    assert len(reports) == 2, reports
    for context in reports:
        "".join(traceback.format_exception(context["exception"]))
    server.close()
    await server.wait_closed()


def _raise() -> None:
    raise RuntimeError("raised for the test")


@operation
async def connect_refused() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        try:
            await asyncio.open_connection(*bound.getsockname())
        except ConnectionRefusedError:
            return
        raise AssertionError("a connection to a closed port was made")


@operation
async def sock_calls() -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as one:
        listener.setblocking(False)
        one.setblocking(False)
        accepted = asyncio.create_task(loop.sock_accept(listener))
        await loop.sock_connect(one, listener.getsockname())
        other, _ = await accepted
        with other, tempfile.TemporaryFile() as file:
            await loop.sock_sendall(one, b"hello")
            assert await loop.sock_recv(other, 100) == b"hello"
            await loop.sock_sendall(one, b"hello")
            await loop.sock_recv_into(other, bytearray(10))
            file.write(b"file")
            file.flush()
            assert await loop.sock_sendfile(one, file) == 4
            assert await loop.sock_recv(other, 100) == b"file"
            waiting = asyncio.create_task(loop.sock_recv(other, 1))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
    with socket.socket(type=socket.SOCK_DGRAM) as udp:
        udp.setblocking(False)
        udp.bind(("127.0.0.1", 0))
        if hasattr(asyncio.AbstractEventLoop, "sock_sendto"):
            await loop.sock_sendto(udp, b"hello", udp.getsockname())
            await loop.sock_recvfrom(udp, 10)


@operation
async def sendfile() -> None:
    loop = asyncio.get_running_loop()
    server, address = await listen(Echo)
    transport, client = await loop.create_connection(Recorder, *address)
    with tempfile.TemporaryFile() as file:
        file.write(b"file")
        file.flush()
        await loop.sendfile(transport, file, 0)
        await client.until(lambda: client.data == b"file")
    transport.close()
    server.close()
    await server.wait_closed()


@operation
async def sendfile_over_tls() -> None:
    loop = asyncio.get_running_loop()
    server, address = await listen(Echo, ssl=TLS["server"])
    transport, client = await loop.create_connection(Recorder, *address, ssl=TLS["client"])
    with tempfile.TemporaryFile() as file:
        file.write(b"file")
        file.seek(0)
        await loop.sendfile(transport, file, 0)
        await client.until(lambda: client.data == b"file")
    transport.close()
    await client.until_call("lost")
    server.close()
    await server.wait_closed()


@operation
async def watchers_and_pipes() -> None:
    loop = asyncio.get_running_loop()
    near, far = os.pipe()
    readable = asyncio.Event()
    loop.add_reader(near, readable.set)
    os.write(far, b"x")
    await readable.wait()
    loop.remove_reader(near)
    reader = Recorder()
    await loop.connect_read_pipe(lambda: reader, os.fdopen(near, "rb"))
    writer, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(far, "wb"))
    writer.write(b"y")
    await reader.until(lambda: reader.data == b"xy")
    writer.close()
    await reader.until_call("lost")


@operation
async def children() -> None:
    child = await asyncio.create_subprocess_exec("/bin/echo", "hello", stdout=PIPE)
    assert (await child.communicate())[0] == b"hello\n"
    child = await asyncio.create_subprocess_shell("exit 3")
    assert await child.wait() == 3
    try:
        await asyncio.create_subprocess_exec("/no/such/program")
    except FileNotFoundError:
        return
    raise AssertionError("a program that is not there was run")


@operation
async def signals() -> None:
    loop = asyncio.get_running_loop()
    caught = asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, caught.set)
    os.kill(os.getpid(), signal.SIGUSR1)
    await caught.wait()
    loop.remove_signal_handler(signal.SIGUSR1)


@operation
async def executor() -> None:
    assert await asyncio.get_running_loop().run_in_executor(None, len, "four") == 4


@operation
async def names() -> None:
    loop = asyncio.get_running_loop()
    await loop.getaddrinfo("localhost", 80)
    await loop.getnameinfo(("127.0.0.1", 80))


@operation
async def debug_mode() -> None:
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    await _talk(*await listen(Echo))
    await asyncio.create_task(asyncio.sleep(0.001))
    loop.set_debug(False)


@operation
async def forks() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


@operation
async def quic() -> None:
    if sys.argv[1] == "stock":
        return
    certificate, key = sys.argv[2:4]

    config = ServerConfig(certificate=(certificate, key), alpn=["test"])
    async with listen_for_quic("127.0.0.1", 0, config) as listener:
        serving = asyncio.create_task(_serve_one(listener))
        client = ClientConfig(authorities=certificate, server_name="localhost", alpn=["test"])
        connecting = connect(*listener.address, client)
        async with connecting as connection, connection.open_stream() as stream:
            with tempfile.TemporaryFile() as file:
                file.write(b"file")
                file.flush()
                await stream.sendfile(file)
            await stream.finish()
            assert await stream.read() == b"file"
        await serving


async def _serve_one(listener: Any) -> None:
    async with await listener.accept() as connection:
        async with await connection.accept_stream() as stream:
            await stream.send(await stream.read())
            await stream.finish()


@operation
async def files() -> None:
    if sys.argv[1] == "stock":
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "file")
        for mode in ("wb", "w"):
            async with uringcore.aio.open(path, mode) as file:
                await file.write("text" if mode == "w" else b"text")
        async with uringcore.aio.open(path) as file:
            assert await file.read() == "text"
        await uringcore.aio.os.stat(path)
        async with uringcore.aio.tempfile.TemporaryFile() as file:
            await file.write(b"x")


@operation
async def async_generators() -> None:
    async def numbers() -> Any:
        yield 1
        yield 2

    async for _ in numbers():
        break
    await asyncio.get_running_loop().shutdown_asyncgens()


async def _all(failures: dict[str, str]) -> None:
    for one in OPERATIONS:
        name = one.__name__  # type: ignore[attr-defined]
        try:
            await asyncio.wait_for(one(), 20)
        except Exception as error:
            failures[name] = "".join(traceback.format_exception(error))
    await asyncio.get_running_loop().shutdown_default_executor()


def main(name: str, certificate: str, key: str) -> None:
    """Runs all operations on the loop called `name`; prints the imports and the failures."""
    TLS["server"] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    TLS["server"].load_cert_chain(certificate, key)
    TLS["client"] = ssl.create_default_context(cafile=certificate)
    loop = factory(name)()
    asyncio.set_event_loop(loop)
    finder = ShutFinder()
    kept, sys.meta_path[:] = list(sys.meta_path), [finder]
    failures: dict[str, str] = {}
    try:
        loop.run_until_complete(_all(failures))
        loop.close()
    finally:
        sys.meta_path[:] = kept
    builtins.print(json.dumps({"tried": sorted(set(finder.tried)), "failures": failures}))


if __name__ == "__main__":
    main(*sys.argv[1:])
