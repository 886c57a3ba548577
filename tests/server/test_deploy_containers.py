"""docs/deploy.md in containers: the image, `docker run`, the seccomp profile, Kubernetes.

The test needs no container engine: `docker` talks to a daemon of the test, and the commands that it would
start run here, under the seccomp filter that an engine would make from the profile.
"""

from __future__ import annotations

import base64
import ctypes
import errno
import fnmatch
import http.client
import json
import os
import re
import shutil
import ssl
import subprocess
import sys

import pytest

import uringcore
from tests.server.deployment_guide import BLOCKS, PROFILE, TLS, Machine, adapted, block
from tests.server.harness import ROOT
from tests.support.fake_docker import Daemon
from tests.support.free_ports import free_port
from tests.support.interpreter_roles import is_default_interpreter

pytestmark = pytest.mark.skipif(
    not is_default_interpreter(), reason="containers do not depend on the interpreter"
)

needs_docker = pytest.mark.skipif(shutil.which("docker") is None, reason="docker is not installed")


def has_libseccomp():
    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return False
    return True


needs_seccomp = pytest.mark.skipif(not has_libseccomp(), reason="libseccomp is not installed")

NAMES = ("io_uring_setup", "io_uring_enter", "io_uring_register")


@pytest.fixture
def machine(tmp_path, certificate):
    made = Machine(tmp_path, certificate)
    # As certbot's hook leaves the key: readable by root and a group.
    (made.tls / "privkey.pem").chmod(0o640)
    yield made
    made.close()


def default_profile():
    """Returns a profile that forbids io_uring, as those of Docker, Podman and Kubernetes do."""
    profile = json.loads(PROFILE.read_text())
    for rule in profile["syscalls"]:
        rule["names"] = [name for name in rule["names"] if name not in NAMES]
    profile["syscalls"] = [rule for rule in profile["syscalls"] if rule["names"]]
    # These profiles refuse calls with EPERM, except calls that libraries try first (clone3).
    profile["syscalls"].append(
        {"names": list(NAMES), "action": "SCMP_ACT_ERRNO", "errnoRet": errno.EPERM}
    )
    return profile


def under(machine, profile, command):
    """Returns the command as it runs in a container with this profile."""
    file = machine.folder / "profile.json"
    file.write_text(json.dumps(profile))
    return f"'{sys.executable}' -m tests.support.seccomp '{file}' {command}"


def quoted(words):
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)


def asked_of_docker(machine, script):
    """Returns the daemon with the containers that the script created, by name."""
    script = adapted(script, {f"{TLS}/privkey.pem": str(machine.tls / "privkey.pem")})
    with Daemon(machine.folder) as daemon:
        machine.shell(
            script, DOCKER_HOST=daemon.host, DOCKER_BUILDKIT="0", HOME=str(machine.folder)
        )
        assert daemon.started == list(daemon.created)
        return daemon


def instructions():
    """Returns the Dockerfile's instructions, with continued lines joined."""
    lines = BLOCKS["Dockerfile"].replace("\\\n", "").splitlines()[1:]
    return [line.partition(" ")[::2] for line in lines if line]


def start(machine, container, profile):
    """Runs the container's command on a port of its own; returns the server."""
    image = dict(instructions())
    entry = json.loads(image["ENTRYPOINT"])
    given = container.get("Cmd") or json.loads(image["CMD"])
    ports = container["HostConfig"]["PortBindings"]
    assert ports == {
        "8443/tcp": [{"HostIp": "", "HostPort": "443"}],
        "8443/udp": [{"HostIp": "", "HostPort": "443"}],
    }
    assert container["StopTimeout"] == 45
    assert container["HostConfig"]["Init"]
    assert container["HostConfig"]["Binds"] == [f"{TLS}:/run/tls:ro"]
    # The image's user has to be able to read the key.
    key = (machine.tls / "privkey.pem").stat()
    assert container["HostConfig"]["GroupAdd"] == [str(key.st_gid)]
    command = adapted(
        quoted([*entry, *given]), {"8443": str(free_port()), "/run/tls": str(machine.tls)}
    )
    command = under(machine, profile, command)
    server = machine.serve(command, PYTHONPATH=f"{ROOT}:{machine.environment['PYTHONPATH']}")
    server.wait_http3()
    check_answers(server)
    return server


def check_answers(server):
    """Checks both protocols; `Alt-Svc` names the published port."""
    assert json.loads(server.get("/").content)["http_version"] == "3"
    trust = ssl.create_default_context(cafile=server.certificate)
    connection = http.client.HTTPSConnection("localhost", server.port, context=trust, timeout=30)
    connection.request("GET", "/healthz")
    response = connection.getresponse()
    assert response.status == 200
    assert response.getheader("alt-svc") == 'h3=":443"; ma=86400'
    connection.close()


@needs_docker
def test_an_image_is_built(machine):
    """The daemon receives the Dockerfile, the application and a wheel; the extra in the Dockerfile exists in
    this package.
    """
    (machine.folder / "image").mkdir()
    (machine.folder / "image" / "Dockerfile").write_text(BLOCKS["Dockerfile"])
    shutil.copy(machine.folder / "app.py", machine.folder / "image")
    wheel = "uringcore-1.0-cp313-cp313-linux_x86_64.whl"
    (machine.folder / "image" / wheel).touch()
    build = block("Containers 1").splitlines()[0]
    with Daemon(machine.folder) as daemon:
        machine.shell(f"cd image && {build}", DOCKER_HOST=daemon.host, DOCKER_BUILDKIT="0")
    assert daemon.built["app"].keys() == {"Dockerfile", "app.py", wheel}
    known = {"FROM", "RUN", "WORKDIR", "COPY", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}
    assert {word for word, _ in instructions()} == known
    (run,) = [rest for word, rest in instructions() if word == "RUN"]
    # The package comes from a file: its name on the public index belongs to another author.
    install = r'pip install --no-cache-dir "\$\(ls (/wheels/)\*\.whl\)\[(\w+)\]"'
    folder, extra = re.fullmatch(install, run).groups()
    copies = [rest.split() for word, rest in instructions() if word == "COPY"]
    pattern = next(source for source, target in copies if target == folder)
    assert fnmatch.fnmatch(wheel, pattern)
    project = (ROOT / "pyproject.toml").read_text()
    assert f'name = "{pattern.partition("-")[0]}"' in project
    assert re.search(rf"^{extra} = \[", project, re.M)


@needs_docker
@needs_seccomp
def test_a_container_runs_on_epoll(machine):
    _, run = block("Containers 1").split("\n", 1)
    daemon = asked_of_docker(machine, run)
    container = daemon.created["app"]
    assert not container["HostConfig"]["SecurityOpt"]
    server = start(machine, container, default_profile())
    said = server.log()
    assert "io_uring is not available, using epoll: " in said
    assert f"HTTP/3 running on UDP port {server.port} (epoll)" in said
    assert server.stop() == 0


@needs_docker
@needs_seccomp
def test_a_container_with_the_profile_has_io_uring(machine):
    shutil.copy(PROFILE, machine.folder)
    daemon = asked_of_docker(machine, block("Containers 2"))
    container = daemon.created["app-uring"]
    (option,) = container["HostConfig"]["SecurityOpt"]
    name, _, profile = option.partition("=")
    assert name == "seccomp"
    assert json.loads(profile) == json.loads(PROFILE.read_text())
    uringcore.new_event_loop(backend="uring").close()
    server = start(machine, container, json.loads(profile))
    assert f"HTTP/3 running on UDP port {server.port} (uring)" in server.log()
    assert server.stop() == 0


@needs_seccomp
def test_workers_run_under_the_profile(machine):
    port = free_port()
    command = block("Without a proxy 1", port=port, tls=machine.tls, workers="--workers 2")
    server = machine.serve(
        under(machine, json.loads(PROFILE.read_text()), command),
        PYTHONPATH=f"{ROOT}:{machine.environment['PYTHONPATH']}",
    )
    server.wait_http3(workers=2)
    assert server.get("/").status == 200
    assert server.stop() == 0


@needs_seccomp
def test_insisting_on_io_uring_where_it_is_forbidden_is_one_line(machine):
    command = under(
        machine, default_profile(), f"uringcore app:app --port {free_port()} --backend uring"
    )
    environment = {
        **machine.environment,
        "PYTHONPATH": f"{ROOT}:{machine.environment['PYTHONPATH']}",
    }
    done = subprocess.run(
        ["sh", "-euc", f"exec {command}"],
        cwd=machine.folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    output = done.stdout + done.stderr
    assert done.returncode != 0
    assert "seccomp" in output
    assert "Traceback" not in output


REFUSED = """
import ctypes, errno, socket
libc = ctypes.CDLL(None, use_errno=True)
def refused(result):
    assert result == -1, result
    return ctypes.get_errno()
print("unshare", refused(libc.unshare(0x10000000)))
print("mount", refused(libc.mount(b"none", b"/nowhere", b"tmpfs", 0, None)))
print("ptrace", refused(libc.ptrace(0, 0, None, None)))
print("bpf", refused(libc.syscall(321, 0, None, 0)))
print("add_key", refused(libc.syscall(248, None, None, None, 0, 0)))
raw, stream = socket.SOCK_RAW, socket.SOCK_STREAM
for family, kind in (
    *((socket.AF_PACKET, raw), (socket.AF_INET, raw), (socket.AF_INET6, raw)),
    *((socket.AF_VSOCK, stream), (socket.AF_ALG, stream)),
):
    try:
        socket.socket(family, kind)
    except OSError as exc:
        print(family.name, exc.errno)
"""


@needs_seccomp
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the system call numbers are x86-64's")
def test_calls_that_the_profile_refuses(machine):
    (machine.folder / "refused.py").write_text(REFUSED)
    command = under(machine, json.loads(PROFILE.read_text()), f"'{sys.executable}' refused.py")
    said = machine.shell(command, PYTHONPATH=str(ROOT))
    names = ("unshare", "mount", "ptrace", "bpf", "add_key")
    families = ("AF_PACKET", "AF_INET", "AF_INET6", "AF_VSOCK", "AF_ALG")
    assert said.splitlines() == [f"{name} 38" for name in (*names, *families)]


def documents():
    """Returns the manifest's documents."""
    yaml = pytest.importorskip("yaml")
    return list(yaml.safe_load_all(BLOCKS["app.yaml"]))


def test_kubernetes_takes_the_manifest():
    """Checked against the schema of Kubernetes' API."""
    validate = pytest.importorskip("kubernetes_validate")
    for document in documents():
        validate.validate(document, validate.latest_version(), strict=True)


def test_the_manifest_fits_together():
    deployment, service = documents()
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    ports = {port["name"]: (port["containerPort"], port["protocol"]) for port in container["ports"]}
    assert ports == {"https": (8443, "TCP"), "http3": (8443, "UDP")}
    served = {
        (one["port"], one["protocol"], ports[one["targetPort"]]) for one in service["spec"]["ports"]
    }
    assert served == {(443, "TCP", (8443, "TCP")), (443, "UDP", (8443, "UDP"))}
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    for probe in ("readinessProbe", "livenessProbe"):
        asked = container[probe]["httpGet"]
        assert (ports[asked["port"]][1], asked["scheme"]) == ("TCP", "HTTPS")
    before_end = container["lifecycle"]["preStop"]["exec"]["command"]
    assert shutil.which(before_end[0])
    graceful = 30  # --timeout-graceful-shutdown
    # While the server drains, requests still reach the pod until the grace period ends.
    probe = container["readinessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] > graceful
    limit = pod["spec"]["terminationGracePeriodSeconds"]
    assert limit > graceful + int(before_end[1]) + 10
    profile = pod["spec"]["securityContext"]["seccompProfile"]["localhostProfile"]
    assert f"/var/lib/kubelet/seccomp/{profile}" in (ROOT / "docs" / "deploy.md").read_text()
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted.keys() == {volume["name"] for volume in pod["spec"]["volumes"]}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_a_pod_serves_with_its_secrets(machine):
    """The secrets that `kubectl` makes contain the files that the container needs."""
    yaml = pytest.importorskip("yaml")
    (machine.folder / "keys").mkdir()
    (machine.folder / "keys" / "token.key").write_bytes(os.urandom(32))
    changes = {
        "/etc/uringcore/tls": str(machine.tls),
        "/etc/uringcore": str(machine.folder / "keys"),
    }
    machine.shell(adapted(block("Kubernetes 1"), changes), KUBECONFIG="/nonexistent")
    (container,) = documents()[0]["spec"]["template"]["spec"]["containers"]
    volumes = {
        volume["secret"]["secretName"]: volume["name"]
        for volume in documents()[0]["spec"]["template"]["spec"]["volumes"]
    }
    places = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    folders = {}
    for file in ("app-quic.yaml", "app-tls.yaml"):
        secret = yaml.safe_load((machine.folder / file).read_text())
        folder = machine.folder / secret["metadata"]["name"]
        folder.mkdir()
        for name, content in secret["data"].items():
            (folder / name).write_bytes(base64.b64decode(content))
        folders[places[volumes[secret["metadata"]["name"]]]] = str(folder)
    entry = json.loads(dict(instructions())["ENTRYPOINT"])
    command = quoted([*entry, *container["args"]])
    server = machine.serve(adapted(command, {**folders, "8443": str(free_port())}))
    server.wait_http3()
    check_answers(server)
    assert server.stop() == 0
