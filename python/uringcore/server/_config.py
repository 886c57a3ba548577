"""A server's configuration: uvicorn's options and ours, checked before anything starts.

Nothing is bound or started here. A mistake in the options raises
:class:`~uringcore.server.StartupError` with a one-line explanation for the user.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import ssl
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from uvicorn.config import LOGGING_CONFIG
from uvicorn.config import Config as UvicornConfig
from uvicorn.lifespan.on import LifespanOn

from uringcore._private_files import mark_checked, warn_if_exposed
from uringcore._uringcore import ResponseCompression, TlsServerSetup
from uringcore.devcert import LOCALHOST, DevelopmentCertificate
from uringcore.quic._available_memory import MEMORY_MIN, default_memory
from uringcore.quic._errors import QuicConfigurationError
from uringcore.quic._named_certificate import NamedCertificate
from uringcore.quic._qlog_files import QuicSequenceLogger, TraceLimits
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.limits import RetryPolicy, ServerLimits
from uringcore.quic.sessions import SessionStore, SharedSessionStore
from uringcore.server._certificate_checks import check_certificate, quic_refusal
from uringcore.server._file_signature import Signature, signature
from uringcore.server._http3_limits import HTTP3Limits, SessionLimits, limits_from, trace_limits
from uringcore.server._lifespan import Lifespan
from uringcore.server._metrics_middleware import MetricsMiddleware
from uringcore.server._metrics_port import METRICS_PATH
from uringcore.server._native_tcp import NativeTCP, choose_http, needed_classes
from uringcore.server._native_tls import offer_versions, setup_or_none, with_alpn
from uringcore.server._option_checks import (
    check_environment,
    check_http3_port,
    check_metrics_port,
    check_options,
    check_paths,
    check_protocols,
    check_qlog_dir,
)
from uringcore.server._request_log import log_config
from uringcore.server._secret_keys import ServerKeys
from uringcore.server._shared_process_folder import SharedFolder, close_in
from uringcore.server._sni_certificates import (
    SNICertificate,
    parse_sni_certificates,
    read_sni_certificates,
)
from uringcore.server._startup_errors import StartupError
from uringcore.server._web_options import WebOptions, web_options

__all__ = ["EARLY_DATA", "LOOP", "Config"]

LOOP = "uringcore:new_event_loop"

EARLY_DATA = ("safe", "refuse", "off")
"""Values of ``http3_early_data``."""

# The number of unidirectional streams that a client may open. HTTP/3 needs three (RFC 9114 section 6.2), and
# some clients open one of a reserved type.
MAX_STREAMS_UNI = 8
MAX_STREAM_BYTES = 1024 * 1024
MAX_CONNECTION_BYTES = 8 * 1024 * 1024
# The announced limit of DATAGRAM frames. 65,535 means any frame that fits into a packet (RFC 9221 section 3).
MAX_DATAGRAM_FRAME_BYTES = 65535

# Queued bytes of one response at which `send` waits. CONNECTION_QUEUE_HIGH bounds all responses of a
# connection together.
SEND_BUFFER_HIGH = 128 * 1024
SEND_BUFFER_LOW = 32 * 1024

# The number of TLS sessions that several processes share, about 1 KiB each. A container has little space in
# /dev/shm.
SHARED_SESSIONS = 16384

logger = logging.getLogger("uvicorn.error")


class Config(UvicornConfig):
    """uvicorn's ``Config`` with the HTTP/3 side.

    - ``http``: ``"auto"`` or ``"native"`` for HTTP/1.1, HTTP/2 and WebSocket in the extension, ``"uvicorn"``
      for uvicorn's choice, or one of uvicorn's values; see :mod:`uringcore.server._native_tcp`.
    - ``http3``: serve HTTP/3 too, if the other options allow it.
    - ``dev_cert``: make a short-lived certificate for localhost instead of reading one.
    - ``backend``: ``"uring"`` or ``"epoll"`` to require one; ``None`` chooses.
    - ``http3_port``: the UDP port, if it differs from the TCP port or there is no TCP port.
    - ``http3_fd``: descriptor of a bound UDP socket to serve HTTP/3 on instead.
    - ``http3_idle_timeout``: seconds of silence after which a connection without requests is closed.
    - ``http3_retry``: when new clients must prove their address first; see
      :data:`~uringcore.quic.limits.RetryPolicy`.
    - ``http3_early_data``: how requests in 0-RTT data are handled. ``"safe"`` runs GET, HEAD and OPTIONS
      without content at once, and others after the handshake; ``"refuse"`` answers those others with 425;
      ``"off"`` accepts no 0-RTT data. If no token proves the client's address, GET, HEAD and OPTIONS wait for
      the handshake with ``"safe"`` and ``"refuse"`` alike: until then anybody may have sent them. They get
      no 425, because a second attempt would gain nothing over the wait.
    - ``http3_webtransport``: accept WebTransport sessions, whose scope has a type of its own; see
      :mod:`uringcore.webtransport._asgi`.
    - ``http3_connect``: protocols of extended CONNECT that the application implements, such as
      ``connect-udp``; see "HTTP datagrams" in :mod:`uringcore.server`.
    - ``http3_token_key``, ``http3_reset_key``: secrets of at least 32 bytes with which address tokens
      and stateless resets outlive this process; ``None`` makes new ones. The command's files are read again
      at SIGHUP; two former keys of each kind stay valid. The reset key is combined with the
      host name: it outlives a container only if the next one has the same host name.
    - ``http3_reset_group``: a name that machines with one ``http3_reset_key`` share if the load balancer
      routes packets to them by connection ID; ``None`` gives each machine a key of its own. See
      :mod:`uringcore.server._stateless_reset_key`.
    - ``ssl_sni_certificate``: ``HOST=CERTFILE:KEYFILE`` for each further host of TLS: clients that request it
      (server name indication) get this certificate, and others that of ``ssl_certfile``. One file may contain
      both; ``*.`` and a name stands for all names with one more label. Needs native ``http``.
    - ``http3_log_lines``: log lines that one HTTP/3 client may cause at once, besides its access lines; then
      one a minute. All clients together may cause 20 times as many. One line a minute counts the dropped
      ones. Each process of ``workers`` counts for itself. An exception that an application raises after its
      client has disconnected is such a line, with its traceback only at the level ``debug``; exceptions
      while the client is connected have no bound.
    - ``http3_qlog_dir``: a folder in which each HTTP/3 connection writes a qlog trace while it lives.
      ``http3_qlog_`` and the name of a field of :class:`~uringcore.quic._qlog_files.TraceLimits`: that
      bound of the traces.
    - ``log_config``: uvicorn's; ``None`` leaves logging as the program has set it up.
    - ``root_path``: uvicorn's, without a trailing slash, since the path that follows begins with one.
    - ``log_format``: ``"text"``, uvicorn's, or ``"json"``; see :mod:`uringcore.server._json_log`. Not with
      a ``log_config``.
    - ``metrics_path``: the path of the server's metrics, in OpenMetrics text.
    - ``metrics_port``, ``metrics_host``: a separate TCP port for them, without TLS and by default on
      127.0.0.1; then the application's ports do not serve them.
    - ``status_page``: the path of a page about the server; with ``status_on_metrics_port`` on the metrics
      port only.
    - ``http3_`` and a field of ``HTTP3Limits`` or ``SessionLimits``
      (:mod:`uringcore.server._http3_limits`) or of :class:`~uringcore.quic.limits.ServerLimits`: a limit.
    - the fields of :class:`~uringcore.server._web_options.WebOptions`: files,
      compression and others.
    """

    # An attribute of uvicorn's that this class changes.
    encoded_headers: list[tuple[bytes, bytes]]
    http_protocol_class: type[asyncio.Protocol]
    lifespan_class: Any
    loaded_app: Any
    ssl_certfile: str | os.PathLike[str] | None
    ssl_keyfile: str | os.PathLike[str] | None
    # A default for older versions of uvicorn, which have no such option.
    ssl_context_factory: Any = None

    def __init__(
        self,
        app: Any,
        *,
        http3: bool = True,
        dev_cert: bool = False,
        backend: Literal["uring", "epoll"] | None = None,
        http3_port: int | None = None,
        http3_fd: int | None = None,
        http3_idle_timeout: float = 30.0,
        http3_retry: RetryPolicy = "auto",
        http3_early_data: str = "safe",
        http3_webtransport: bool = True,
        http3_connect: Sequence[str] = (),
        http3_token_key: bytes | None = None,
        http3_reset_key: bytes | None = None,
        http3_reset_group: str | None = None,
        http3_log_lines: int = 10,
        ssl_sni_certificate: Sequence[str] = (),
        http3_qlog_dir: str | None = None,
        log_format: str = "text",
        metrics_path: str | None = None,
        metrics_port: int | None = None,
        metrics_host: str = "127.0.0.1",
        status_page: str | None = None,
        status_on_metrics_port: bool = False,
        **options: Any,
    ) -> None:
        options.setdefault("loop", LOOP)
        if options["loop"] == "auto":
            options["loop"] = LOOP
        # Without the option uvicorn would wait without limit.
        if options.get("timeout_graceful_shutdown") is None:
            options["timeout_graceful_shutdown"] = 30
        # As in uvicorn, None leaves logging as the program has set it up.
        if options.get("log_config", LOGGING_CONFIG) is LOGGING_CONFIG:
            options["log_config"] = log_config(log_format)
        elif log_format != "text":
            raise StartupError(
                "log_format: log_config sets the format, so only one of them can be given"
            )
        # The path that follows begins with a slash, so "/" is equivalent to no root path.
        options["root_path"] = (options.get("root_path") or "").rstrip("/")
        if backend is not None:
            if backend not in ("uring", "epoll"):
                raise StartupError(f"backend must be 'uring' or 'epoll', not {backend!r}")
            # Passed by the environment, because worker processes make their own loops.
            os.environ["URINGCORE_BACKEND"] = backend
        try:
            found = limits_from(options)
        except QuicConfigurationError as exc:
            raise StartupError(str(exc), option=exc.field) from None
        self.http3_limits: HTTP3Limits = found[0]
        self.session_limits: SessionLimits = found[1]
        self.quic_limits: ServerLimits = found[2]
        self.http3_trace_limits: TraceLimits = trace_limits(options)
        self.web: WebOptions = web_options(options)
        self.compression: ResponseCompression | None = None
        self.keys: ServerKeys = ServerKeys(http3_token_key, http3_reset_key, http3_reset_group)
        self.ticket_key: bytes = secrets.token_bytes(64)
        """Seals the tickets of TLS over TCP if there is no token key. Worker processes inherit it."""
        self.http3_port = http3_port
        self.http3_fd = http3_fd
        self.http3_idle_timeout = http3_idle_timeout
        self.http3_retry = http3_retry
        if http3_early_data not in EARLY_DATA:
            raise StartupError(
                f"http3_early_data must be one of {', '.join(EARLY_DATA)}, not {http3_early_data!r}"
            )
        self.http3_early_data = http3_early_data
        check_http3_port(http3_port, http3_fd)
        check_protocols(http3_connect)
        self.http3_connect: tuple[str, ...] = tuple(http3_connect)
        self.http3_log_lines = http3_log_lines
        self.sni_certificates: tuple[SNICertificate, ...] = parse_sni_certificates(
            ssl_sni_certificate
        )
        self.named_certificates: list[NamedCertificate] = []
        """The certificates of further hosts, as they were read last."""
        self.log_format = log_format
        self.http3_qlog_dir = http3_qlog_dir
        self.metrics_path = metrics_path
        self.metrics_port = metrics_port
        self.metrics_host = metrics_host
        self.metrics_sockets: list[socket.socket] = []
        """The bound sockets of the metrics port, which worker processes inherit from their parent."""
        self.status_page = status_page
        self.status_on_metrics_port = status_on_metrics_port
        self.observer: MetricsMiddleware | None = None
        self.dev_certificate: DevelopmentCertificate | None = None
        self.certificate_signature: Signature = ()
        """The signature of the certificate's files, computed before they were read."""
        self.session_store: SessionStore | None = None
        self._shared_folders: list[SharedFolder] = []
        self._cleanup = contextlib.ExitStack()
        # The finalizer cleans up for programs that do not call `cleanup`.
        weakref.finalize(self, close_in, os.getpid(), self._cleanup)
        check_environment(options)
        self.is_native_http: bool = choose_http(options)
        super().__init__(app, **options)
        self.http1: NativeTCP | None = None
        """The state of native HTTP/1.1 while the server runs."""
        self.tls_files: QuicConfiguration | None = None
        """The certificates and keys of `tls_setup`."""
        self.tls_setup: TlsServerSetup | None = None
        """The TLS of native HTTP/1.1 and HTTP/2; ``None`` without TLS, and with CPython's ``ssl``."""
        # Sessions need ASGI; a WSGI application cannot serve them.
        self.http3_webtransport: bool = http3_webtransport and self.interface != "wsgi"
        check_options(self)
        one_port = metrics_port is None or status_on_metrics_port
        port_path = metrics_path or (METRICS_PATH if metrics_port is not None else None)
        check_paths(port_path, status_page, one_port=one_port)
        check_metrics_port(self, metrics_host, metrics_port)
        check_qlog_dir(http3_qlog_dir)
        if dev_cert:
            self._make_dev_certificate()
        self.http3: bool = http3 and self._http3_possible()
        self._memory_given = self.quic_limits.memory
        self.share_memory(self.workers)
        self.quic: QuicConfiguration | None = None
        self.check_certificates()
        if self.is_ssl and self.ssl_context_factory is None:
            warn_if_exposed(self._key_file, logger, Path(self._key_file).read_bytes())
        self.reports_folder: str | None = None
        if self.workers > 1 and self.is_observed:
            self.reports_folder = self._shared_folder("reports")

    def share_memory(self, processes: int) -> None:
        """Divides the server's budget by ``processes``: each gets an equal part, ``quic_limits.memory``.

        Raises :class:`StartupError` if a given budget is too small. The default never raises, so that a
        small container with many processes still starts.
        """
        given = self._memory_given
        memory = (default_memory() if given is None else given) // max(processes, 1)
        if memory < MEMORY_MIN and given is not None and (self.http3 or self.is_native_http):
            message = f"--http3-memory: leaves {memory} bytes for each of {processes} workers"
            raise StartupError(f"{message}, and {MEMORY_MIN} are needed")
        self.quic_limits = replace(self.quic_limits, memory=max(memory, MEMORY_MIN))

    @property
    def is_observed(self) -> bool:
        """True if the server serves metrics or a status page."""
        pages = (self.metrics_path, self.metrics_port, self.status_page)
        return any(page is not None for page in pages)

    def configure_logging(self) -> None:
        """Configures logging as uvicorn does. Reports an unusable file in one line."""
        try:
            super().configure_logging()
        except Exception as exc:  # Parsers, and the classes that the file names, raise anything.
            if not isinstance(self.log_config, str):
                raise
            said = str(exc) if isinstance(exc, ImportError) else f"{type(exc).__name__}: {exc}"
            raise StartupError(f"--log-config: {self.log_config}: {said}") from None

    def load(self) -> None:
        """Imports the application and makes the TLS contexts of both sides."""
        self.certificate_signature = signature(self.certificate_files)
        make_context = self.ssl_context_factory
        if make_context is not None:
            self.ssl_context_factory = with_alpn(self, make_context)
        try:
            with needed_classes(self):
                super().load()
        except OSError:
            # If the certificate's files have changed since they were checked, this raises an error about
            # them. Otherwise the error comes from the application.
            self.check_certificates()
            raise
        finally:
            self.ssl_context_factory = make_context
        if self.is_native_http and self.is_ssl:
            if not self.named_certificates:
                self._read_named_certificates()
            self.tls_setup = setup_or_none(self)
        if self.tls_setup is not None:
            # uvicorn's listeners would begin with the handshake.
            self.ssl: ssl.SSLContext | None = None
        if self.ssl is not None and make_context is None:
            offer_versions(self, self.ssl)
        # Older versions of uvicorn have no such option.
        if getattr(self, "http2", False):
            from uringcore.server._uvicorn_zttp_workaround import ZttpProtocol

            self.http_protocol_class = ZttpProtocol
        if self.lifespan_class is LifespanOn:
            self.lifespan_class = Lifespan
        self.loaded_app = self.web.wrap(self)
        self.compression = self.web.compression()
        if self.http3:
            self.quic = self._quic_configuration()
        if self.is_observed:
            on_port = set()
            if self.metrics_port is not None:
                on_port = {"metrics", "status"} if self.status_on_metrics_port else {"metrics"}
            observer = MetricsMiddleware(
                metrics_path=self.metrics_path or (METRICS_PATH if on_port else None),
                status_path=self.status_page,
                on_port=on_port,
                folder=self.reports_folder,
            )
            observer.sources.memory_budget = self.quic_limits.memory or 0
            self.loaded_app = observer.before(self.loaded_app, self.root_path)
            self.observer = observer
        if self.server_header:
            ours = (b"server", b"uringcore")
            self.encoded_headers = [
                ours if header == (b"server", b"uvicorn") else header
                for header in self.encoded_headers
            ]

    def check_loop(self) -> None:
        """Raises :class:`StartupError` with one line if the loop cannot be created."""
        try:
            factory = self.get_loop_factory()
        except ImportError as exc:
            raise StartupError(f"--loop {self.loop}: {exc}") from None
        if factory is None or self.loop != LOOP:
            return
        try:
            factory().close()
        except (OSError, RuntimeError, ValueError) as exc:
            raise StartupError(str(exc)) from None

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state for a child process, which must not clean up: the parent does."""
        return {
            **self.__dict__,
            "_cleanup": contextlib.ExitStack(),
            "dev_certificate": None,
            # The child reads the keys from their files.
            "named_certificates": [],
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.is_ssl and self.ssl_context_factory is None:
            # The first process has logged the warning about each key, so this one does not repeat it.
            for path in (self._key_file, *(one.keyfile for one in self.sni_certificates)):
                mark_checked(path)

    @property
    def _key_file(self) -> str:
        """The file that contains the private key."""
        file = self.ssl_keyfile or self.ssl_certfile
        assert file is not None
        return os.fspath(file)

    def share_sessions(self) -> None:
        """Keeps TLS sessions in a folder that this server's processes share; the first one removes it."""
        # The folder is in memory if /dev/shm is writable, and otherwise in the system's temporary directory.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None
        folder = self._shared_folder("sessions", memory)
        self.session_store = SharedSessionStore(
            os.path.join(folder, "sessions"), capacity=SHARED_SESSIONS
        )

    def _shared_folder(self, kind: str, parent: str | None = None) -> str:
        """Makes a folder for this server's processes; the first one removes it."""
        folder = SharedFolder(kind, parent)
        self._shared_folders.append(folder)
        self._cleanup.callback(folder.remove)
        return folder.path

    def remove_shared_folders(self) -> None:
        """Removes them from a child process, after the first process was killed."""
        for folder in self._shared_folders:
            folder.remove()

    def set_quic_keys(self, quic: QuicConfiguration) -> None:
        """Sets the present keys for address tokens and stateless resets."""
        quic.token_key = self.keys.token or None
        quic.stateless_reset_key = self.keys.reset or None

    def load_certificates_into(self, quic: QuicConfiguration) -> None:
        """Reads the files of the certificates."""
        assert self.ssl_certfile is not None
        quic.load_cert_chain(self.ssl_certfile, self.ssl_keyfile, self.ssl_keyfile_password)
        quic.named_certificates = list(self.named_certificates)

    def cleanup(self) -> None:
        """Removes the files that were made for this run."""
        self._cleanup.close()

    @property
    def certificate_files(self) -> list[str]:
        """The files of the certificate: the one with its chain, and the key's if that is another. Those of
        further hosts follow."""
        files = (self.ssl_certfile, self.ssl_keyfile)
        others = (path for one in self.sni_certificates for path in (one.certfile, one.keyfile))
        return [*(os.fspath(path) for path in files if path is not None), *others]

    @property
    def server_certificate_pem(self) -> str | None:
        """The certificate file's text, for ASGI's ``tls`` extension; ``None`` if clients get several
        certificates."""
        if self.ssl_certfile is None or self.sni_certificates:
            return None
        return Path(self.ssl_certfile).read_text()

    def _make_dev_certificate(self) -> None:
        if self.ssl_certfile or self.ssl_keyfile:
            raise StartupError("--dev-cert makes a certificate: drop --ssl-certfile/--ssl-keyfile")
        # The certificate also names the served host, if it differs.
        others = {self.host} - {None, "", "0.0.0.0", "::", *LOCALHOST}
        self.dev_certificate = DevelopmentCertificate.make((*LOCALHOST, *others))
        # The certificate is written to files, because uvicorn accepts only files.
        folder = self._shared_folder("dev-cert")
        self.ssl_certfile, self.ssl_keyfile = self.dev_certificate.write(folder)

    def _http3_possible(self) -> bool:
        """True if the other options allow HTTP/3; otherwise logs a warning with the reason."""
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
            logger.warning("HTTP/3 is off: it needs a certificate file, not an SSL context.")
        else:
            return True
        return False

    def check_certificates(self) -> None:
        """Raises :class:`StartupError` for files that cannot be used."""
        if self.is_ssl and self.ssl_context_factory is None:
            check_certificate(self)
            if self.sni_certificates and not self.is_native_http:
                raise StartupError("--ssl-sni-certificate: needs --http native")
            self._read_named_certificates()
        elif self.sni_certificates:
            why = "needs --ssl-certfile, the certificate of all other clients"
            if self.ssl_context_factory is not None:
                why = "the context of ssl_context_factory cannot have it"
            raise StartupError(f"--ssl-sni-certificate: {why}")
        elif self.web.redirect_http is not None:
            raise StartupError("--redirect-http: needs a certificate (--ssl-certfile, --dev-cert)")

    def _read_named_certificates(self) -> None:
        self.named_certificates = read_sni_certificates(
            self.sni_certificates, self.ssl_keyfile_password, self.named_certificates
        )

    def _quic_logger(self) -> QuicSequenceLogger | None:
        if self.http3_qlog_dir is None:
            return None
        return QuicSequenceLogger(self.http3_qlog_dir, limits=self.http3_trace_limits)

    def _quic_configuration(self) -> QuicConfiguration:
        has_datagrams = self.http3_webtransport or bool(self.http3_connect)
        configuration = QuicConfiguration(
            is_client=False,
            alpn_protocols=["h3"],
            idle_timeout=self.http3_idle_timeout,
            max_data=MAX_CONNECTION_BYTES,
            max_datagram_frame_size=MAX_DATAGRAM_FRAME_BYTES if has_datagrams else None,
            reset_stream_at=self.http3_webtransport,
            max_stream_data=MAX_STREAM_BYTES,
            max_streams_bidi=self.http3_limits.max_requests,
            max_streams_uni=MAX_STREAMS_UNI,
            send_buffer_high=SEND_BUFFER_HIGH,
            send_buffer_low=SEND_BUFFER_LOW,
            session_store=self.session_store,
            verify_mode=ssl.VerifyMode(self.ssl_cert_reqs) if self.ssl_cert_reqs else None,
            quic_logger=self._quic_logger(),
            early_data=self.http3_early_data != "off",
        )
        self.set_quic_keys(configuration)
        try:
            self.load_certificates_into(configuration)
            if self.ssl_ca_certs is not None:
                configuration.load_verify_locations(cafile=str(self.ssl_ca_certs))
            configuration.setup()
        except (ImportError, ValueError) as exc:
            raise quic_refusal(self, exc) from None
        return configuration
