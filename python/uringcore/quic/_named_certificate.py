"""Certificates of a QUIC server, selected by the client's server name (RFC 6066 section 3) and by the
signature algorithms that the client can verify (RFC 8446 section 4.2.3).

:mod:`uringcore.quic._credential_loading` reads the files. Rust selects a certificate during the handshake.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from uringcore._uringcore import QuicServerSetup
from uringcore.quic._errors import QuicConfigurationError

__all__ = ["NamedCertificate"]


@dataclass(frozen=True)
class NamedCertificate:
    """A certificate for some of a server's names. ``QuicConfiguration.add_certificate`` makes such
    objects."""

    server_names: tuple[str, ...]
    """DNS names in lower case, or ``*.`` and a DNS name for all names with one more label, or ``*`` for
    all clients that give no name or an unknown one."""

    chain: tuple[bytes, ...] = field(repr=False)
    """The certificate chain in DER, the server's own certificate first."""

    private_key: bytes = field(repr=False)
    """DER: PKCS #8, SEC 1 or PKCS #1."""

    key_kind: str
    """``"ecdsa"``, ``"ed25519"``, ``"ed448"`` or ``"rsa"``: a name has at most one certificate of each."""

    @classmethod
    def checked(
        cls, chain: Sequence[bytes], private_key: bytes, server_names: Sequence[str] | None
    ) -> NamedCertificate:
        """Makes one, and checks that its key fits and that the certificate is valid for the names; ``None``:
        all names in the certificate.

        Raises :class:`QuicConfigurationError` for ``certificate``, ``private_key`` or ``server_names``.
        """
        if server_names is not None:
            if isinstance(server_names, (str, bytes)) or not all(
                isinstance(name, str) for name in server_names
            ):
                raise QuicConfigurationError("server_names", "must be a list of strings")
            server_names = list(server_names)
        names, kind = QuicServerSetup._check_named(list(chain), private_key, server_names)
        return cls(tuple(names), tuple(chain), private_key, kind)

    def is_for(self, host: str) -> bool:
        """True if clients that request this host, in lower case, get this certificate."""
        first, _, parent = host.partition(".")
        return host in self.server_names or (bool(first) and f"*.{parent}" in self.server_names)

    def _fields(self) -> tuple[list[bytes], bytes, list[str] | None]:
        return list(self.chain), self.private_key, list(self.server_names)


def refuse_duplicate_names(certificates: Sequence[NamedCertificate], new: NamedCertificate) -> None:
    """Raises :class:`QuicConfigurationError` if one of ``certificates`` has a server name of ``new`` and a
    key of the same kind, because the certificate that a client gets would then depend on the order of the
    certificates."""
    names = set(new.server_names)
    for other in certificates:
        if other.key_kind == new.key_kind:
            for name in names.intersection(other.server_names):
                raise QuicConfigurationError(
                    "server_names", f"{name!r} is given twice with {new.key_kind} keys"
                )
