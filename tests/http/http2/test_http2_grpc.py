"""gRPC by trailers over native HTTP/2: grpclib's client and an ASGI application."""

from __future__ import annotations

import pytest

from tests.http.http2.grpc_calls import CALLS, call

pytestmark = pytest.mark.either_backend


@pytest.mark.parametrize("calls", CALLS)
def test_calls(start_native, calls):
    call(start_native(app="tests.http.http2.grpc_application:app"), calls)
