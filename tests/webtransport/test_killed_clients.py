"""A thousand sessions of killed clients: the server's resources return to their former values."""

from __future__ import annotations

import asyncio
import gc
import sys

import pytest

import uringcore
from tests.quic.harness import eventually
from tests.server.harness import ROOT
from tests.support.allocated_memory import memory
from tests.support.interpreter_roles import is_default_interpreter
from tests.webtransport.session_pairs import asked_of, serving
from uringcore._uringcore import MemorySessionStore, Stream
from uringcore.webtransport._asgi import AsgiSession
from uringcore.webtransport._server_connection import SessionTransport
from uringcore.webtransport._session_lifecycle import SessionState
from uringcore.webtransport._session_messages import StreamsById

PROCESSES, CLIENTS, SESSIONS = 2, 20, 500
"""For each of the two processes that are killed: the number of its clients, and of all their sessions."""
OURS = (SessionTransport, SessionState, AsgiSession, StreamsById, Stream)


async def hearing(scope, receive, send):
    """Accepts, and receives messages until the disconnect."""
    await send({"type": "webtransport.accept"})
    while (await receive())["type"] != "webtransport.disconnect":
        pass


async def serve(server, running):
    while True:
        asgi = await asked_of(server)
        task = asyncio.ensure_future(asgi.run(hearing))
        running.add(task)
        task.add_done_callback(running.discard)
        del asgi, task


def left():
    """Returns the number of session objects in this process."""
    gc.collect()
    return sum(issubclass(type(one), OURS) for one in gc.get_objects())


async def doomed(port):
    """Starts a process of clients that wait for their start signal."""
    arguments = map(str, (port, CLIENTS, SESSIONS // CLIENTS))
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.webtransport.clients_to_kill", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )


def test_a_thousand_sessions_of_killed_clients_leave_memory_flat(certificate):
    if not is_default_interpreter():
        pytest.skip("a thousand sessions run on the default interpreter")

    async def main():
        running, taken = set(), []
        config = {"idle_timeout": 3.0, "backlog": SESSIONS, "session_store": MemorySessionStore(16)}
        async with serving(certificate, config) as server:
            serving_all = asyncio.ensure_future(serve(server, running))
            port = server.address[1]
            clients = [await doomed(port) for _ in range(PROCESSES)]
            for number, client in enumerate(clients):
                client.stdin.write(b"\n")
                assert await client.stdout.readline() == b"all are there\n"
                counts = server.stats()
                assert counts["sessions_asked"] == SESSIONS * (number + 1)
                assert counts["sessions_open"] == len(running) == SESSIONS
                client.kill()
                await client.communicate()
                await eventually(lambda: server.stats()["sessions_open"] == 0)
                await eventually(lambda: not server._transports and not running)
                await eventually(lambda: left() == 0)
                taken.append(memory())
            serving_all.cancel()
        heap, blocks = (now - then for then, now in zip(*taken, strict=True))
        # The limit is below the cost of one object a session, and above tables that grow once.
        assert heap < SESSIONS, f"{heap} KiB more than before {SESSIONS} sessions"
        assert blocks < 2 * SESSIONS, f"{blocks} blocks more than before {SESSIONS} sessions"

    uringcore.run(asyncio.wait_for(main(), 120))
