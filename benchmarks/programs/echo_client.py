"""The client of an echo server that another program measures: it sends the number of messages on stdin.

    python -m benchmarks.programs.echo_client PORT SIZE tcp|udp|tls CERTIFICATE

Each line on stdin is a number of messages, one in flight at a time. A byte on stdout follows once all
have come back unchanged. The client runs when the server, on the same core, is idle. So the server's
steps are identical each time: a message that came while it still worked would save it a wait.
"""

from __future__ import annotations

import socket
import ssl
import sys

from benchmarks.programs.work_requests import yield_the_core


def exchange(connection: socket.socket, message: bytes) -> None:
    """Send `message` and receive the echo."""
    connection.sendall(message)
    reply = bytearray()
    while len(reply) < len(message):
        piece = connection.recv(len(message) - len(reply))
        if not piece:
            raise ConnectionError("the server closed the connection")
        reply += piece
    if reply != message:
        raise ValueError("a reply differs from its message")


def connect(port: int, transport: str, certificate: str) -> socket.socket:
    """A connection to the server; with TLS, the certificate is verified."""
    kind = socket.SOCK_DGRAM if transport == "udp" else socket.SOCK_STREAM
    connection = socket.socket(socket.AF_INET, kind)
    connection.connect(("127.0.0.1", port))
    if transport != "udp":
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if transport == "tls":
        verifying = ssl.create_default_context(cafile=certificate)
        connection = verifying.wrap_socket(connection, server_hostname="localhost")
    return connection


def main() -> None:
    """Exchange until stdin ends."""
    port, size, transport, certificate = sys.argv[1:]
    yield_the_core()
    message = bytes(index * 7 % 251 for index in range(int(size)))
    with connect(int(port), transport, certificate) as connection:
        for line in sys.stdin:
            for _ in range(int(line)):
                exchange(connection, message)
            sys.stdout.buffer.write(b".")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
