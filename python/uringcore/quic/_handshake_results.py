"""The results of a connection's TLS handshake, under the names of aioquic's ``QuicConnection.tls``.

The view is read-only. The handshake itself is in Rust, so the methods of aioquic's ``tls.Context`` that take
part in a handshake are missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from uringcore.quic.events import HandshakeCompleted
from uringcore.tls import CipherSuite

__all__ = ["HandshakeView"]


class _Connection(Protocol):
    """The interface of the connection whose results are shown."""

    _completed: HandshakeCompleted | None
    _handle_hello: Callable[..., object] | None

    @property
    def alpn_protocol(self) -> str | None: ...
    def get_peer_certificates(self) -> list[bytes]: ...
    def stats(self) -> dict[str, Any]: ...


class HandshakeView:
    """The results of one connection's handshake. They are ``None`` or ``False`` until the handshake is
    complete."""

    def __init__(self, quic: _Connection) -> None:
        self._quic = quic

    @property
    def alpn_negotiated(self) -> str | None:
        """The application protocol (RFC 7301)."""
        return self._quic.alpn_protocol

    @property
    def cipher_suite(self) -> CipherSuite | None:
        """The suite that protects the connection."""
        number = self._quic.stats()["cipher_suite"]
        return None if number is None else CipherSuite(number)

    @property
    def early_data_accepted(self) -> bool:
        """True if the server accepted 0-RTT data."""
        completed = self._quic._completed
        return completed is not None and completed.early_data_accepted

    @property
    def session_resumed(self) -> bool:
        """True if a session was resumed, in place of certificates (RFC 8446 section 2.2)."""
        completed = self._quic._completed
        return completed is not None and completed.session_resumed

    @property
    def key_schedule(self) -> HandshakeView | None:
        """An object with a ``cipher_suite``; ``None`` before one is negotiated."""
        return None if self.cipher_suite is None else self

    @property
    def _server_handle_hello(self) -> Callable[..., object]:
        """aioquic's step that reads a ClientHello, for programs that replace it on a connection.

        A replacement is called with the message before the handshake begins (``hello_hook``). By itself
        this does nothing.
        """
        return self._quic._handle_hello or _unread

    @_server_handle_hello.setter
    def _server_handle_hello(self, handle_hello: Callable[..., object]) -> None:
        self._quic._handle_hello = handle_hello

    # aioquic has no public names for these results, so programs use private ones. They need `cryptography`;
    # `QuicConnection.get_peer_certificates` does not.

    @property
    def _peer_certificate(self) -> Any:
        chain = self._peer_certificates()
        return chain[0] if chain else None

    @property
    def _peer_certificate_chain(self) -> list[Any]:
        return self._peer_certificates()[1:]

    def _peer_certificates(self) -> list[Any]:
        from cryptography import x509

        found = self._quic.get_peer_certificates()
        return [x509.load_der_x509_certificate(certificate) for certificate in found]


def _unread(*_buffers: Any) -> None:
    """Rust's TLS reads the message."""
