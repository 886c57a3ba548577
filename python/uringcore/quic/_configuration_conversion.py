"""Converts a :class:`~uringcore.quic.configuration.QuicConfiguration` to the state machine's setup.

It refuses unsupported values and converts each field. :mod:`uringcore.quic._credential_loading` reads
certificates, keys and authorities; Rust checks ranges of numbers."""

from __future__ import annotations

import ipaddress
import re
import ssl
from collections.abc import Sequence
from typing import Any, TypeVar

from uringcore._buffer_arguments import contiguous_bytes
from uringcore._uringcore import QuicClientSetup, QuicServerSetup
from uringcore.quic._configuration_fields import ConfigurationFields
from uringcore.quic._credential_loading import identity, roots
from uringcore.quic._errors import QuicConfigurationError
from uringcore.quic.limits import RetryPolicy
from uringcore.quic.packet import CONNECTION_ID_MAX_SIZE
from uringcore.quic.sessions import SessionStore
from uringcore.tls import AddressToken, CipherSuite, Group, MemorySessionStore, _ticket_fields

_STORE = ("put", "take")
_EXTRACTION = re.compile(r"failed to extract field \w+\.(\w+)")
_FIELD_NAMES = {"alpn": "alpn_protocols", "congestion": "congestion_control_algorithm"}
_Setup = TypeVar("_Setup", QuicClientSetup, QuicServerSetup)


def client_setup(configuration: ConfigurationFields) -> QuicClientSetup:
    """Returns a client's setup. Raises :class:`~uringcore.quic.QuicConfigurationError`, as does
    :func:`server_setup`.
    """
    _check(configuration)
    verify = configuration.verify_mode is None or configuration.verify_mode != ssl.CERT_NONE
    chain, key = identity(configuration) if configuration.certificate is not None else (None, None)
    return _made(
        QuicClientSetup,
        **_common(configuration),
        certificate_chain=chain,
        certificate_hashes=_certificate_hashes(configuration, verify),
        private_key=key,
        roots=roots(configuration) if verify else None,
        session_ticket=_session_ticket(configuration),
        token=bytes(configuration.token),
        token_version=_token_version(configuration.token),
        verify=verify,
    )


def server_setup(
    configuration: ConfigurationFields,
    retry: RetryPolicy,
    sessions: SessionStore | MemorySessionStore,
    *,
    early_data: bool,
) -> QuicServerSetup:
    """Returns a server's setup. ``early_data`` is the meaning of ``None`` in the field of that name."""
    _check(configuration)
    if configuration.certificate is None:
        raise QuicConfigurationError("certificate", "a server needs a certificate")
    chain, key = identity(configuration)
    client_roots = None
    if configuration.verify_mode in (ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED):
        client_roots = roots(configuration)
        # If a client's certificate is optional, and no authorities are set to verify it, none is requested.
        # aioquic does the same.
        if client_roots is None and configuration.verify_mode == ssl.CERT_REQUIRED:
            raise QuicConfigurationError(
                "cafile", "verify_mode on a server needs the authority of the clients"
            )
    return _made(
        QuicServerSetup,
        **_common(configuration),
        certificate_chain=chain,
        client_required=configuration.verify_mode == ssl.CERT_REQUIRED,
        client_roots=client_roots,
        early_data=early_data if configuration.early_data is None else configuration.early_data,
        named_certificates=[one._fields() for one in configuration.named_certificates],
        private_key=key,
        retry=retry_name(retry),
        sessions=sessions,
        token_keys=key_list(configuration.token_key),
    )


def _made(kind: type[_Setup], **fields: Any) -> _Setup:
    """Creates a setup object from these fields. If a value has the wrong type, the error names the field."""
    try:
        return kind(**fields)
    except (TypeError, OverflowError) as exc:
        found = _EXTRACTION.search(str(exc))
        if found is None:
            raise
        name = found[1]
        raise QuicConfigurationError(
            _FIELD_NAMES.get(name, name), f"{exc.__cause__ or exc}, not {fields.get(name)!r}"
        ) from exc


def _certificate_hashes(configuration: ConfigurationFields, verify: bool) -> list[bytes] | None:
    if configuration.certificate_hashes is None:
        return None
    if not verify:
        raise QuicConfigurationError("certificate_hashes", "verify_mode accepts any certificate")
    hashes: Any = configuration.certificate_hashes
    if not isinstance(hashes, (list, tuple)):
        raise QuicConfigurationError("certificate_hashes", "must be a list of hashes")
    found = [_buffer("certificate_hashes", item) for item in hashes]
    if any(len(item) != 32 for item in found):
        raise QuicConfigurationError("certificate_hashes", "a SHA-256 hash has 32 bytes")
    return found


def _buffer(name: str, value: Any) -> bytes:
    try:
        return contiguous_bytes(value, name)
    except (TypeError, BufferError) as exc:
        raise QuicConfigurationError(name, f"must be bytes: {exc}") from exc


def _session_ticket(configuration: ConfigurationFields) -> dict[str, Any] | None:
    if configuration.session_ticket is None:
        return None
    try:
        return _ticket_fields(configuration.session_ticket, configuration.early_data is not False)
    except (AttributeError, TypeError, ValueError, OverflowError) as exc:
        message = f"must be a SessionTicket: {exc}"
        raise QuicConfigurationError("session_ticket", message) from exc


def _token_version(token: bytes) -> int | None:
    version = token.version if isinstance(token, AddressToken) else None
    if version is not None and not 0 < version < 1 << 32:
        raise QuicConfigurationError("token", f"its version {version} is not from 1 to 0xffffffff")
    return version


def _check(configuration: ConfigurationFields) -> None:
    """Refuses unsupported values; Rust checks ranges."""
    _buffer("token", configuration.token)
    store = configuration.session_store
    if store is not None and not all(callable(getattr(store, n, None)) for n in _STORE):
        raise QuicConfigurationError("session_store", "must have the methods put and take")
    if configuration.verify_mode not in (None, *ssl.VerifyMode):
        raise QuicConfigurationError(
            "verify_mode", f"must be an ssl.VerifyMode, not {configuration.verify_mode!r}"
        )
    secrets: Any = configuration.secrets_log_file
    if secrets is not None and not callable(getattr(secrets, "write", None)):
        raise QuicConfigurationError("secrets_log_file", "must have the method write")
    trace: Any = configuration.quic_logger
    if trace is not None and not callable(getattr(trace, "start_trace", None)):
        raise QuicConfigurationError("quic_logger", "must be a QuicLogger")
    if configuration.is_client and configuration.named_certificates:
        raise QuicConfigurationError("named_certificates", "belong to a server")
    if configuration.quantum_readiness_test:
        raise QuicConfigurationError("quantum_readiness_test", "is not supported")
    original = [] if configuration.original_version is None else [configuration.original_version]
    fields = {"original_version": original, "supported_versions": configuration.supported_versions}
    for name, versions in fields.items():
        for version in versions:
            if not isinstance(version, int) or not 0 < version < 1 << 32:
                raise QuicConfigurationError(name, f"{version!r} is not from 1 to 0xffffffff")
    length: Any = configuration.connection_id_length
    if not isinstance(length, int) or not 4 <= length <= CONNECTION_ID_MAX_SIZE:
        raise QuicConfigurationError("connection_id_length", "must be 4 to 20 bytes")
    preferred = _preferred(configuration.preferred_address)
    if configuration.is_client and any(preferred):
        raise QuicConfigurationError("preferred_address", "is set by the server")
    if isinstance(configuration.alpn_protocols, str):
        raise QuicConfigurationError("alpn_protocols", "must be a list of strings")
    if not 0 < configuration.send_buffer_low <= configuration.send_buffer_high:
        raise QuicConfigurationError(
            "send_buffer_low", "must be above 0 and at most send_buffer_high"
        )


def _common(configuration: ConfigurationFields) -> dict[str, Any]:
    preferred = _preferred(configuration.preferred_address)
    return {
        "ack_delay_max": _seconds(configuration, "ack_delay_max"),
        "ack_packets_max": configuration.ack_packets_max,
        "ack_reordering": configuration.ack_reordering,
        "alpn": [_alpn(name) for name in configuration.alpn_protocols or ()],
        "cipher_suites": _cipher_suites(configuration.cipher_suites),
        "congestion": configuration.congestion_control_algorithm,
        "connection_id_length": configuration.connection_id_length,
        "groups": _groups(configuration.groups),
        "idle_timeout": _seconds(configuration, "idle_timeout"),
        "initial_rtt": _seconds(configuration, "initial_rtt"),
        "keep_alive": _seconds(configuration, "keep_alive"),
        "key_log": configuration.secrets_log_file,
        "key_update_packets": configuration.key_update_packets,
        "max_data": configuration.max_data,
        "max_datagram_frame_size": configuration.max_datagram_frame_size,
        "max_datagram_size": configuration.max_datagram_size,
        "max_stream_data": configuration.max_stream_data,
        "max_streams_bidi": configuration.max_streams_bidi,
        "max_streams_uni": configuration.max_streams_uni,
        "mtu_discovery": configuration.mtu_discovery,
        "original_version": configuration.original_version,
        "packet_log": configuration.quic_logger is not None,
        "preferred_v4": preferred[0],
        "preferred_v6": preferred[1],
        "reset_stream_at": bool(configuration.reset_stream_at),
        "send_buffer_high": configuration.send_buffer_high,
        "send_buffer_low": configuration.send_buffer_low,
        "supported_versions": list(configuration.supported_versions),
        "use_preferred_address": configuration.use_preferred_address,
    }


def _seconds(configuration: ConfigurationFields, name: str) -> float | None:
    value = getattr(configuration, name)
    try:
        # A string is refused although float() may accept it, because a number was probably not parsed.
        if isinstance(value, (str, bytes, bytearray, bool)):
            raise TypeError(f"{type(value).__name__} is no number")
        return None if value is None else float(value)
    except (TypeError, ValueError, OverflowError) as exc:
        message = f"must be a number of seconds, not {value!r}"
        raise QuicConfigurationError(name, message) from exc


def _preferred(addresses: Sequence[tuple[str, int]]) -> list[str | None]:
    """Returns the IPv4 and the IPv6 address, as text with the port."""
    found: list[str | None] = [None, None]
    for address in addresses:
        try:
            ip = ipaddress.ip_address(address[0])
            port = int(address[1])
        except (IndexError, TypeError, ValueError) as exc:
            raise QuicConfigurationError(
                "preferred_address", f"{address!r} is not an IP address with a port"
            ) from exc
        if ip.is_unspecified or not 0 < port < 65536:
            raise QuicConfigurationError(
                "preferred_address", f"clients cannot connect to {address!r}"
            )
        index = int(ip.version == 6)
        if found[index] is not None:
            raise QuicConfigurationError("preferred_address", f"has two of IPv{ip.version}")
        found[index] = f"[{ip}]:{port}" if index else f"{ip}:{port}"
    return found


def _alpn(name: str | bytes) -> bytes:
    raw = name.encode() if isinstance(name, str) else bytes(name)
    if not 1 <= len(raw) <= 255:
        raise QuicConfigurationError("alpn_protocols", f"{name!r} must have 1 to 255 bytes")
    return raw


def retry_name(retry: RetryPolicy) -> str:
    """Returns the policy's name in the state machine. Raises ``ValueError`` for an unknown policy."""
    if retry is True or retry is False:
        return "always" if retry else "never"
    if retry == "auto":
        return "auto"
    raise ValueError(f"retry: must be True, False or 'auto', not {retry!r}")


KEYS_MAX = 3
"""Keys of one kind: the present one and former ones. `quic::tls::RESET_KEYS_MAX` is the endpoint's bound."""


def key_list(keys: bytes | Sequence[bytes] | None) -> list[bytes]:
    """The keys of a field that takes one or several."""
    if keys is None:
        return []
    return [keys] if isinstance(keys, bytes) else [bytes(key) for key in keys]


def _cipher_suites(suites: Sequence[int] | None) -> list[int] | None:
    if suites is None:
        return None
    if not suites:
        raise QuicConfigurationError("cipher_suites", "names no TLS 1.3 cipher suite")
    for suite in suites:
        if suite not in CipherSuite.__members__.values():
            message = f"{suite!r} is no TLS 1.3 cipher suite that there is here"
            raise QuicConfigurationError("cipher_suites", message)
    return [int(suite) for suite in suites]


def _groups(groups: Sequence[int] | None) -> list[int] | None:
    if groups is None:
        return None
    if not groups:
        raise QuicConfigurationError("groups", "names no group for the key exchange")
    for group in groups:
        if group not in Group.__members__.values():
            raise QuicConfigurationError("groups", f"{group!r} is not among those of tls.Group")
    return [int(group) for group in groups]
