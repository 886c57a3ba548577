"""Reads the runner's orders from the environment and from options."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import uringcore
from examples.interop import client, server
from examples.interop.cases import CASES, UNSUPPORTED
from uringcore.quic import QuicConfigurationError
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.logger import QuicFileLogger

__all__ = ["main", "parser"]

PREFERRED_PORT = 4443
"The port of a preferred address that is not given."


def main(arguments: Sequence[str]) -> int:
    """Runs one endpoint; returns the exit status: 0, 1 for a failure, 127 for an unknown case."""
    options = parser().parse_args(arguments)
    case = CASES.get(options.testcase)
    if case is None:
        print(f"interop: no such case: {options.testcase!r}", file=sys.stderr)
        return UNSUPPORTED
    try:
        with contextlib.ExitStack() as stack:
            key_log = None
            if options.keylog:
                key_log = stack.enter_context(open(options.keylog, "a", encoding="ascii"))
            work = _serve if options.role == "server" else _fetch
            uringcore.run(work(options, key_log), backend=options.backend)
    except NotImplementedError as exc:
        print(f"interop: {exc}", file=sys.stderr)
        return UNSUPPORTED
    except (
        OSError,
        ValueError,
        asyncio.TimeoutError,
        client.InteropError,
        QuicConfigurationError,
    ) as exc:
        print(f"interop: {type(exc).__name__}: {exc}", file=sys.stderr)
        return 1
    return 0


async def _serve(options: argparse.Namespace, key_log: TextIO | None) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    configuration = server.configure(
        CASES[options.testcase], Path(options.certs), options.preferred or _own_addresses()
    )
    _log(configuration, options, key_log)
    await server.run(
        CASES[options.testcase],
        configuration,
        Path(options.www),
        options.host,
        options.port,
        lambda port: print("READY", port, flush=True),
        stopped,
    )


async def _fetch(options: argparse.Namespace, key_log: TextIO | None) -> None:
    authority = Path(options.certs) / "ca.pem"
    configuration = client.configure(
        CASES[options.testcase], authority if authority.exists() else None
    )
    _log(configuration, options, key_log)
    await client.run(
        CASES[options.testcase],
        configuration,
        options.requests.split(),
        Path(options.downloads),
    )


def _own_addresses() -> list[tuple[str, int]]:
    """Returns this host's addresses by its name, one of each family, on a port beside the first
    one's.
    """
    found: dict[int, tuple[str, int]] = {}
    try:
        infos = socket.getaddrinfo(socket.gethostname(), PREFERRED_PORT, type=socket.SOCK_DGRAM)
    except OSError:
        return []
    for family, _, _, _, address in infos:
        found.setdefault(family, (str(address[0]), PREFERRED_PORT))
    return list(found.values())


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def _log(
    configuration: QuicConfiguration, options: argparse.Namespace, key_log: TextIO | None
) -> None:
    configuration.secrets_log_file = key_log
    if options.qlog:
        os.makedirs(options.qlog, exist_ok=True)
        configuration.quic_logger = QuicFileLogger(options.qlog)


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    environment = os.environ.get
    parser = argparse.ArgumentParser(
        prog="python -m examples.interop",
        description="An endpoint of the QUIC interoperability runner. Every option's default is "
        "what the runner says in the environment, or its folder.",
    )
    role = environment("ROLE")
    parser.add_argument(
        "role",
        choices=("server", "client"),
        nargs="?" if role in ("server", "client") else None,
        default=role,
        help="$ROLE",
    )
    parser.add_argument(
        "--testcase", default=environment("TESTCASE", "handshake"), help="$TESTCASE"
    )
    parser.add_argument("--requests", default=environment("REQUESTS", ""), help="$REQUESTS: URLs")
    parser.add_argument("--keylog", default=environment("SSLKEYLOGFILE"), help="$SSLKEYLOGFILE")
    parser.add_argument("--qlog", default=environment("QLOGDIR"), help="$QLOGDIR")
    parser.add_argument("--www", default="/www", help="the served folder (%(default)s)")
    parser.add_argument("--downloads", default="/downloads", help="(%(default)s)")
    parser.add_argument(
        "--certs", default="/certs", help="cert.pem, priv.key, ca.pem (%(default)s)"
    )
    parser.add_argument("--host", default="::", help="the server's address (%(default)s)")
    parser.add_argument("--port", type=int, default=443, help="the server's port (%(default)s)")
    parser.add_argument(
        "--preferred",
        action="append",
        type=_address,
        metavar="IP:PORT",
        help="where clients are asked to move to in connectionmigration; may be given for IPv4 and for "
        "IPv6 (this host's addresses, port 4443)",
    )
    parser.add_argument("--backend", choices=("uring", "epoll"), help="of the event loop")
    return parser
