"""A QUIC server of several processes on one port, and its restart without a lost connection.

    python examples/quic_workers.py cert.pem key.pem --port 4433 --workers 4

    kill -HUP  <pid>   replaces the processes one after the other, with the code on disk
    kill -TERM <pid>   accepts no new connections and waits for open ones, 30 seconds at most

The server echoes streams. On each unidirectional stream it sends the number of its process. Clients
resume their sessions and send 0-RTT data to any of the processes: they share a file of sessions.
"""

import argparse
import asyncio
import multiprocessing
import os
import signal
import sys
import tempfile

import uringcore
from uringcore.asyncio import QuicConnectionProtocol, serve
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.events import QuicEvent, StreamDataReceived
from uringcore.quic.sessions import SharedSessionStore
from uringcore.quic.workers import PortGroup, PortWorker


class Echo(QuicConnectionProtocol):
    """Sends every stream's data back on the same stream."""

    worker: PortWorker

    def quic_event_received(self, event: QuicEvent) -> None:
        """Called for every event of the connection."""
        if not isinstance(event, StreamDataReceived):
            return
        if event.stream_id & 2 == 0:
            self._quic.send_stream_data(event.stream_id, event.data, event.end_stream)
        elif event.end_stream:
            answer = self._quic.get_next_available_stream_id(is_unidirectional=True)
            self._quic.send_stream_data(answer, b"%d %d" % (self.worker.index, os.getpid()), True)
        self.transmit()


async def work(worker: PortWorker, options: argparse.Namespace, store: SharedSessionStore) -> None:
    """Serves in one process, until SIGTERM and the end of its last connection."""
    configuration = QuicConfiguration(
        is_client=False, alpn_protocols=["echo"], session_store=store, early_data=True
    )
    configuration.load_cert_chain(options.certificate, options.key)
    Echo.worker = worker
    server = await serve("", 0, configuration=configuration, create_protocol=Echo, workers=worker)
    told_to_stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told_to_stop.set)
    await told_to_stop.wait()
    server.close()
    await server.wait_closed(options.drain)


def run(worker: PortWorker, options: argparse.Namespace, store: SharedSessionStore) -> None:
    """The entry point of each process."""
    uringcore.run(work(worker, options, store))


def main() -> None:
    """Binds the port and keeps the processes running."""
    parser = argparse.ArgumentParser(description="A QUIC echo server of several processes.")
    parser.add_argument("certificate")
    parser.add_argument("key")
    parser.add_argument("--host", default="::")
    parser.add_argument("--port", type=int, default=4433)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--drain", type=float, default=30.0, help="seconds for open connections")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as folder,
        PortGroup(options.host, options.port, workers=options.workers) as group,
    ):
        print(f"process {os.getpid()} serves on {group.sockname[:2]}", file=sys.stderr, flush=True)
        # Spawned processes import the program anew, so that a restart takes up changed code.
        context = multiprocessing.get_context("spawn")
        group.run(run, options, SharedSessionStore(f"{folder}/sessions"), context=context)


if __name__ == "__main__":
    main()
