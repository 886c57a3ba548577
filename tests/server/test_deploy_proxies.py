"""docs/deploy.md behind real nginx and HAProxy: the traffic through the proxy, and HTTP/3 past it."""

from __future__ import annotations

import contextlib
import http.client
import inspect
import json
import re
import ssl
import subprocess
import time

import pytest
from uvicorn import Config

import uringcore
import uringcore.http3
from tests.server.deployment_guide import Machine, adapted, block, own_group, served_over_tcp
from tests.support.foreground_programs import debian, running
from tests.support.free_ports import free_port
from tests.support.interpreter_roles import is_default_interpreter
from uringcore.asyncio.client import connect
from uringcore.http3._connection import HTTP3ClientProtocol
from uringcore.http3._timeouts_and_limits import NO_TIMEOUTS
from uringcore.http3._unpooled_connection import OriginConnection, client_configuration
from uringcore.http3._unpooled_connection import connect as connect_origin
from uringcore.http3._url import parse_url

pytestmark = pytest.mark.skipif(
    not is_default_interpreter(), reason="proxies do not depend on the interpreter"
)

FORGED = "203.0.113.9"


@pytest.fixture
def machine(tmp_path, certificate):
    made = Machine(tmp_path, certificate)
    yield made
    made.close()


class Nginx:
    """The test's own nginx in `folder`: Debian's default would listen on the machine's ports."""

    def __init__(self, folder, configuration):
        nginx = debian("nginx")
        self._log = folder / "nginx.log"
        self._environment = nginx.environment
        modules = nginx.root / "usr" / "lib" / "nginx" / "modules"
        if "load_module" in configuration and not (modules / "ngx_stream_module.so").exists():
            pytest.skip("nginx is installed without libnginx-mod-stream")
        if modules.exists():
            (folder / "modules").symlink_to(modules)
        kept = [
            f"{name}_temp_path {folder}/{name};"
            for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        ]
        ours = f"pid {folder}/nginx.pid; error_log stderr; user root;"
        if "stream {" not in configuration:
            (folder / "app.conf").write_text(configuration)
            inner = f"access_log off; {' '.join(kept)} include {folder}/app.conf;"
            configuration = f"{ours}\nevents {{}}\nhttp {{ {inner} }}\n"
        else:
            configuration = f"{ours}\n{configuration}"
        (folder / "nginx.conf").write_text(configuration)
        self.command = [
            *(nginx.path, "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf"))
        ]

    def check(self, command):
        """Runs `nginx -t`, as on the page."""
        assert command.split() == ["nginx", "-t"]
        done = subprocess.run(
            [*self.command, "-t"],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr

    def running(self, port):
        command = [*self.command, "-g", "daemon off;"]
        return running(command, self._environment, port, self._log)


def ask(port, certificate, **headers):
    """Requests TCP `port` from 127.0.0.2; returns the application's report and the `Alt-Svc` header."""
    trust = ssl.create_default_context(cafile=certificate)
    connection = http.client.HTTPSConnection(
        "localhost", port, context=trust, timeout=30, source_address=("127.0.0.2", 0)
    )
    with contextlib.closing(connection):
        connection.request("GET", "/", headers=headers)
        response = connection.getresponse()
        assert response.status == 200
        return json.loads(response.read()), response.getheader("alt-svc")


def check_both_ways(server, proxy_port):
    """The proxy's client address is used and a forged one is not; HTTP/3 bypasses the proxy."""
    shown, alternative = ask(proxy_port, server.certificate, **{"X-Forwarded-For": FORGED})
    assert (shown["http_version"], shown["scheme"]) == ("1.1", "https")
    assert shown["client"][0] == "127.0.0.2"
    assert alternative == f'h3=":{server.port}"; ma=86400'

    async def past():
        configuration = client_configuration(server.certificate)
        configuration.server_name = "localhost"
        async with connect(
            *("127.0.0.1", server.port),
            configuration=configuration,
            create_protocol=HTTP3ClientProtocol,
            local_host="127.0.0.2",
        ) as protocol:
            client = OriginConnection(protocol, parse_url(server.url)[0], NO_TIMEOUTS)
            return await client.request("GET", "/", headers=[("x-forwarded-for", FORGED)])

    shown = json.loads(uringcore.run(past()).content)
    assert shown["http_version"] == "3"
    assert shown["client"][0] == "127.0.0.2"


def wait_renewed(machine, port, *hooks, **changes):
    """Waits until clients of a proxy get the certificate that certbot has renewed."""
    new = ssl.PEM_cert_to_DER_cert(machine.renew(["uringcore", *hooks], changes).read_text())
    deadline = time.monotonic() + 60
    while served_over_tcp(port) != new:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def check_http2(machine, port):
    """Checks HTTP/2, which browsers use over TCP, with a body larger than nginx's own limit."""
    said = machine.shell(
        "head -c 2000000 /dev/zero | curl --silent --show-error --data-binary @- --output /dev/null "
        f"--write-out '%{{http_version}} %{{http_code}}' https://localhost:{port}/"
    )
    assert said == "2 200"


def behind(machine):
    """Starts the server that the page puts behind a proxy; returns it and its ports."""
    inner, port = free_port(), free_port()
    command = block(
        "Behind nginx or HAProxy 1", inner=inner, port=port, tls=machine.tls, workers="--workers 2"
    )
    server = machine.serve(command)
    server.wait_http3(workers=2)
    assert server.port == port
    return server, inner


def test_behind_nginx(machine):
    server, inner = behind(machine)
    port = free_port()
    text = block(
        "/etc/nginx/conf.d/app.conf", port=port, inner=inner, tls=machine.tls, site="localhost"
    )
    idle = int(re.search(r"keepalive_timeout (\d+)s;", text)[1])
    assert idle < inspect.signature(Config).parameters["timeout_keep_alive"].default
    nginx = Nginx(machine.folder, text)
    nginx.check(block("Behind nginx or HAProxy 2"))
    machine.add_command(
        "systemctl", f'test "$*" = "reload nginx" && kill -HUP $(cat {machine.folder}/nginx.pid)'
    )
    with nginx.running(port):
        check_both_ways(server, port)
        check_http2(machine, port)
        wait_renewed(machine, port, "uringcore-nginx")
    assert server.stop() == 0


def test_behind_haproxy(machine):
    haproxy = debian("haproxy")
    server, inner = behind(machine)
    port = free_port()
    folder = machine.folder / "haproxy"
    folder.mkdir()
    text = adapted(
        block("/etc/haproxy/haproxy.cfg", port=port, inner=inner), {"/etc/haproxy": str(folder)}
    )
    (folder / "haproxy.cfg").write_text(text)
    machine.add_command("haproxy", f'exec {haproxy.path} "$@"')
    script = adapted(
        block("Behind nginx or HAProxy 3", tls=machine.tls), {"/etc/haproxy": str(folder)}
    )
    libraries = haproxy.environment.get("LD_LIBRARY_PATH", "")
    machine.shell(script, LD_LIBRARY_PATH=libraries)
    assert (folder / "example.org.pem").stat().st_mode & 0o777 == 0o600
    command = [haproxy.path, "-W", "-f", str(folder / "haproxy.cfg")]
    with running(command, haproxy.environment, port, folder / "log") as master:
        check_both_ways(server, port)
        check_http2(machine, port)
        machine.add_command("systemctl", f'test "$*" = "reload haproxy" && kill -USR2 {master.pid}')
        wait_renewed(machine, port, "uringcore-haproxy", **{"/etc/haproxy": str(folder)})
    assert (folder / "example.org.pem").stat().st_mode & 0o777 == 0o600
    assert server.stop() == 0


def test_several_machines_behind_nginx(machine):
    keys = machine.folder / "keys"
    keys.mkdir()
    lines = block("Several machines 1").split("uringcore app:app")
    changes = {"/etc/uringcore": str(keys), "--group=uringcore": f"--group={own_group()}"}
    machine.shell(adapted(lines[0], changes))
    assert (keys / "reset.key").stat().st_mode & 0o777 == 0o640
    servers = []
    for name in ("one", "two"):
        changes = {
            "/etc/uringcore/tls": str(machine.tls),
            "/etc/uringcore": str(keys),
            "443": str(free_port()),
            "--workers 4": "--workers 2",
        }
        command = adapted(f"uringcore app:app{lines[1]}", changes)
        servers.append(machine.serve(command, name))
    for server in servers:
        server.wait_http3(workers=2)
    port = free_port()
    first, second = servers
    changes = {
        "10.0.0.1:443": f"127.0.0.1:{first.port}",
        "10.0.0.2:443": f"127.0.0.1:{second.port}",
        "443": str(port),
    }
    nginx = Nginx(machine.folder, adapted(block("/etc/nginx/nginx.conf"), changes))
    nginx.check("nginx -t")
    with nginx.running(port):
        shown, _ = ask(port, first.certificate)
        assert shown["client"][0] == "127.0.0.1"

        async def through():
            url = f"https://localhost:{port}"
            async with connect_origin(url, cafile=first.certificate) as client:
                return [json.loads((await client.request("GET", "/")).content) for _ in range(3)]

        for shown in uringcore.run(through()):
            assert shown["http_version"] == "3"
    for server in servers:
        assert server.stop() == 0
