"""A ``QuicConfiguration`` as the settings of WebTransport's clients and servers, for programs that have one.
Not here: what the settings mean (``quic.native.config``).
"""

from __future__ import annotations

import dataclasses
import ssl
from typing import Any

from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.native.config import ClientConfig

__all__ = ["client_config", "server_fields"]

# Fields of ours by those of a QuicConfiguration.
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
# What is said otherwise, or is the same for all WebTransport.
SILENT = {"alpn_protocols", "is_client", "max_datagram_frame_size", "reset_stream_at"}
CLIENTS = {"cafile", "server_name", "verify_mode"}
# A server's are given as files.
SERVERS = {"certificate", "certificate_chain", "private_key", "server_name"}


def client_config(
    given: QuicConfiguration | None,
    server_name: str | None,
    verify: bool | None,
    authorities: str | None,
) -> ClientConfig:
    """A client's, with what else it was told, which goes before."""
    if given is None:
        verify = verify is not False
        return ClientConfig(server_name=server_name, verify=verify, authorities=authorities)
    fields = _fields(given, is_client=True)
    return ClientConfig(
        server_name=server_name or given.server_name,
        verify=given.verify_mode != ssl.CERT_NONE if verify is None else verify,
        authorities=given.cafile if authorities is None else authorities,
        **fields,
    )


def server_fields(given: QuicConfiguration | None) -> dict[str, Any]:
    """What a server's say beside its certificate."""
    return {} if given is None else _fields(given, is_client=False)


def _fields(given: QuicConfiguration, *, is_client: bool) -> dict[str, Any]:
    """Raises ``ValueError`` for a field that was set and cannot be honoured."""
    known = FIELDS.keys() | SILENT | (CLIENTS if is_client else SERVERS)
    bare = QuicConfiguration()
    for field in dataclasses.fields(given):
        if not field.init or field.name in known:
            continue
        if getattr(given, field.name) != getattr(bare, field.name):
            raise ValueError(f"configuration: {field.name} cannot be honoured here")
    return {ours: getattr(given, theirs) for theirs, ours in FIELDS.items()}
