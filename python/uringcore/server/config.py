"""What the server is set up with: uvicorn's options and ours, checked before anything starts.

Nothing is bound or started here. A mistake in the options raises
:class:`~uringcore.server.StartupError` with the one line that a user needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import hashlib
import logging
import os
import secrets
import shutil
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from uvicorn.config import LOGGING_CONFIG, Config

from uringcore.devcert import DevelopmentCertificate
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.limits import RetryPolicy
from uringcore.quic.sessions import SessionStore, SharedSessionStore
from uringcore.server.limits import limits_from
from uringcore.server.startup import StartupError

__all__ = ["LOOP", "ServerConfig"]

LOOP = "uringcore:new_event_loop"

KEY_BYTES_MIN = 32

MAX_STREAM_BYTES = 1024 * 1024
MAX_CONNECTION_BYTES = 8 * 1024 * 1024

# Of one response. All those of a connection together: CONNECTION_QUEUE_HIGH.
SEND_BUFFER_HIGH = 128 * 1024
SEND_BUFFER_LOW = 32 * 1024

# That several processes keep together, a kilobyte or so each: a container has little room in /dev/shm.
SHARED_SESSIONS = 16384

logger = logging.getLogger("uvicorn.error")


class _Listener(Protocol):
    """Where connections get their certificate."""

    def reload(self) -> None: ...


class ServerConfig(Config):
    """uvicorn's ``Config`` with the HTTP/3 side.

    - ``http3``: serve HTTP/3 too, where the other options let it.
    - ``dev_cert``: make a short-lived certificate for localhost instead of reading one.
    - ``backend``: ``"uring"`` or ``"epoll"`` to insist; ``None`` chooses.
    - ``http3_port``: the UDP port, where it is not that of TCP, or TCP has none.
    - ``http3_fd``: descriptor of a bound UDP socket to serve HTTP/3 on instead.
    - ``http3_idle_timeout``: seconds of silence after which a connection without requests is dropped.
    - ``http3_retry``: whether new clients prove their address first; see
      :data:`~uringcore.quic.limits.RetryPolicy`.
    - ``http3_token_key``, ``http3_reset_key``: secrets of at least 32 bytes with which address tokens
      and stateless resets outlive this process; ``None`` makes new ones.
    - ``http3_log_lines``: lines that one client may cause in the log, besides its access lines, before
      it is one a minute.
    - ``http3_`` and the name of a field of :class:`~uringcore.server.limits.HTTP3Limits` or
      :class:`~uringcore.quic.limits.ServerLimits`: that limit.
    """

    def __init__(
        self,
        app: Any,
        *,
        http3: bool = True,
        dev_cert: bool = False,
        backend: str | None = None,
        http3_port: int | None = None,
        http3_fd: int | None = None,
        http3_idle_timeout: float = 30.0,
        http3_retry: RetryPolicy = "auto",
        http3_token_key: bytes | None = None,
        http3_reset_key: bytes | None = None,
        http3_log_lines: int = 10,
        **options: Any,
    ) -> None:
        options.setdefault("loop", LOOP)
        if options["loop"] == "auto":
            options["loop"] = LOOP
        # uvicorn's own default is to wait for ever.
        if options.get("timeout_graceful_shutdown") is None:
            options["timeout_graceful_shutdown"] = 30
        if options.get("log_config") is None or options["log_config"] is LOGGING_CONFIG:
            options["log_config"] = log_config()
        if backend is not None:
            if backend not in ("uring", "epoll"):
                raise StartupError(f"backend must be 'uring' or 'epoll', not {backend!r}")
            # In the environment, since uvicorn's worker processes make their own loops.
            os.environ["URINGCORE_BACKEND"] = backend
        try:
            self.http3_limits, self.quic_limits = limits_from(options)
        except ValueError as exc:
            raise StartupError(str(exc)) from None
        for name, key in (("token", http3_token_key), ("reset", http3_reset_key)):
            if key is not None and len(key) < KEY_BYTES_MIN:
                raise StartupError(
                    f"http3_{name}_key must be a secret of at least {KEY_BYTES_MIN} bytes, not {len(key)}"
                )
        self.http3_port = http3_port
        self.http3_fd = http3_fd
        self.http3_idle_timeout = http3_idle_timeout
        self.http3_retry = http3_retry
        self.http3_token_key = http3_token_key
        # QUIC wants 32 bytes; a secret may have more.
        self.http3_reset_key = http3_reset_key and hashlib.sha256(http3_reset_key).digest()
        self.http3_log_lines = http3_log_lines
        self.dev_certificate: DevelopmentCertificate | None = None
        self.session_store: SessionStore | None = None
        self._session_folder: str | None = None
        self._cleanup = contextlib.ExitStack()
        super().__init__(app, **options)
        if dev_cert:
            self._make_dev_certificate()
        self.http3 = http3 and self._http3_possible()
        self.quic: QuicConfiguration | None = None
        self._check_certificate()

    def load(self) -> None:
        """Imports the application and makes the TLS contexts of both sides."""
        try:
            super().load()
        except ssl.SSLError as exc:
            raise StartupError(f"the certificate cannot be used: {exc.reason or exc}") from None
        if self.ssl is not None:
            # Without it a client that offers only "h3" and "h2" would be let in and then not understood.
            self.ssl.set_alpn_protocols(["http/1.1"])
        if self.http3:
            self.quic = self._quic_configuration()
        if self.server_header:
            ours = (b"server", b"uringcore")
            self.encoded_headers = [
                ours if header == (b"server", b"uvicorn") else header
                for header in self.encoded_headers
            ]

    def get_loop_factory(self) -> Callable[[], asyncio.AbstractEventLoop] | None:
        """uvicorn's, with a loop that cannot be had as one line instead of a traceback."""
        factory = super().get_loop_factory()
        if factory is None or self.loop != LOOP:
            return factory

        def make_loop() -> asyncio.AbstractEventLoop:
            try:
                return factory()
            except (OSError, RuntimeError, ValueError) as exc:
                raise StartupError(str(exc)) from None

        return make_loop

    def __getstate__(self) -> dict[str, Any]:
        """For a child process: what is to be cleaned up stays the parent's."""
        return {**self.__dict__, "_cleanup": contextlib.ExitStack(), "dev_certificate": None}

    def share_keys(self) -> None:
        """Makes the keys that all processes of this server have to have, where none are given."""
        if self.http3_token_key is None:
            self.http3_token_key = secrets.token_bytes(64)
        if self.http3_reset_key is None:
            self.http3_reset_key = secrets.token_bytes(32)

    def share_sessions(self) -> None:
        """Keeps TLS sessions where all processes of this server find them; gone with the first."""
        folder = tempfile.mkdtemp(prefix="uringcore-sessions-", dir=memory_folder())
        self._session_folder = folder
        self._cleanup.callback(self.forget_sessions)
        self.session_store = SharedSessionStore(
            os.path.join(folder, "sessions"), capacity=SHARED_SESSIONS
        )

    def forget_sessions(self) -> None:
        """Removes what :meth:`share_sessions` has made: in its process, or when that has been killed."""
        if self._session_folder is not None:
            shutil.rmtree(self._session_folder, ignore_errors=True)

    def reload_certificate(self, listener: _Listener | None) -> None:
        """Reads the certificate's files again, for new connections of TCP and of ``listener``.

        Raises :class:`StartupError`, and then nothing has changed.
        """
        self._check_certificate()
        quic, before = self.quic, None
        if quic is not None and listener is not None:
            before = quic.certificate, quic.certificate_chain, quic.private_key
            try:
                self._load_into(quic)
                listener.reload()
            except (ImportError, ValueError) as exc:
                quic.certificate, quic.certificate_chain, quic.private_key = before
                raise StartupError(f"HTTP/3 cannot use the certificate: {exc}") from None
        if self.ssl is not None:
            assert self.ssl_certfile is not None
            password = self.ssl_keyfile_password or ""
            self.ssl.load_cert_chain(self.ssl_certfile, self.ssl_keyfile, lambda: password)

    def _load_into(self, quic: QuicConfiguration) -> None:
        assert self.ssl_certfile is not None
        quic.load_cert_chain(self.ssl_certfile, self.ssl_keyfile, self.ssl_keyfile_password)

    def cleanup(self) -> None:
        """Removes the files that were made for this run."""
        self._cleanup.close()

    @property
    def server_certificate_pem(self) -> str | None:
        """The certificate file's text, for ASGI's ``tls`` extension."""
        return None if self.ssl_certfile is None else Path(self.ssl_certfile).read_text()

    def _make_dev_certificate(self) -> None:
        if self.ssl_certfile or self.ssl_keyfile:
            raise StartupError("--dev-cert makes a certificate: drop --ssl-certfile/--ssl-keyfile")
        self.dev_certificate = DevelopmentCertificate.make(dev_cert_names(self.host))
        # uvicorn takes files only.
        folder = tempfile.mkdtemp(prefix="uringcore-dev-cert-")
        self._cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        self.ssl_certfile, self.ssl_keyfile = self.dev_certificate.write(folder)

    def _http3_possible(self) -> bool:
        """Whether the other options leave room for HTTP/3; warns where a user may not expect it."""
        if (
            (self.uds is not None or self.fd is not None)
            and (self.http3_port is None and self.http3_fd is None)
            and "LISTEN_FDS" not in os.environ
        ):
            what = "--uds" if self.fd is None else "--fd"
            logger.warning("HTTP/3 is off: beside %s it needs --http3-port or --http3-fd.", what)
        elif not self.is_ssl:
            logger.warning(
                "HTTP/3 is off: it needs a certificate (--ssl-certfile and --ssl-keyfile, or --dev-cert)."
            )
        elif self.ssl_context_factory is not None:
            logger.warning("HTTP/3 is off: it takes a certificate file, not an SSL context.")
        else:
            return True
        return False

    def _check_certificate(self) -> None:
        """Says which file is wrong, where OpenSSL's error would name neither."""
        if not self.is_ssl or self.ssl_context_factory is not None:
            return
        if not self.ssl_certfile:
            raise StartupError("--ssl-keyfile needs --ssl-certfile too")
        for option, path in (
            ("--ssl-certfile", self.ssl_certfile),
            ("--ssl-keyfile", self.ssl_keyfile),
            ("--ssl-ca-certs", self.ssl_ca_certs),
        ):
            if path is not None:
                try:
                    Path(path).read_bytes()
                except OSError as exc:
                    raise StartupError(f"{option}: {path}: {exc.strerror}") from None
        self._load_certificate()

    def _load_certificate(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # Never OpenSSL's own prompt on the terminal: a server may have none.
        password = self.ssl_keyfile_password or ""
        assert self.ssl_certfile is not None
        try:
            context.load_cert_chain(self.ssl_certfile, self.ssl_keyfile, lambda: password)
        except ssl.SSLError as exc:
            keyfile = self.ssl_keyfile or self.ssl_certfile
            if exc.reason == "KEY_VALUES_MISMATCH":
                text = f"--ssl-keyfile: {keyfile} is not the key of {self.ssl_certfile}"
            elif b"ENCRYPTED" in Path(keyfile).read_bytes():
                how = "wrong" if self.ssl_keyfile_password else "missing"
                text = f"--ssl-keyfile: {keyfile} is encrypted: --ssl-keyfile-password is {how}"
            else:
                text = (
                    f"--ssl-certfile/--ssl-keyfile: {self.ssl_certfile} and {keyfile} are not a "
                    f"certificate and its key in PEM ({exc.reason or exc})"
                )
            raise StartupError(text) from None

    def _quic_configuration(self) -> QuicConfiguration:
        configuration = QuicConfiguration(
            is_client=False,
            alpn_protocols=["h3"],
            idle_timeout=self.http3_idle_timeout,
            max_data=MAX_CONNECTION_BYTES,
            max_stream_data=MAX_STREAM_BYTES,
            max_streams_bidi=self.http3_limits.max_requests,
            send_buffer_high=SEND_BUFFER_HIGH,
            send_buffer_low=SEND_BUFFER_LOW,
            token_key=self.http3_token_key,
            session_store=self.session_store,
            stateless_reset_key=self.http3_reset_key,
            verify_mode=ssl.CERT_REQUIRED if self.ssl_cert_reqs == ssl.CERT_REQUIRED else None,
        )
        try:
            self._load_into(configuration)
            if self.ssl_ca_certs is not None:
                configuration.load_verify_locations(cafile=str(self.ssl_ca_certs))
            configuration.setup()
        except (ImportError, ValueError) as exc:
            raise StartupError(f"HTTP/3 cannot use the certificate: {exc}") from None
        return configuration


def dev_cert_names(host: str | None) -> list[str]:
    """localhost in its three spellings, and the host that is served when that is another name."""
    names = ["localhost", "127.0.0.1", "::1"]
    if host and host not in names and host not in ("0.0.0.0", "::"):
        names.append(host)
    return names


def memory_folder() -> str | None:
    """Where files do not outlive the machine's run; ``None`` is the system's folder for short-lived ones."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None


def log_config() -> dict[str, Any]:
    """uvicorn's, with our own logger beside it: the loop says there why it chose a backend."""
    config: dict[str, Any] = copy.deepcopy(LOGGING_CONFIG)
    config["loggers"]["uringcore"] = {"handlers": ["default"], "level": "INFO", "propagate": False}
    return config
