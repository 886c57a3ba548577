"""A server of several processes from start to end: `examples/quic_workers.py`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys

from tests.quic.harness import Recorder
from tests.server.harness import ROOT, environment
from uringcore.asyncio import connect
from uringcore.quic import events


async def who(client):
    """Returns index and process id of the worker that serves ``client``."""
    stream_id = client._quic.get_next_available_stream_id(is_unidirectional=True)
    client._quic.send_stream_data(stream_id, b"who?", end_stream=True)
    client.transmit()
    # The server numbers its streams as the client does.
    answer = stream_id ^ 1
    await client.wait_for(events.StreamDataReceived, stream_id=answer, end_stream=True)
    return tuple(int(number) for number in client.data[answer].split())


async def echo(client):
    stream_id = client._quic.get_next_available_stream_id()
    client._quic.send_stream_data(stream_id, b"hello", end_stream=True)
    client.transmit()
    await client.wait_for(events.StreamDataReceived, stream_id=stream_id, end_stream=True)
    assert client.data[stream_id] == b"hello"


def test_processes_die_are_replaced_one_after_the_other_and_end(run, pki, client_configuration):
    """The end of a process affects no client of another process. No client is refused or left waiting, except
    the clients of the killed process, which get a reset.
    """
    configuration = client_configuration(alpn_protocols=["echo"])

    async def main():
        server = await asyncio.create_subprocess_exec(
            sys.executable,
            "examples/quic_workers.py",
            str(pki.server.certfile),
            str(pki.server.keyfile),
            *("--host", "127.0.0.1", "--port", "0", "--workers", "3", "--drain", "60"),
            cwd=ROOT,
            env=environment() | {"URINGCORE_BACKEND": run.kind},
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            await live(server)
        except BaseException:
            # Only a signal from the parent ends its children.
            with contextlib.suppress(ProcessLookupError):
                server.terminate()
            await server.wait()
            raise

    async def live(server):
        line = (await server.stderr.readline()).decode()
        port = int(re.search(r", (\d+)\)$", line.strip())[1])

        def client():
            return connect("127.0.0.1", port, configuration=configuration, create_protocol=Recorder)

        async def processes(stack, until):
            """Connects clients until ``until`` is satisfied; returns them by worker index and process id."""
            found = {}
            while not until(found):
                async with contextlib.AsyncExitStack() as short:
                    one = await short.enter_async_context(client())
                    serving = await who(one)
                    if serving not in found:
                        found[serving] = one
                        stack.push_async_exit(short.pop_all())
            return found

        async def all_three(stack):
            return await processes(stack, lambda found: {i for i, _ in found} == {0, 1, 2})

        async with contextlib.AsyncExitStack() as stack:
            at = await all_three(stack)
            assert len(at) == 3
            (killed,) = (process for process in at if process[0] == 1)
            os.kill(killed[1], signal.SIGKILL)
            # Either the other workers learn about the death first, or the new process receives the packets;
            # both send a reset.
            at[killed]._quic.send_stream_data(100, b"hello?")
            end = await at[killed].wait_for(events.ConnectionTerminated)
            assert end.kind == "stateless_reset"
            later = await processes(stack, lambda found: any(i == 1 for i, _ in found))
            assert killed not in later
            del at[killed]
            for one in at.values():
                await echo(one)

        async with contextlib.AsyncExitStack() as stack:
            before = await all_three(stack)
            # Like a terminal's SIGHUP, which reaches all processes; only the parent acts on it.
            for _, pid in before:
                os.kill(pid, signal.SIGHUP)
            server.send_signal(signal.SIGHUP)
            after = set()
            while len(after) < 3:
                # A new connection each time: none may fail while processes end and start.
                async with client() as one:
                    serving = await who(one)
                    await echo(one)
                if serving not in before:
                    after.add(serving)
                for process, old in list(before.items()):
                    await echo(old)
                    # A process ends when its last client has left.
                    if process[0] == len(after):
                        old.close()
                        del before[process]
            assert {index for index, _ in after} == {0, 1, 2}

        async with client() as last:
            await echo(last)
            server.terminate()
            # The parent forwards the signal; this open connection continues until it is closed.
            for _ in range(20):
                await echo(last)
        assert await server.wait() == 0
        assert await server.stderr.read() == b""

    run(main())
