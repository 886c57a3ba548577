"""Every public name of aioquic that a program can use exists in uringcore, under the same path and with the
same signature.

The walk starts from the installed aioquic, so a name of a later version makes the test fail until it is added
or listed. The lists give the reason for each name that is left out.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect

import pytest

aioquic = pytest.importorskip("aioquic")
if int(aioquic.__version__.split(".")[1]) < 7:
    pytest.skip(
        f"the expected names are aioquic 1.7's, not those of {aioquic.__version__}",
        allow_module_level=True,
    )

MODULES = [
    "asyncio",
    "asyncio.client",
    "asyncio.protocol",
    "asyncio.server",
    "buffer",
    "h0.connection",
    "h3.connection",
    "h3.events",
    "h3.exceptions",
    "quic.configuration",
    "quic.connection",
    "quic.events",
    "quic.logger",
    "quic.packet",
    "tls",
]

PACKETS = "aioquic's own packet layer in Python; here packets are Rust's"
HANDSHAKE = "aioquic's own TLS handshake in Python; here the handshake is rustls'"
BOUNDS = "a bound inside aioquic's state machine, which is not the one that runs here"
LEFT_OUT = {
    "asyncio.server": {"TRANSPORT_CLOSE_FRAME_CAPACITY": PACKETS},
    "h3.connection": {"UPPERCASE": "an unused pattern"},
    "quic.connection": {
        **dict.fromkeys(
            [
                "ACK_FRAME_CAPACITY",
                "APPLICATION_CLOSE_FRAME_CAPACITY",
                "CONNECTION_LIMIT_FRAME_CAPACITY",
                "EPOCHS",
                "EPOCH_SHORTCUTS",
                "HANDSHAKE_DONE_FRAME_CAPACITY",
                "MAX_STREAM_DATA_FRAME_CAPACITY",
                "NEW_CONNECTION_ID_FRAME_CAPACITY",
                "PACKET_NUMBER_SEND_SIZE",
                "PATH_CHALLENGE_FRAME_CAPACITY",
                "PATH_RESPONSE_FRAME_CAPACITY",
                "PING_FRAME_CAPACITY",
                "QuicReceiveContext",
                "RESET_STREAM_FRAME_CAPACITY",
                "RETIRE_CONNECTION_ID_CAPACITY",
                "STOP_SENDING_FRAME_CAPACITY",
                "STREAMS_BLOCKED_CAPACITY",
                "STREAM_FLAGS",
                "TRANSPORT_CLOSE_FRAME_CAPACITY",
                "get_epoch",
            ],
            PACKETS,
        ),
        **dict.fromkeys(
            [
                "CRYPTO_BUFFER_SIZE",
                "K_GRANULARITY",
                "Limit",
                "MAX_ACK_RANGES",
                "MAX_EARLY_DATA",
                "MAX_LOCAL_CHALLENGES",
                "MAX_NETWORK_PATHS",
                "MAX_PENDING_CRYPTO",
                "MAX_PENDING_RETIRES",
                "MAX_REMOTE_CHALLENGES",
                "QuicNetworkPath",
                "STREAM_COUNT_MAX",
            ],
            BOUNDS,
        ),
        "SECRETS_LABELS": HANDSHAKE,
    },
    "quic.packet": dict.fromkeys(
        [
            "NON_IN_FLIGHT_FRAME_TYPES",
            "PACKET_LONG_TYPE_DECODE_VERSION_1",
            "PACKET_LONG_TYPE_DECODE_VERSION_2",
            "PACKET_LONG_TYPE_ENCODE_VERSION_1",
            "PACKET_LONG_TYPE_ENCODE_VERSION_2",
            "PACKET_NUMBER_MAX_SIZE",
            "PACKET_SPIN_BIT",
            "PARAMS",
            "QuicResetStreamFrame",
            "QuicStopSendingFrame",
            "RETRY_AEAD_KEY_VERSION_1",
            "RETRY_AEAD_KEY_VERSION_2",
            "RETRY_AEAD_NONCE_VERSION_1",
            "RETRY_AEAD_NONCE_VERSION_2",
            "UINT_VAR_MAX_SIZE",
            "decode_packet_number",
            "encode_long_header_first_byte",
            "encode_quic_retry",
            "get_retry_integrity_tag",
            "get_spin_bit",
            "pull_ack_frame",
            "pull_quic_preferred_address",
            "pull_quic_transport_parameters",
            "pull_quic_version_information",
            "push_ack_frame",
            "push_quic_preferred_address",
            "push_quic_transport_parameters",
            "push_quic_version_information",
        ],
        PACKETS,
    ),
}
# Programs use these names of `tls`; all other names of that module belong to the handshake.
TLS_NAMES = {
    "AlertDescription",
    "CipherSuite",
    "Epoch",
    "SessionTicket",
    "SessionTicketFetcher",
    "SessionTicketHandler",
    "load_pem_private_key",
    "load_pem_x509_certificates",
}
# Public by their spelling, but, like their class, not meant for programs.
MEMBERS_LEFT_OUT = {
    ("CipherSuite", "EMPTY_RENEGOTIATION_INFO_SCSV"),
}
# Imports from `typing` that are neither classes nor functions.
TYPING = {"TYPE_CHECKING", "Any", "Callable", "Optional", "TextIO", "TypeVar", "Union", "cast"}


def _own_names(module):
    """Yields the names that aioquic defines in the module, and those that programs usually import from
    there.
    """
    for name, value in vars(module).items():
        if name.startswith("_") or inspect.ismodule(value):
            continue
        if inspect.isclass(value) or inspect.isfunction(value):
            origin = value.__module__
            exported = module.__name__ == "aioquic.asyncio" or name in getattr(
                module, "__all__", ()
            )
            if origin != module.__name__ and not exported:
                continue
        elif name in TYPING:
            continue
        yield name, value


def _wanted():
    for path in MODULES:
        module = importlib.import_module("aioquic." + path)
        for name, value in _own_names(module):
            if name not in LEFT_OUT.get(path, {}) and (path != "tls" or name in TLS_NAMES):
                yield path, name, value


WANTED = list(_wanted())


@pytest.mark.parametrize(("path", "name", "theirs"), WANTED, ids=[f"{p}:{n}" for p, n, _ in WANTED])
def test_the_name_is_here_with_its_shape(path, name, theirs):
    module = importlib.import_module("uringcore." + path)
    assert hasattr(module, name), f"uringcore.{path} has no {name}"
    ours = getattr(module, name)
    if inspect.isclass(theirs):
        _compare_classes(name, ours, theirs)
    elif callable(theirs) and not _is_alias(theirs):
        _compare_signatures(f"{path}.{name}", ours, theirs)
    elif isinstance(theirs, (int, str, bytes, tuple, frozenset, list)):
        assert _plain(ours) == _plain(theirs), name


def test_omitted_names_exist_in_aioquic_and_not_here():
    """The list of omissions contains no name that aioquic has removed or uringcore has added since."""
    for path, names in LEFT_OUT.items():
        theirs = importlib.import_module("aioquic." + path)
        ours = importlib.import_module("uringcore." + path)
        for name, reason in names.items():
            assert hasattr(theirs, name), f"{path}.{name} is gone"
            assert not hasattr(ours, name), f"{path}.{name} is here now"
            assert reason


# docs/aioquic.md gives the reason in its table of differences.
DEFAULTS_OF_OURS = {"retry": "auto"}


def _is_alias(value):
    return not (inspect.isfunction(value) or inspect.isbuiltin(value) or inspect.isclass(value))


def _plain(value):
    """Numbers and sets of enumerations, comparable between two libraries."""
    if isinstance(value, (frozenset, tuple, list)):
        return sorted((_plain(item) for item in value), key=repr)
    return (value.name, value.value) if isinstance(value, enum.Enum) else value


def _compare_classes(name, ours, theirs):
    assert inspect.isclass(ours)
    if issubclass(theirs, enum.Enum):
        for member in theirs:
            if (name, member.name) not in MEMBERS_LEFT_OUT:
                assert ours[member.name].value == member.value
        return
    if issubclass(theirs, BaseException):
        assert issubclass(ours, Exception)
    if dataclasses.is_dataclass(theirs):
        for field in dataclasses.fields(theirs):
            if dataclasses.is_dataclass(ours):
                assert field.name in ours.__dataclass_fields__, field.name
            else:
                assert field.name in ours.__match_args__, field.name
    elif "__init__" in vars(theirs):
        _compare_signatures(name, ours, theirs)
    for member, value in vars(theirs).items():
        if member.startswith("_") or (name, member) in MEMBERS_LEFT_OUT:
            continue
        assert hasattr(ours, member) or dataclasses.is_dataclass(theirs), f"{name}.{member}"
        if inspect.isfunction(value):
            _compare_signatures(f"{name}.{member}", getattr(ours, member), value)


def _compare_signatures(what, ours, theirs):
    our, their = _parameters(ours), _parameters(theirs)
    positional = [p.name for p in their.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    ours_in_order = [p.name for p in our.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert ours_in_order[: len(positional)] == positional, f"{what}{inspect.signature(ours)}"
    for name, parameter in their.items():
        assert name in our, f"{what}: no parameter {name}"
        mine = our[name]
        assert mine.kind == parameter.kind, f"{what}: {name}"
        required = parameter.default is parameter.empty
        if not required and not inspect.isclass(parameter.default):
            # An optional parameter of aioquic's is optional here, with aioquic's default unless
            # docs/aioquic.md gives another.
            default = DEFAULTS_OF_OURS.get(name, parameter.default)
            assert mine.default == default, f"{what}: default of {name}"
    for name, parameter in our.items():
        # Our additional parameters have to be optional.
        if name not in their and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            assert parameter.default is not parameter.empty, f"{what}: {name} is required"


def _parameters(value):
    found = dict(inspect.signature(value).parameters)
    found.pop("self", None)
    return found
