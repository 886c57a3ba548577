"""A ``QuicConfiguration`` as the settings of WebTransport's clients and servers, for aiopquic's names.
Not here: the settings themselves (``uringcore.quic.ServerConfig``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import ssl
from collections.abc import Iterator
from typing import Any

from uringcore.quic._errors import QuicConfigurationError
from uringcore.quic._typed_api.config import ClientConfig, ServerConfig
from uringcore.quic.configuration import QuicConfiguration

__all__ = ["client_config", "server_config"]

# The fields of ClientConfig and ServerConfig that replace fields of a QuicConfiguration.
FIELDS = {
    "congestion_control_algorithm": "congestion",
    "idle_timeout": "idle_timeout",
    "keep_alive": "keep_alive",
    "max_data": "connection_receive_window",
    "max_stream_data": "receive_window",
    "max_streams_bidi": "max_streams",
    "max_streams_uni": "max_uni_streams",
    "quic_logger": "qlog",
    "secrets_log_file": "key_log",
    "send_buffer_high": "send_buffer",
}
# Fields of the configuration that are ignored, because WebTransport or another argument determines their
# values.
SILENT = {"alpn_protocols", "is_client", "max_datagram_frame_size", "reset_stream_at"}
CLIENTS = {"cafile", "server_name", "verify_mode"}
# Fields that must not be set on a server, whose certificate and key are arguments.
SERVERS = {"certificate", "certificate_chain", "private_key", "server_name"}


def client_config(
    given: QuicConfiguration | None,
    sni: str | None,
    verify_peer: bool | None,
    ca_file: str | None,
) -> ClientConfig:
    """A client's settings; the other arguments replace fields of ``given``. Raises ``ValueError``, which
    names the argument or the field."""
    fields = {} if given is None else _fields(given, is_client=True)
    bare = QuicConfiguration() if given is None else given
    verify = bare.verify_mode != ssl.CERT_NONE if verify_peer is None else verify_peer
    authorities = bare.cafile if ca_file is None else ca_file
    with _program_names(authorities="cafile" if ca_file is None else "ca_file"):
        return ClientConfig(
            server_name=sni or bare.server_name,
            verify=verify,
            # A QuicConfiguration may name authorities and switch the verification off; a ClientConfig may
            # not.
            authorities=authorities if verify else None,
            **fields,
        )


def server_config(given: QuicConfiguration | None, cert_file: str, key_file: str) -> ServerConfig:
    """A server's settings. Raises as :func:`client_config`."""
    fields = {} if given is None else _fields(given, is_client=False)
    with _program_names():
        return ServerConfig(certificate=(cert_file, key_file), **fields)


def _fields(given: QuicConfiguration, *, is_client: bool) -> dict[str, Any]:
    """Returns the values of the fields in :data:`FIELDS`. Raises ``ValueError`` for a field that is set and
    not supported."""
    known = FIELDS.keys() | SILENT | (CLIENTS if is_client else SERVERS)
    bare = QuicConfiguration()
    for field in dataclasses.fields(given):
        if not field.init or field.name in known:
            continue
        if getattr(given, field.name) != getattr(bare, field.name):
            raise ValueError(f"configuration: {field.name} cannot be honoured here")
    return {ours: getattr(given, theirs) for theirs, ours in FIELDS.items()}


@contextlib.contextmanager
def _program_names(**more: str) -> Iterator[None]:
    """Replaces field names in errors by the names that the program has used. ``more`` has additional
    names."""
    names = {ours: theirs for theirs, ours in FIELDS.items()} | more
    try:
        yield
    except QuicConfigurationError as error:
        name = names.get(error.field, error.field)
        raise QuicConfigurationError(name, error.message) from None
