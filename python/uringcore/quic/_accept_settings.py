"""What an endpoint does with a new connection: its protocol object, its configuration and its worker.

``endpoint_options`` has the limits of every endpoint, including a client's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from uringcore._uringcore import QuicEndpoint, QuicServerSetup
from uringcore.quic._configuration_conversion import key_list
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.connection import QuicConnection
from uringcore.quic.limits import RetryPolicy, ServerLimits
from uringcore.quic.sessions import SessionStore
from uringcore.quic.workers import PortWorker

__all__ = ["AcceptSettings", "ProtocolFactory", "ServerFactory", "endpoint_options"]

ProtocolFactory = Callable[[QuicConnection], Any]
ServerFactory = ProtocolFactory | Mapping[str, ProtocolFactory]
"""One factory for every connection, or a mapping from application protocols to factories."""


class AcceptSettings:
    """Makes the protocol objects of accepted connections.

    With one factory an object is made at a client's first packet. With a mapping it is made once TLS has
    chosen the application protocol, at most one packet later. No event is lost, and a handshake that fails
    earlier makes no object.
    """

    def __init__(
        self,
        factory: ServerFactory,
        configuration: QuicConfiguration,
        *,
        retry: RetryPolicy = "auto",
        limits: ServerLimits | None = None,
        worker: PortWorker | None = None,
        session_store: SessionStore | None = None,
    ) -> None:
        self._factory = factory
        self._by_protocol: dict[bytes, ProtocolFactory] = {}
        if isinstance(factory, Mapping):
            self._by_protocol = {name.encode(): made for name, made in factory.items()}
        self._given = configuration
        self._retry: RetryPolicy = retry
        self._worker = worker
        self._session_store = session_store
        self._configuration = self._effective()
        self._setup = self.setup()
        self._options = endpoint_options(self._configuration, limits, worker)

    def setup(self) -> QuicServerSetup:
        """The setup with which the endpoint accepts connections, made from the present configuration."""
        made = self._effective().setup(retry=self._retry, session_store=self._session_store)
        assert isinstance(made, QuicServerSetup)
        return made

    @contextlib.contextmanager
    def changed(
        self, configuration: QuicConfiguration, retry: RetryPolicy
    ) -> Iterator[QuicServerSetup]:
        """Takes another configuration for new connections; the block passes its setup to the endpoint.
        Sessions in memory stay.

        Raises :class:`~uringcore.quic.QuicConfigurationError`. Then, and if the block raises, nothing has
        changed.
        """
        before = self._given, self._retry, self._configuration
        if configuration.session_store is None and self._given.session_store is None:
            # The configuration is copied, because other servers may use it too.
            configuration = replace(configuration)
            self._given._sessions()
            configuration._own_sessions = self._given._own_sessions
        self._given, self._retry = configuration, retry
        try:
            setup = self.setup()
            self._configuration = self._effective()
            yield setup
        except BaseException:
            self._given, self._retry, self._configuration = before
            raise

    def reset_keys(self) -> list[bytes]:
        """Returns the keys for stateless resets that the configuration has at present."""
        return key_list(self._effective().stateless_reset_key)

    def _effective(self) -> QuicConfiguration:
        """Returns the configuration with the keys of the worker and the protocols of the factories."""
        configuration = self._given
        if self._worker is not None:
            configuration = _with_keys_of(self._worker, configuration)
        if isinstance(self._factory, Mapping):
            configuration = _offering(configuration, list(self._factory))
        if configuration is not self._given and self._given.session_store is None:
            # The configuration makes its session store here, so that all copies of the configuration share
            # that store.
            self._given._sessions()
            configuration._own_sessions = self._given._own_sessions
        return configuration

    def began(self) -> None:
        """The endpoint receives from now on."""
        if self._worker is not None:
            self._worker._notify_serving()

    @property
    def preferred_address(self) -> Sequence[tuple[str, int]]:
        """The further addresses of the server."""
        return self._configuration.preferred_address

    def options(self, transport: Any) -> dict[str, Any]:
        """Returns the endpoint's arguments; accepted connections belong to ``transport``."""

        def accept(endpoint: QuicEndpoint, key: int, alpn: bytes | None) -> None:
            quic = QuicConnection._adopt(self._configuration, endpoint, key)
            self._factory_for(alpn)(quic).connection_made(transport)

        return {
            **self._options,
            "server": self._setup,
            "on_accept": accept,
            "when_negotiated": bool(self._by_protocol),
        }

    def _factory_for(self, alpn: bytes | None) -> ProtocolFactory:
        if isinstance(self._factory, Mapping):
            return self._by_protocol[alpn or b""]
        return self._factory


def endpoint_options(
    configuration: QuicConfiguration,
    limits: ServerLimits | None = None,
    worker: PortWorker | None = None,
) -> dict[str, Any]:
    """Returns the options of every endpoint, including a client's."""
    return {
        **(limits or ServerLimits())._options(),
        "connection_id_length": configuration.connection_id_length,
        "reset_keys": key_list(configuration.stateless_reset_key),
        "worker": None if worker is None else worker._place,
    }


def _with_keys_of(worker: PortWorker, configuration: QuicConfiguration) -> QuicConfiguration:
    reset_key, token_key = configuration.stateless_reset_key, configuration.token_key
    return replace(
        configuration,
        stateless_reset_key=worker._stateless_reset_key if reset_key is None else reset_key,
        token_key=worker._token_key if token_key is None else token_key,
    )


def _offering(configuration: QuicConfiguration, names: list[str]) -> QuicConfiguration:
    """Returns ``configuration`` with the protocols of the factories.

    The configuration's order of preference is kept if it has one; it must contain the same protocols.
    """
    if not names:
        raise ValueError("create_protocol: the mapping names no application protocol")
    offered = configuration.alpn_protocols
    if offered is None:
        return replace(configuration, alpn_protocols=names)
    for name in offered:
        if name not in names:
            raise ValueError(f"create_protocol: nothing is mapped to {name!r}, which is offered")
    for name in names:
        if name not in offered:
            raise ValueError(f"create_protocol: {name!r} is not among alpn_protocols")
    return configuration
