"""docs/deploy.md: direct exposure, several machines, keys, certificates, kernel settings, monitoring.

Proxies, systemd and containers have files of their own.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from tests.server.deployment_guide import (
    BLOCKS,
    PAGE,
    PROFILE,
    Machine,
    adapted,
    block,
    served_over_tcp,
)
from tests.support.certificates import local
from tests.support.free_ports import free_port
from tests.support.interpreter_roles import is_default_interpreter
from uringcore.devcert import DevelopmentCertificate
from uringcore.server._quic_listener import warn_about_small_buffers

pytestmark = pytest.mark.skipif(
    not is_default_interpreter(), reason="a deployment does not depend on the interpreter"
)
HERE = Path(__file__).parent

RUN_BY = {
    "Without a proxy 1": "test_deploy.py::test_behind_nothing",
    "Without a proxy 2": "test_deploy.py::test_behind_nothing",
    "HTTP/2 1": "test_deploy.py::test_http2",
    "/etc/systemd/system/uringcore.service": "test_deploy_systemd.py::test_a_service_with_workers",
    "systemd 1": "test_deploy_systemd.py::test_a_service_with_workers",
    "/etc/systemd/system/uringcore-activated.socket": "test_deploy_systemd.py::test_sockets_of_systemd",
    "/etc/systemd/system/uringcore-activated.service": "test_deploy_systemd.py::test_sockets_of_systemd",
    "systemd 2": "test_deploy_systemd.py::test_sockets_of_systemd",
    "Behind nginx or HAProxy 1": "test_deploy_proxies.py::test_behind_nginx",
    "/etc/nginx/conf.d/app.conf": "test_deploy_proxies.py::test_behind_nginx",
    "Behind nginx or HAProxy 2": "test_deploy_proxies.py::test_behind_nginx",
    "/etc/haproxy/haproxy.cfg": "test_deploy_proxies.py::test_behind_haproxy",
    "Behind nginx or HAProxy 3": "test_deploy_proxies.py::test_behind_haproxy",
    "/etc/nginx/nginx.conf": "test_deploy_proxies.py::test_several_machines_behind_nginx",
    "Several machines 1": "test_deploy_proxies.py::test_several_machines_behind_nginx",
    "Dockerfile": "test_deploy_containers.py::test_an_image_is_built",
    "Containers 1": "test_deploy_containers.py::test_a_container_runs_on_epoll",
    "Containers 2": "test_deploy_containers.py::test_a_container_with_the_profile_has_io_uring",
    "app.yaml": "test_deploy_containers.py::test_kubernetes_takes_the_manifest",
    "Kubernetes 1": "test_deploy_containers.py::test_a_pod_serves_with_its_secrets",
    "/etc/sysctl.d/90-uringcore.conf": "test_deploy.py::test_kernel_settings",
    "Kernel settings 1": "test_deploy.py::test_kernel_settings",
    "Memory 1": "test_deploy.py::test_memory",
    "/etc/letsencrypt/renewal-hooks/deploy/uringcore": "test_deploy.py::test_certbots_hook",
    "/etc/letsencrypt/renewal-hooks/deploy/uringcore-nginx": "test_deploy_proxies.py::test_behind_nginx",
    "/etc/letsencrypt/renewal-hooks/deploy/uringcore-haproxy": "test_deploy_proxies.py::test_behind_haproxy",
    "Observability 1": "test_deploy.py::test_seen_from_outside",
}
"""Each block of the page, with the test or function that runs it."""


@pytest.fixture
def machine(tmp_path, certificate):
    made = Machine(tmp_path, certificate)
    yield made
    made.close()


def test_every_block_is_run():
    assert set(RUN_BY) == set(BLOCKS)
    for where in set(RUN_BY.values()):
        file, _, name = where.partition("::")
        functions = [
            node.name
            for node in ast.walk(ast.parse((HERE / file).read_text()))
            if isinstance(node, ast.FunctionDef)
        ]
        assert name in functions, where


def test_no_command_stands_outside_of_a_block():
    """Inline code may only name programs, options and output."""
    text = re.sub(r"^```.*?^```$", "", PAGE.read_text(), flags=re.M | re.S)
    for code in re.findall(r"`([^`]+)`", text):
        program, _, rest = code.partition(" ")
        is_name = code in ("uringcore app:app", "systemctl reload")
        assert not rest or is_name or not shutil.which(program), code


def test_links_of_the_page_exist():
    links = re.findall(r"\]\(([^)]+)\)", PAGE.read_text())
    headings = {
        line[3:].lower().replace(" ", "-")
        for line in PAGE.read_text().splitlines()
        if line.startswith("## ")
    }
    for link in links:
        if link.startswith("#"):
            assert link[1:] in headings
        else:
            assert (PAGE.parent / link.partition("#")[0]).exists(), link
    assert PROFILE.name in links


def test_behind_nothing(machine):
    port = free_port()
    command = block("Without a proxy 1", port=port, tls=machine.tls, workers="--workers 2")
    server = machine.serve(command)
    server.wait_http3(workers=2)
    assert server.port == port
    for host in ("localhost", "127.0.0.1", "[::1]"):
        script = block("Without a proxy 2", site=f"{host}:{port}")
        trusting = adapted(
            script, {"uringcore get": f"uringcore get --cacert {machine.certificate}"}
        )
        said = machine.shell(trusting)
        assert f'alt-svc: h3=":{port}"; ma=86400' in said
        assert '"http_version": "2"' in said
        assert '"http_version": "3"' in said
    assert server.stop() == 0


def test_http2(machine):
    port = free_port()
    server = machine.serve(
        block("Without a proxy 1", port=port, tls=machine.tls, workers="--workers 2")
    )
    server.wait_http3(workers=2)
    script = block("HTTP/2 1", site=f"localhost:{port}")
    trusting = adapted(script, {"uringcore get": f"uringcore get --cacert {machine.certificate}"})
    said = machine.shell(trusting)
    for version in ("1.1", "2", "3"):
        assert f'"http_version": "{version}"' in said
    assert said.count(f'alt-svc: h3=":{port}"; ma=86400') == 2
    assert server.stop() == 0


def test_memory(machine):
    port = free_port()
    tls = {"443": str(port), "/etc/uringcore/tls": str(machine.tls)}
    command = adapted(BLOCKS["Memory 1"], {**tls, "--workers 4": "--workers 2"})
    server = machine.serve(command)
    server.wait_http3(workers=2)
    assert server.get("/").status == 200
    assert server.stop() == 0


def test_seen_from_outside(machine):
    port, metrics_port = free_port(), free_port()
    command, look = BLOCKS["Observability 1"].split("curl")
    changes = {
        "443": str(port),
        "9090": str(metrics_port),
        "--workers 4": "--workers 2",
        "/etc/uringcore/tls": str(machine.tls),
    }
    server = machine.serve(adapted(command, changes))
    server.wait_http3(workers=2)
    assert server.get("/").status == 200
    metrics = machine.shell(f"curl{adapted(look, {'9090': str(metrics_port)})}")
    assert 'http_version="3"' in metrics
    assert "uringcore_process_open_files" in metrics
    # On the public port, every path belongs to the application.
    shown = machine.shell(f"curl --silent --show-error https://localhost:{port}/metrics")
    assert json.loads(shown)["http_version"] == "2"
    assert json.loads(server.get("/metrics").content)["http_version"] == "3"
    requests = [json.loads(line) for line in server.log().splitlines() if "GET" in line]
    assert requests


def test_kernel_settings(tmp_path):
    file = tmp_path / "90-uringcore.conf"
    file.write_text(BLOCKS["/etc/sysctl.d/90-uringcore.conf"])
    load, ask = block("Kernel settings 1").splitlines()
    load = adapted(load, {"/etc/sysctl.d/90-uringcore.conf": str(file)})
    settings = dict(
        line.split(" = ") for line in file.read_text().splitlines() if not line.startswith("#")
    )
    now = {key: Path("/proc/sys", *key.split(".")).read_text().strip() for key in settings}
    # The test must not change the machine's settings.
    if os.geteuid() or now != settings:
        load = adapted(load, {"sysctl": "sysctl --dry-run"})
    path = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    done = subprocess.run(
        ["sh", "-euc", load], env=path, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{key} = {value}" for key, value in settings.items()]
    release = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
    if release >= (6, 6):
        done = subprocess.run(
            ["sh", "-euc", ask], env=path, capture_output=True, text=True, timeout=100
        )
        assert re.fullmatch(r"kernel.io_uring_disabled = [012]\n", done.stdout), done


def test_a_socket_with_small_buffers_causes_a_log_message(caplog):
    """The message names the setting to raise, and its value."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, 212_992 // 2)
        with caplog.at_level("INFO", "uvicorn.error"):
            warn_about_small_buffers(sock)
    (said,) = caplog.messages
    for line in BLOCKS["/etc/sysctl.d/90-uringcore.conf"].splitlines()[1:]:
        setting, value = line.split(" = ")
        assert setting in said
        assert value in said


def wait_for_certificate(server, certfile, workers=1):
    """Waits until all processes have the certificate, and checks it with a client of each protocol."""
    server.wait_log(r"(?s)" + ".*".join(["Certificate reloaded from"] * workers))
    assert served_over_tcp(server.port) == ssl.PEM_cert_to_DER_cert(Path(certfile).read_text())
    server.certificate = certfile
    assert server.get("/").status == 200


@pytest.mark.parametrize("arguments", ["", "--workers 2"])
def test_certbots_hook(machine, arguments):
    """Certbot runs this with the renewed files, and with no other environment."""
    port = free_port()
    command = block("Without a proxy 1", port=port, tls=machine.tls, workers=arguments)
    server = machine.serve(command)
    server.wait_http3(workers=2 if arguments else 1)
    certfile = machine.renew(["uringcore"], {})
    assert (machine.tls / "privkey.pem").stat().st_mode & 0o777 == 0o640
    wait_for_certificate(server, str(certfile), workers=2 if arguments else 1)
    assert server.stop() == 0


def test_a_certificate_of_another_key_changes_nothing(machine):
    port = free_port()
    server = machine.serve(block("Without a proxy 1", port=port, tls=machine.tls, workers=""))
    server.wait_http3()
    before = served_over_tcp(server.port)
    other = local(machine.folder).certfile
    shutil.copy(other, machine.tls / "new.pem")
    os.replace(machine.tls / "new.pem", machine.certificate)
    server.wait_log("The certificate was not reloaded")
    assert served_over_tcp(server.port) == before


def test_sighup_reads_the_certificate_at_once(machine):
    port = free_port()
    server = machine.serve(block("Without a proxy 1", port=port, tls=machine.tls, workers=""))
    server.wait_http3()
    server.send_signal(signal.SIGHUP)
    server.wait_log("Certificate reloaded from")
    assert server.get("/").status == 200


def test_a_renewed_secret_of_kubernetes_is_taken_up(tmp_path, certificate):
    """kubelet makes each file a link through another link, which it replaces."""
    machine = Machine(tmp_path, certificate)
    try:
        volume = tmp_path / "volume"
        renewals = []
        for name in ("first", "second"):
            folder = volume / f"..{name}"
            folder.mkdir(parents=True)
            certfile, keyfile = DevelopmentCertificate.make().write(folder)
            shutil.move(certfile, folder / "tls.crt")
            shutil.move(keyfile, folder / "tls.key")
            renewals.append(folder)
        (volume / "..data").symlink_to("..first")
        for name in ("tls.crt", "tls.key"):
            (volume / name).symlink_to(f"..data/{name}")
        machine.certificate = volume / "tls.crt"
        server = machine.serve(
            f"uringcore app:app --host '' --port {free_port()} "
            f"--ssl-certfile {volume}/tls.crt --ssl-keyfile {volume}/tls.key"
        )
        server.wait_http3()
        assert server.get("/").status == 200
        (volume / "..new").symlink_to("..second")
        os.replace(volume / "..new", volume / "..data")
        wait_for_certificate(server, str(renewals[1] / "tls.crt"))
    finally:
        machine.close()
