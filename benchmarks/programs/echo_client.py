"""The client of an echo whose server is looked at by somebody else: it sends as many messages as it is told.

    python -m benchmarks.programs.echo_client PORT SIZE tcp

Each line on stdin is a number of messages, one in flight at a time; a byte on stdout says that all have
come back as they were. It runs when the server, on the same core, has nothing to do, so that the server's
steps are the same each time: a message that came while it still worked would save it a wait.
"""

from __future__ import annotations

import os
import socket
import sys

TYPES = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}


def exchange(connection: socket.socket, message: bytes) -> None:
    """Send `message` and have it back."""
    connection.sendall(message)
    reply = bytearray()
    while len(reply) < len(message):
        piece = connection.recv(len(message) - len(reply))
        if not piece:
            raise ConnectionError("the server closed the connection")
        reply += piece
    if reply != message:
        raise ValueError("a reply differs from its message")


def main() -> None:
    """Exchange until stdin ends."""
    port, size, transport = sys.argv[1:]
    # Such a process does not take the core from another when it wakes up.
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    message = bytes(index * 7 % 251 for index in range(int(size)))
    with socket.socket(socket.AF_INET, TYPES[transport]) as connection:
        connection.connect(("127.0.0.1", int(port)))
        if transport == "tcp":
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for line in sys.stdin:
            for _ in range(int(line)):
                exchange(connection, message)
            sys.stdout.buffer.write(b".")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
