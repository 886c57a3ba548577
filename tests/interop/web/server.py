"""Servers of other projects as endpoints: `python -m tests.interop.web.server NAME server ...`.

Each is a program of its own, started with the files of the case in a temporary folder. The program
prints `READY port` when the server has bound its UDP port, and its TCP port if a case needs it too.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.interop.peers.installed import caddy, nginx, nginx_version, python_with
from tests.interop.web import origin
from tests.interop.web.application import TRAILER
from tests.support.child_processes import bound
from tests.support.free_ports import free_port

APPLICATION = "tests.interop.web.application:app"
ROOT = Path(__file__).resolve().parents[3]
UNSUPPORTED = 127
START_SECONDS = 30.0

# Features that a server lacks, by case.
LACKING = {
    "nginx": {"web-websocket": "nginx has no extended CONNECT"},
    "caddy": {"web-websocket": "the server behind Caddy here has no WebSocket"},
    "aioquic": {"web-altsvc": "aioquic has no TCP"},
    "hypercorn": {
        "web-trailers": "hypercorn takes trailers for a message out of turn, and drops them",
        "web-resumption": "hypercorn keeps no session tickets",
        "web-zerortt": "hypercorn keeps no session tickets",
        "web-broken": "hypercorn neither ends nor resets a response that its application has abandoned",
    },
}


@dataclass(frozen=True)
class Place:
    """A server's address, the site, and a folder for the server's own files."""

    host: str
    port: int
    www: Path
    certificates: Path
    work: Path

    @property
    def certificate(self) -> tuple[str, str]:
        return str(self.certificates / "cert.pem"), str(self.certificates / "priv.key")


def uringcore(place: Place) -> list[str]:
    certificate, key = place.certificate
    return [
        *(sys.executable, "-m", "uringcore", APPLICATION),
        *("--host", place.host, "--port", str(place.port)),
        *("--ssl-certfile", certificate, "--ssl-keyfile", key),
    ]


def hypercorn(place: Place) -> list[str]:
    certificate, key = place.certificate
    address = f"{place.host}:{place.port}"
    return [
        *(str(python_with("hypercorn")), "-m", "hypercorn", "--bind", address),
        *("--quic-bind", address, "--certfile", certificate, "--keyfile", key),
        # The server runs in this process itself, which is stopped from outside.
        *("--workers", "0", APPLICATION),
    ]


def aioquic(place: Place) -> list[str]:
    certificate, key = place.certificate
    return [
        *(str(python_with("aioquic")), "-m", "tests.interop.web.aioquic_server"),
        *(place.host, str(place.port), certificate, key),
    ]


def _nginx(place: Place) -> list[str]:
    certificate, key = place.certificate
    behind = f"http://127.0.0.1:{origin.start()}"
    early_hints = "early_hints $http3;" if nginx_version() >= (1, 29) else ""
    temporary = "\n".join(
        f"{kind}_temp_path {place.work}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (place.work / "nginx.conf").write_text(
        f"""
        daemon off; master_process off; pid {place.work}/pid; error_log stderr warn;
        events {{}}
        http {{
            access_log off; client_max_body_size 0; {temporary}
            server {{
                listen {place.host}:{place.port} quic; listen {place.host}:{place.port} ssl;
                ssl_certificate {certificate}; ssl_certificate_key {key}; ssl_early_data on;
                add_header Alt-Svc 'h3=":{place.port}"; ma=60' always;
                root {place.www};
                location = /trailed {{
                    proxy_pass {behind}; add_trailer {TRAILER[0].decode()} {TRAILER[1].decode()};
                }}
                location = /hinted {{ proxy_pass {behind}; {early_hints} }}
                location = /broken {{ proxy_pass {behind}; }}
                location / {{
                    if ($request_method = POST) {{ proxy_pass {behind}; }}
                }}
            }}
        }}
        """
    )
    return [*nginx(), "-p", str(place.work), "-e", "stderr", "-c", str(place.work / "nginx.conf")]


def _caddy(place: Place) -> list[str]:
    certificate, key = place.certificate
    (place.work / "Caddyfile").write_text(
        f"""
        {{
            admin off
            auto_https off
            persist_config off
            storage file_system {place.work}
        }}
        https://:{place.port} {{
            bind {place.host}
            tls {certificate} {key}
            @behind {{
                expression `{{method}} == "POST" || path("/hinted", "/trailed", "/broken")`
            }}
            reverse_proxy @behind 127.0.0.1:{origin.start()}
            root {place.www}
            file_server
        }}
        """
    )
    return [*caddy(), "run", "--config", str(place.work / "Caddyfile")]


SERVERS: dict[str, Callable[[Place], list[str]]] = {
    "uringcore": uringcore,
    "hypercorn": hypercorn,
    "aioquic": aioquic,
    "nginx": _nginx,
    "caddy": _caddy,
}


def main(arguments: Sequence[str]) -> int:
    """Runs one server until SIGTERM; returns its exit status."""
    name, *rest = arguments
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["server"])
    for option in ("--www", "--certs", "--host", "--port"):
        parser.add_argument(option, required=True)
    options = parser.parse_args(rest)
    case = os.environ["TESTCASE"]
    if reason := LACKING.get(name, {}).get(case):
        print(reason, file=sys.stderr)
        return UNSUPPORTED
    if name == "nginx" and case == "web-hints" and nginx_version() < (1, 29):
        print("nginx passes 103 on since 1.29", file=sys.stderr)
        return UNSUPPORTED
    with tempfile.TemporaryDirectory(prefix="interop-") as work:
        port = int(options.port) or free_port()
        place = Place(options.host, port, Path(options.www), Path(options.certs), Path(work))
        return run(SERVERS[name](place), place)


def run(command: list[str], place: Place) -> int:
    """Runs the server. An end by the SIGTERM that it got is a success."""
    stopping = False
    environment = {**os.environ, "WWW": str(place.www), "HOME": str(place.work)}
    process = subprocess.Popen(bound(command), cwd=ROOT, env=environment, stdout=sys.stderr)

    def stop(number: int, frame: object) -> None:
        nonlocal stopping
        stopping = True
        process.terminate()

    signal.signal(signal.SIGTERM, stop)
    deadline = time.monotonic() + START_SECONDS
    while not is_bound(place) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    if process.poll() is None:
        print("READY", place.port, flush=True)
    status = process.wait()
    return 0 if stopping and status in (0, -signal.SIGTERM) else status or 1


def is_bound(place: Place) -> bool:
    """Returns true if a process has bound the UDP port; a socket in a reuse-port group counts too."""
    hexadecimal = f":{place.port:04X} "
    pattern = re.compile(rf"^ *\d+: \w+{hexadecimal}", re.MULTILINE)
    families = ("udp", "udp6")
    return any(pattern.search(Path(f"/proc/net/{family}").read_text()) for family in families)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
