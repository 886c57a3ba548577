"""Certificates, and a TLS peer whose every step a test decides: nothing of the code under test."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import sys
from pathlib import Path

import pytest

from tests.loop.harness import Runner
from tests.support import certificates


def modern(run: Runner) -> None:
    """Skip CPython 3.10's own sslproto, an older design: no time-out of the shutdown, other calls."""
    if run.name == "stock" and sys.version_info < (3, 11):
        pytest.skip("CPython 3.10's sslproto is of an older design")


class Peer:
    """One side of a TLS connection, on a plain stream of asyncio and an `ssl.SSLObject`.

    It answers nothing by itself: no close_notify, no reading ahead.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        context: ssl.SSLContext,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
    ) -> None:
        self.reader, self.writer = reader, writer
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self.incoming, self.outgoing, server_side=server_side, server_hostname=server_hostname
        )

    @classmethod
    async def connect(cls, address: tuple[str, int], context: ssl.SSLContext) -> Peer:
        """Connected to `address`, before the handshake."""
        reader, writer = await asyncio.open_connection(*address)
        return cls(reader, writer, context, server_hostname="localhost")

    async def handshake(self) -> None:
        """Performs the whole handshake; the last flight is sent when this returns."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.flush()
                await self._more()
            else:
                self.flush()
                return

    async def read(self, count: int = 65536) -> bytes:
        """Some decrypted bytes; empty at close_notify. `EOFError` at the end of the transport."""
        while True:
            try:
                return self.tls.read(count)
            except ssl.SSLWantReadError:
                await self._more()
            except ssl.SSLZeroReturnError:  # both sides have sent close_notify
                return b""

    async def read_exactly(self, count: int) -> bytes:
        """Just `count` decrypted bytes."""
        data = bytearray()
        while len(data) < count:
            piece = await self.read(count - len(data))
            assert piece, "close_notify came too early"
            data += piece
        return bytes(data)

    def write(self, data: bytes) -> None:
        """Encrypt and send."""
        self.tls.write(data)
        self.flush()

    def say_goodbye(self) -> None:
        """Sends close_notify and continues."""
        try:
            self.tls.unwrap()
        except ssl.SSLWantReadError:
            pass
        self.flush()

    def flush(self) -> None:
        """Send what OpenSSL has made."""
        if self.outgoing.pending:
            self.writer.write(self.outgoing.read())

    def abort(self) -> None:
        """Reset the connection."""
        linger = struct.pack("ii", 1, 0)
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.transport.abort()

    async def _more(self) -> None:
        data = await self.reader.read(65536)
        if not data:
            raise EOFError
        self.incoming.write(data)


class Authority:
    """A certificate authority of the tests, and contexts of those that trust it."""

    def __init__(self, folder: Path, name: str = "tests") -> None:
        self._folder = folder
        self._authority = certificates.Authority(folder, f"{name}-authority")
        self.file = self._authority.certfile

    def issue(self, name: str) -> tuple[Path, Path]:
        """Files of a certificate for the host or user `name` and of its key."""
        made = self._authority.issue(self._folder, name, name)
        return made.certfile, made.keyfile

    def server(self, name: str) -> ssl.SSLContext:
        """A server's context with a certificate for `name`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue(name))
        return context

    def client(self) -> ssl.SSLContext:
        """A client's context that trusts this authority."""
        return ssl.create_default_context(cafile=str(self.file))
