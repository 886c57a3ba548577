"""Exceptions and configurations are copied and pickled with all their fields."""

from __future__ import annotations

import concurrent.futures
import copy
import importlib
import importlib.util
import io
import multiprocessing
import pickle
import pkgutil

import pytest

import uringcore
from uringcore.h3 import _codes_and_errors as codes
from uringcore.h3 import exceptions as h3
from uringcore.http3 import _errors as http3
from uringcore.http3._get_exit_status import CommandFailure
from uringcore.http3._websocket import WebSocketClosedError, WebSocketRefusedError
from uringcore.quic import _errors as quic
from uringcore.quic.connection import QuicConnection
from uringcore.quic.logger import QuicLogger
from uringcore.quic.sessions import SharedSessionStore
from uringcore.server._startup_errors import StartupError
from uringcore.webtransport import _errors as webtransport

LOST = http3.ConnectionLostError.by(quic.QuicIdleTimeoutError(0, None, "", "silent"), unsent=True)
EXAMPLES = [
    quic.QuicConfigurationError("max_data", "too small"),
    quic.QuicError("something"),
    quic.StreamError(4, 7, "why"),
    quic.StreamResetError(4, 7),
    quic.StreamStoppedError(4, 7, "enough"),
    quic.StreamClosedError(4, "finished"),
    quic.DatagramSendError("too long"),
    quic.ListenerClosedError("closed"),
    quic.WriteAfterResetError("reset"),
    quic.StreamEndedError("over"),
    quic.QuicConnectionError(1, 2, "three"),
    quic.ConnectionClosedError(1, None, "three", "four"),
    quic.QuicTlsError(0x128, 6, "bad", "text"),
    quic.QuicCertificateError(0x12A, 6, "bad", "text"),
    quic.QuicAlpnError(0x178, 6, "none", "text"),
    quic.QuicIdleTimeoutError(0, None, "", "silent"),
    quic.QuicVersionError(0, None, "", "none"),
    quic.QuicConnectionRefusedError(0, 0, "", "nobody", errno=101),
    webtransport.WebTransportError("reason", 5),
    webtransport.SessionRefusedError(403, [(b"a", b"b")]),
    webtransport.SessionClosedError(5, "bye"),
    http3.HTTP3Error("x"),
    http3.URLError("x"),
    http3.InvalidRequestError("x"),
    http3.RequestFailedError("x"),
    http3.RequestNotProcessedError(),
    http3.RequestResetError(0x10B),
    http3.MalformedResponseError(0x10E),
    LOST,
    http3.ConnectError.by(OSError("gone")),
    http3.RequestTimeoutError("x"),
    http3.ConnectTimeoutError("x"),
    http3.ReadTimeoutError("x"),
    http3.WriteTimeoutError("x"),
    http3.PoolTimeoutError("x"),
    WebSocketRefusedError(403, [(b"a", b"b")]),
    WebSocketClosedError(1001, "bye"),
    CommandFailure(28, "time-out"),
    StartupError("no", status=3),
    codes.MessageError("malformed"),
    codes.FrameUnexpected("not now"),
    h3.H3Error("x"),
    h3.InvalidStreamTypeError("x"),
    h3.NoAvailablePushIDError("x"),
    h3.GoingAwayError("x"),
]


def said(error):
    names = ("errno", "strerror", "retryable", "alert", "code", "reason", "status")
    return (
        type(error),
        str(error),
        error.args,
        vars(error),
        {name: getattr(error, name) for name in names if hasattr(error, name)},
    )


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_exception_is_pickled_with_all_fields(error):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert said(pickle.loads(pickle.dumps(error, protocol))) == said(error)
    assert said(copy.copy(error)) == said(copy.deepcopy(error)) == said(error)


def test_every_exception_class_with_a_constructor_is_tried():
    """Exceptions without a constructor are made from their text, which CPython pickles."""
    found = set()
    for module in pkgutil.walk_packages(uringcore.__path__, "uringcore."):
        if module.name.endswith(("__main__", "gunicorn")) or ".starlette" in module.name:
            continue
        if (
            module.name == "uringcore.server._uvicorn_zttp_workaround"
            and importlib.util.find_spec("zttp") is None
        ):
            continue
        names = vars(importlib.import_module(module.name)).values()
        found |= {
            one
            for one in names
            if isinstance(one, type)
            and issubclass(one, Exception)
            and one.__module__.startswith("uringcore")
            and "__init__" in vars(one)
        }
    assert {one.__name__ for one in found} <= {
        *(type(error).__name__ for error in EXAMPLES),
        "ProtocolError",
    }


def fail():
    raise LOST


def test_an_exception_in_a_pool_of_processes_leaves_the_pool_whole():
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        for _ in range(2):
            with pytest.raises(http3.ConnectionLostError, match="silent") as caught:
                pool.submit(fail).result(60)
            assert caught.value.retryable


@pytest.mark.parametrize("side", ["client", "server"])
def test_a_configuration_is_copied_and_pickled_after_use(
    server_configuration, client_configuration, side
):
    make = client_configuration if side == "client" else server_configuration
    configuration = make(max_data=12345)
    before = configuration.setup()
    QuicConnection(configuration=configuration)
    for twin in (
        copy.copy(configuration),
        copy.deepcopy(configuration),
        pickle.loads(pickle.dumps(configuration)),
    ):
        assert twin == configuration
        assert twin.setup() is not before and configuration.setup() is before
    copied = copy.deepcopy(make())
    copied.alpn_protocols.append("more")
    assert copied.alpn_protocols != make().alpn_protocols


def test_secrets_are_pickled_and_not_shown(server_configuration):
    configuration = server_configuration(
        token=b"the token",
        token_key=b"the token key".ljust(32),
        stateless_reset_key=b"the reset key".ljust(32),
    )
    key = configuration.private_key
    shown = repr(configuration)
    assert "max_data" in shown
    for secret in ("the token", "the token key", "the reset key", "private_key", "session_ticket"):
        assert secret not in shown
    twin = pickle.loads(pickle.dumps(configuration))
    assert key is not None and twin.private_key == key and twin.token == b"the token"


def test_a_deep_copy_shares_what_is_outside(server_configuration, tmp_path):
    store, log, logger = SharedSessionStore(tmp_path / "store"), io.StringIO(), QuicLogger()
    configuration = server_configuration(
        session_store=store, secrets_log_file=log, quic_logger=logger
    )
    configuration.setup()
    twin = copy.deepcopy(configuration)
    assert twin.session_store is store
    assert twin.secrets_log_file is log and twin.quic_logger is logger
    first, second = copy.deepcopy([configuration, configuration])
    assert first is second and first.session_store is store
