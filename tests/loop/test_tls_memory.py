"""Memory that TLS lends to OpenSSL for one call, and code that runs meanwhile and looks for it."""

from __future__ import annotations

import asyncio
import gc
import ssl
from typing import Any

import pytest

from tests.loop.harness import Recorder, Runner
from tests.loop.test_tls_data import MIB, end, pattern, tls_pair


class Reusing(Recorder, asyncio.BufferedProtocol):
    """Takes its bytes in one small buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = bytearray(5000)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self.buffer[:nbytes]))


@pytest.mark.parametrize("serve", [Recorder, Reusing])
def test_no_view_of_lent_memory_can_be_found(
    run_ours: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, serve: Any
) -> None:
    """A memoryview without an exporting object shows memory that may be freed: code that finds it among the
    collector's objects, such as a callback of OpenSSL or another thread, may keep a view for longer than the
    memory exists.
    """

    def ownerless() -> list[memoryview]:
        return [one for one in gc.get_objects() if type(one) is memoryview and one.obj is None]

    others = (
        ownerless()
    )  # of the interpreter's or the test runner's, and kept so that no id comes again
    known = {id(one) for one in others}
    found: list[memoryview] = []
    looks = 0

    def look(*_: Any) -> None:
        nonlocal looks
        looks += 1
        found.extend(one for one in ownerless() if id(one) not in known)

    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls, serve)
        data = pattern(MIB // 4)
        client.transport.write(bytearray(data))
        await served.until(lambda: len(served.data) == len(data))
        served.transport.write(bytearray(data))
        await client.until(lambda: len(client.data) == len(data))
        assert served.data == client.data == data
        await end(client, server)

    contexts: tuple[Any, Any] = (server_tls, client_tls)
    for context in contexts:
        context._msg_callback = look
    try:
        run_ours(main())
    finally:
        for context in contexts:
            context._msg_callback = None
    assert looks > 0
    assert not found


@pytest.mark.parametrize("serve", [Recorder, Reusing])
def test_a_view_of_lent_memory_that_is_kept(
    run_ours: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, serve: Any
) -> None:
    """The collector tracks the tuple in which OpenSSL's read() gets its buffer. Code that takes the buffer
    from there keeps memory that stays, and that no other code uses.
    """
    kept: list[memoryview] = []

    def keep(*_: Any) -> None:
        if len(kept) < 5:
            tuples = (one for one in gc.get_objects() if type(one) is tuple)
            kept.extend(
                memoryview(item) for one in tuples for item in one if type(item).__name__ == "Loan"
            )

    async def main() -> None:
        client, served, server = await tls_pair(server_tls, client_tls, serve)
        data = pattern(MIB // 4)
        client.transport.write(bytearray(data))
        await served.until(lambda: len(served.data) == len(data))
        assert served.data == data
        if serve is Reusing:
            with pytest.raises(BufferError):
                served.buffer.clear()
        await end(client, server)

    context: Any = server_tls
    context._msg_callback = keep
    try:
        run_ours(main())
    finally:
        context._msg_callback = None
    assert len(kept) >= 5
    gc.collect()
    for view in kept:
        view[:] = bytes(len(view))
        assert view[-1] == 0
