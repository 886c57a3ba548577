"""asyncio on io_uring, with QUIC, HTTP/3 and WebTransport on the same ring.

``uringcore.run(main())`` runs an asyncio program on the loop; ``uringcore.asyncio`` and
``uringcore.quic`` provide aioquic's names; ``uringcore app:app`` serves an ASGI application.

| file | noun |
| --- | --- |
| ``_loop`` | ``UringEventLoop`` |
| ``_isinstance_classes`` | the classes of its transports and handles, for ``isinstance`` |
| ``aio`` | files: ``open``, ``os``, ``tempfile`` |
| ``quic`` | QUIC: a typed client and server, and aioquic's modules |
| ``asyncio`` | aioquic's ``connect`` and ``serve`` |
| ``buffer``, ``tls`` | aioquic's modules of these names |
| ``h3``, ``h0`` | HTTP/3 and HTTP/0.9 over a QUIC connection, with aioquic's API |
| ``http3`` | the HTTP/3 client |
| ``contrib`` | adapters to third-party packages: httpx, Starlette, gunicorn, aiopquic's names |
| ``httpx`` | the former name of ``contrib.httpx`` |
| ``webtransport`` | WebTransport clients and servers |
| ``server`` | the ASGI server |
| ``_command_dispatch`` | the command ``uringcore`` |
| ``devcert`` | certificates for development |
| ``_run_and_policy`` | ``run``, ``new_event_loop``, ``install``, the policy |
| ``_uringcore`` | the extension module, in Rust |
| ``_sock_calls``, ``_overridden_socket_methods`` | ``sock_*`` methods; sockets with methods of their own |
| ``_read_ahead_sockets`` | sockets that only the loop reads, so that it may read ahead |
| ``_tls_transports`` | ``start_tls`` and TLS transports |
| ``_child_processes``, ``_child_start``, ``_popen`` | child processes: waits, starts, argument checks |
| ``_unix_signals`` | signal handlers |
| ``_selector_views`` | asyncio's attributes for the selector and the ready handles |
| ``_debug_mode`` | debug mode |
| ``_fork_handlers`` | the loops of a forked child |
| ``_transport_extra_info`` | the values of ``get_extra_info`` |
| ``_rust_event_dataclasses`` | the extension's events as dataclasses |
| ``_rust_coroutine_frames`` | frames for the extension's coroutines |
| ``_exception_pickling`` | exceptions pickled with their fields |
| ``_stored_exceptions`` | exceptions that are raised more than once |
| ``_time_limit`` | a timeout that never swallows a cancellation |
| ``_log_rate_limits`` | bounds for log lines that clients cause |
| ``_private_files`` | files that hold secrets |
| ``_buffer`` | aioquic's extension module of this name |
| ``_buffer_arguments`` | checks of buffer arguments |
| ``__main__`` | ``python -m uringcore`` |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._loop import UringEventLoop
from ._run_and_policy import has_policies as _has_policies
from ._run_and_policy import install, new_event_loop, run
from ._uringcore import __version__

if TYPE_CHECKING:
    from ._run_and_policy import EventLoopPolicy

__all__ = [
    "UringEventLoop",
    "__version__",
    "install",
    "new_event_loop",
    "run",
]

# A name in `__all__` without a value would make ``from uringcore import *`` fail.
if _has_policies():
    __all__ += ["EventLoopPolicy"]


# Type checkers do not see this: with a module-level `__getattr__` they would accept any name, also a misspelt
# one.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "EventLoopPolicy":
            from . import _run_and_policy

            return _run_and_policy._policy_class()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
