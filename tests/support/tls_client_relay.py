"""TLS for clients that read a socket in one thread and write it in another.

OpenSSL does not allow two threads to use one connection at the same time, and `ssl.SSLSocket` of older
CPythons has no lock: about one connection in several hundred of `websockets.sync` hangs, with every server.
Here one thread uses the TLS connection, and the client gets one end of a pair of sockets, with the plaintext.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import threading


def connect(
    address: tuple[str, int], context: ssl.SSLContext, server_hostname: str
) -> socket.socket:
    """Connect over TLS; return a socket with the plaintext. An end of one side ends the other."""
    network = socket.create_connection(address)
    ours, plaintext = _tcp_pair()
    try:
        relay = _Relay(network, ours, context, server_hostname)
        relay.handshake()
    except BaseException:
        for one in (network, ours, plaintext):
            one.close()
        raise
    threading.Thread(target=relay.run, name="TLS relay", daemon=True).start()
    return plaintext


def _tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Connect two TCP sockets to each other: clients set TCP options, which Unix sockets refuse."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    return one, other


class _Relay:
    """Bytes between the client's socket and the network, through one TLS connection."""

    def __init__(
        self,
        network: socket.socket,
        plaintext: socket.socket,
        context: ssl.SSLContext,
        server_hostname: str,
    ) -> None:
        self.network = network
        self.plaintext = plaintext
        self.received, self.records = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.received, self.records, server_hostname=server_hostname)
        self.unsent = {network: bytearray(), plaintext: bytearray()}

    def handshake(self) -> None:
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.network.sendall(self.records.read())
                data = self.network.recv(65536)
                if not data:
                    raise ConnectionResetError("the server ended the TLS handshake") from None
                self.received.write(data)
            else:
                self.network.sendall(self.records.read())
                return

    def run(self) -> None:
        with self.network, self.plaintext:
            self.network.setblocking(False)
            self.plaintext.setblocking(False)
            try:
                self._read_records()
                while self._transfer():
                    pass
            except OSError:
                # One side has reset its connection, or TLS failed: the other side gets the end of file.
                return

    def _transfer(self) -> bool:
        """Wait for one of the sockets and move its bytes. False when one side has ended."""
        with selectors.DefaultSelector() as selector:
            for one, other in (
                (self.network, self.plaintext),
                (self.plaintext, self.network),
            ):
                events = selectors.EVENT_WRITE if self.unsent[one] else 0
                # A side is not read while the other does not take what was read before.
                events |= 0 if self.unsent[other] else selectors.EVENT_READ
                if events:
                    selector.register(one, events)
            for key, events in selector.select():
                one = key.fileobj
                assert isinstance(one, socket.socket)
                if events & selectors.EVENT_WRITE:
                    del self.unsent[one][: one.send(self.unsent[one])]
                if events & selectors.EVENT_READ and not self._receive(one):
                    return False
        return True

    def _receive(self, one: socket.socket) -> bool:
        data = one.recv(65536)
        if one is self.network:
            if not data:
                self._flush(self.plaintext)
                return False
            self.received.write(data)
            return self._read_records()
        if data:
            self.tls.write(data)
        else:
            self._end_tls()
        self.unsent[self.network] += self.records.read()
        if not data:
            self._flush(self.network)
        return bool(data)

    def _read_records(self) -> bool:
        try:
            while data := self.tls.read(65536):
                self.unsent[self.plaintext] += data
        except ssl.SSLWantReadError:
            return True
        except ssl.SSLZeroReturnError:
            data = b""
        self._flush(self.plaintext)
        return False

    def _end_tls(self) -> None:
        """Write the alert close_notify. The server's own is not awaited."""
        try:
            self.tls.unwrap()
        except ssl.SSLWantReadError:
            return

    def _flush(self, one: socket.socket) -> None:
        one.setblocking(True)
        one.sendall(self.unsent[one])
        self.unsent[one].clear()
