"""Socket objects whose creation fails: with any error, a descriptor has one owner."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.loop.harness import Echo, Recorder, Runner, collect, listen

_socket_init = socket.socket.__init__


class InterruptedInit(Exception):
    """An exception that a signal handler raises at the end of ``socket.socket.__init__``."""


@contextmanager
def interrupted_init(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Lets socket objects over a descriptor fail once they have it; they are in the list."""
    failed: list[Any] = []

    def init(self: Any, *args: Any, **options: Any) -> None:
        _socket_init(self, *args, **options)
        if options.get("fileno") is not None:
            failed.append(self)
            raise InterruptedInit

    with monkeypatch.context() as patch:
        patch.setattr(socket.socket, "__init__", init)
        yield failed


def assert_number_is_free(failed: list[Any]) -> None:
    """No code closes the descriptor that has the number now."""
    numbers = [os.open(os.devnull, os.O_RDONLY) for _ in range(4)]
    failed.clear()
    collect()
    for number in numbers:
        os.fstat(number)
        os.close(number)


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_an_accept_that_fails_to_make_its_socket(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            with interrupted_init(monkeypatch) as failed:
                accepted = asyncio.ensure_future(loop.sock_accept(listener))
                await asyncio.sleep(0)
                client = socket.create_connection(listener.getsockname())
                with pytest.raises(InterruptedInit):
                    await accepted
            assert_number_is_free(failed)
            client.close()

    run(main())


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_connection_whose_socket_object_could_not_be_made_goes_on(
    run_ours: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        served: list[Any] = []

        class Kept(Echo):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                served.append(transport)

        server, address = await listen(Kept)
        transport, client = await loop.create_connection(Recorder, *address)
        transport.write(b"1")
        await client.until(lambda: client.data == b"1")
        with interrupted_init(monkeypatch) as failed, pytest.raises(InterruptedInit):
            served[0].get_extra_info("socket")
        failed.clear()
        collect()
        transport.write(b"2")
        await client.until(lambda: client.data == b"12")
        assert served[0].get_extra_info("socket").getsockname() == address
        transport.close()
        await client.until_call("lost")
        server.close()

    run_ours(main())


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_connection_of_a_server_whose_socket_could_not_be_made_is_dropped(
    run_ours: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a method is replaced, asyncio's code serves the connection, over a socket object."""

    async def main() -> None:
        monkeypatch.setattr(socket.socket, "recv", lambda *args: b"")
        server, address = await listen(Echo)
        with interrupted_init(monkeypatch) as failed:
            client = socket.create_connection(address)
            while not run_ours.complaints.contexts:
                await asyncio.sleep(0.001)
            run_ours.expect(InterruptedInit)
        assert_number_is_free(failed)
        client.close()
        server.close()

    run_ours(main())
