"""Certificates, and a TLS peer whose every step a test decides: nothing of the code under test."""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl
import struct
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.loop.support import Runner


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
        """The whole handshake; the last flight is on its way when this returns."""
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
            except ssl.SSLZeroReturnError:  # both sides have said goodbye
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
        """Send close_notify and go on."""
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
    """A certificate authority of the tests."""

    def __init__(self, folder: Path, name: str = "tests") -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = _name(f"authority of {name}")
        self.certificate = self._sign(self.name, self.key.public_key(), [], authority=True)
        self.file = folder / f"{name}-authority.pem"
        self.file.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str) -> tuple[Path, Path]:
        """Files of a certificate for the host or user `name` and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._sign(_name(name), key.public_key(), [x509.DNSName(name)], authority=False)
        pem = serialization.Encoding.PEM
        private = key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        files = (self.folder / f"{name}.pem", self.folder / f"{name}.key")
        files[0].write_bytes(made.public_bytes(pem))
        files[1].write_bytes(private)
        return files

    def server(self, name: str) -> ssl.SSLContext:
        """A server's context with a certificate for `name`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue(name))
        return context

    def client(self) -> ssl.SSLContext:
        """A client's context that trusts this authority."""
        return ssl.create_default_context(cafile=str(self.file))

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        names: list[x509.GeneralName],
        *,
        authority: bool,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
        )
        if authority:
            usage = x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=True,
                crl_sign=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            )
            builder = builder.add_extension(usage, critical=True)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self.key, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
