"""A server's sockets: busy ports, descriptors, systemd's, Unix sockets, a program's own."""

import contextlib
import http.client
import os
import signal
import socket
import ssl
import subprocess
import sys

import pytest

import uringcore
from tests.server.harness import APPLICATION, ROOT, STARTED, Server, command, environment
from tests.server.test_server_observability import METRICS_ON, fetch
from tests.server.worker_application import ask_once
from tests.support.child_processes import bound
from tests.support.free_ports import free_port
from uringcore.server._listening_sockets import bind_addresses, bind_unix, change_mode

ACTIVATED = """
import os, sys
fds = [os.dup2(int(fd), 100 + index) for index, fd in enumerate(os.environ["GIVEN"].split(","))]
for index, fd in enumerate(fds):
    os.dup2(fd, 3 + index)
os.environ["LISTEN_FDS"] = str(len(fds))
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.executable, [sys.executable, "-m", "uringcore", *sys.argv[1:]])
"""


@pytest.fixture
def files(certificate):
    return ["--ssl-certfile", certificate[0], "--ssl-keyfile", certificate[1]]


@pytest.fixture
def pair():
    """A TCP socket and a UDP socket on one port, which the server's own function has bound."""
    sockets = bind_addresses("127.0.0.1", 0, 0)
    with contextlib.closing(sockets):
        yield sockets.tcp[0], sockets.udp[0]


class Running(Server):
    """A server that inherits sockets."""

    def __init__(self, folder, certificate, arguments, program=None, **options):
        self.certificate, _ = certificate
        self._log = folder / "server.log"
        before = [sys.executable, "-m", "uringcore"] if program is None else program
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                bound([*before, *arguments]),
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
                **options,
            )

    def wait_http3(self):
        self.port = int(self.wait_log(STARTED).group(1))
        self.url = f"https://localhost:{self.port}"


@pytest.fixture
def run(tmp_path, certificate, files):
    started = []

    def start(*arguments, **options):
        options.setdefault("env", environment())
        options.setdefault("app", APPLICATION)
        app = options.pop("app")
        started.append(Running(tmp_path, certificate, [app, *files, *arguments], **options))
        return started[-1]

    yield start
    for running in started:
        running.kill()
        running.check_log()


def answers_http1(server):
    with server.http1() as connection:
        connection.request("GET", "/")
        response = connection.getresponse()
        assert response.read() == b"hello"
        return response.getheader("alt-svc")


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("kind", ["TCP", "UDP"])
def test_a_busy_port_is_named_before_anything_starts(files, kind, workers):
    type_ = socket.SOCK_STREAM if kind == "TCP" else socket.SOCK_DGRAM
    with socket.socket(socket.AF_INET, type_) as taken:
        port = free_port()
        taken.bind(("127.0.0.1", port))
        if kind == "TCP":
            taken.listen()
        done = command(APPLICATION, *files, "--port", str(port), "--workers", workers)
    output = done.stdout + done.stderr
    assert done.returncode == 3
    assert f"cannot listen on {kind} 127.0.0.1:{port}" in output
    assert "Address already in use" in output
    assert "LIFESPAN" not in output
    assert "Traceback" not in output


def test_a_busy_port_of_plain_http1_is_named_before_anything_starts():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = command(APPLICATION, "--port", str(port))
    output = done.stdout + done.stderr
    assert done.returncode == 3
    assert f"cannot listen on TCP 127.0.0.1:{port}: Address already in use" in output
    assert "LIFESPAN" not in output


def test_workers_of_two_servers_do_not_share_a_port(start, files):
    """Workers have several sockets on one port; a second server's sockets there would get some of the first
    one's clients.
    """
    server = start("--workers", "2")
    done = command(APPLICATION, *files, "--port", str(server.port), "--workers", "2")
    assert done.returncode == 3
    assert f"cannot listen on UDP 127.0.0.1:{server.port}" in done.stdout + done.stderr
    assert server.get("/").content == b"hello"


def test_fd_and_http3_fd(run, pair):
    tcp, udp = pair
    fds = [tcp.fileno(), udp.fileno()]
    idle = ("--host", "127.0.0.1", "--port", "1")
    server = run("--fd", str(fds[0]), "--http3-fd", str(fds[1]), *idle, pass_fds=fds)
    server.wait_http3()
    for option in ("--host", "--port"):
        assert f"{option} does nothing: --fd sets the address." in server.log()
    assert server.get("/").content == b"hello"
    assert answers_http1(server) == f'h3=":{server.port}"; ma=86400'
    assert server.stop() == 0


def test_fd_alone_names_the_missing_http3_option(run, pair):
    tcp, _ = pair
    server = run("--fd", str(tcp.fileno()), pass_fds=[tcp.fileno()])
    server.wait_log("Uvicorn running on socket")
    assert "HTTP/3 is off: beside --fd it needs --http3-port or --http3-fd." in server.log()
    server.port = tcp.getsockname()[1]
    assert answers_http1(server) is None


def test_fd_of_the_wrong_kind(files, pair):
    _, udp = pair
    number = str(udp.fileno())
    done = command(APPLICATION, *files, "--fd", number, pass_fds=[udp.fileno()])
    assert done.returncode == 3
    assert f"cannot listen on --fd {number}: it is not a stream socket" in done.stdout + done.stderr


def test_uds_beside_http3(run, tmp_path, certificate):
    path = tmp_path / "socket"
    server = run("--uds", str(path), "--http3-port", "0", "--host", "127.0.0.1", "--port", "1")
    server.wait_http3()
    # --host is in use for HTTP/3, so only --port is named.
    assert server.log().count("does nothing") == 1
    assert "--port does nothing: --uds sets the address." in server.log()
    assert server.get("/").content == b"hello"
    trust = ssl.create_default_context(cafile=certificate[0])
    with socket.socket(socket.AF_UNIX) as plain:
        plain.connect(str(path))
        with trust.wrap_socket(plain, server_hostname="localhost") as sock:
            connection = http.client.HTTPConnection("localhost")
            connection.sock = sock
            connection.request("GET", "/")
            response = connection.getresponse()
            assert response.read() == b"hello"
            assert response.getheader("alt-svc") == f'h3=":{server.port}"; ma=86400'
    assert server.stop() == 0
    assert not path.exists()


def test_an_invalid_uds_path(files):
    done = command(APPLICATION, *files, "--uds", "/nonexist/x")
    assert done.returncode == 3
    output = done.stdout + done.stderr
    assert "cannot listen on --uds /nonexist/x: No such file or directory" in output
    assert "Traceback" not in output


def activated(sockets, names=None):
    """Returns options for `run` that pass sockets as systemd does, from descriptor 3 on."""
    fds = [sock.fileno() for sock in sockets]
    env = environment() | {"GIVEN": ",".join(map(str, fds))}
    if names:
        env["LISTEN_FDNAMES"] = ":".join(names)
    return {"env": env, "pass_fds": fds, "program": [sys.executable, "-c", ACTIVATED]}


@pytest.mark.parametrize("order", [1, -1])
def test_sockets_of_systemd_are_distinguished_by_their_type(run, pair, order):
    server = run("--port", "1", **activated(pair[::order], ["one", "two"]))
    server.wait_http3()
    assert "--port does nothing: systemd sets the address." in server.log()
    assert server.port == pair[0].getsockname()[1]
    assert server.get("/").content == b"hello"
    assert answers_http1(server) == f'h3=":{server.port}"; ma=86400'
    assert server.stop() == 0


def test_systemd_without_a_udp_socket(run, pair):
    server = run(**activated(pair[:1]))
    server.wait_log("running on sockets of systemd")
    assert "HTTP/3 is off: there is no UDP socket among those given." in server.log()
    server.port = pair[0].getsockname()[1]
    assert answers_http1(server) is None


def test_workers_on_tcp_sockets_of_systemd_with_a_port_for_http3(run, pair):
    tcp, udp = pair
    udp.close()
    port = tcp.getsockname()[1]
    server = run("--workers", "2", "--http3-port", str(port), **activated([tcp]))
    server.wait_http3()
    assert server.port == port
    assert answers_http1(server) == f'h3=":{port}"; ma=86400'
    assert server.get("/").content == b"hello"


def test_workers_with_one_udp_socket_serve_without_http3(run, pair):
    server = run("--workers", "2", **activated(pair))
    server.wait_log("Application startup complete")
    assert "HTTP/3 is off: several workers cannot share a UDP socket" in server.log()
    server.port = pair[0].getsockname()[1]
    server.wait_listening()
    assert answers_http1(server) is None


def test_environment_of_another_process_is_not_meant(run, pair):
    env = environment() | {"LISTEN_FDS": "1", "LISTEN_PID": "1"}
    server = run("--port", "0", env=env)
    server.wait_http3()
    assert server.port != pair[0].getsockname()[1]


GIVEN = """
import sys
from uringcore.server import Config
from uringcore.server._server import Server
from uringcore.server._listening_sockets import bind_addresses

certificate, key, kinds = sys.argv[1:]
bound = bind_addresses("127.0.0.1", 0, 0)
given = {"tcp": bound.tcp[0], "udp": bound.udp[0]}
print("PORT", given["udp"].getsockname()[1], flush=True)
files = {"ssl_certfile": certificate, "ssl_keyfile": key}
config = Config("tests.server.application:app", metrics_port=0, **files)
Server(config).run(sockets=[given[kind] for kind in kinds.split(",")])
"""


@pytest.mark.parametrize("kinds", ["tcp,udp", "udp,tcp", "tcp"])
def test_a_program_gives_sockets(tmp_path, certificate, kinds):
    program = [sys.executable, "-c", GIVEN]
    server = Running(tmp_path, certificate, [*certificate, kinds], program, env=environment())
    try:
        server.port = int(server.wait_log(r"PORT (\d+)").group(1))
        server.wait_log("Application startup complete")
        if "udp" in kinds:
            server.wait_http3()
            assert server.get("/").content == b"hello"
            assert answers_http1(server) == f'h3=":{server.port}"; ma=86400'
        else:
            assert "HTTP/3 is off: there is no UDP socket among those given." in server.log()
            server.url = f"https://localhost:{server.port}"
            server.wait_listening()
            assert answers_http1(server) is None
        assert fetch(int(server.wait_log(METRICS_ON)[1]), "/metrics")[0] == 200
        assert server.stop() == 0
    finally:
        server.kill()


def test_reload_keeps_the_ports(run, tmp_path):
    """A changed file starts a new process on the inherited sockets; clients reconnect."""
    folder = tmp_path / "watched"
    folder.mkdir()
    watched = folder / "module.py"
    watched.write_text("first = 1\n")
    server = run(
        "--port",
        "0",
        "--reload",
        "--reload-dir",
        str(folder),
        app="tests.server.worker_application:app",
    )
    server.wait_http3()
    before = uringcore.run(ask_once(server))[0]
    watched.write_text("second = 2\n")
    # The reloader's first scan may come later, and it takes the files as they are then. So change the file
    # again.
    for later in range(60):
        os.utime(watched, (2_000_000_000 + later, 2_000_000_000 + later))
        with contextlib.suppress(AssertionError):
            server.wait_log("Reloading", seconds=1)
            break
    server.wait_log(r"(?s)HTTP/3 running on UDP port (\d+).*HTTP/3 running on UDP port \1")
    assert uringcore.run(ask_once(server))[0] != before
    with server.http1() as connection:
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
    assert server.stop(signal.SIGTERM) == 0


def test_uds_goes_through_no_link(tmp_path):
    """It neither replaces a socket of another program nor changes the mode of a link's target."""
    theirs, precious, link = tmp_path / "theirs", tmp_path / "precious", tmp_path / "link"
    precious.write_bytes(b"precious")
    precious.chmod(0o600)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(theirs))
        for target in (theirs, precious, tmp_path / "absent"):
            link.symlink_to(target)
            with pytest.raises(OSError, match="Address already in use"):
                bind_unix(str(link))
            assert link.is_symlink()
            link.unlink()
    assert precious.stat().st_mode & 0o777 == 0o600
    with pytest.raises(OSError, match="replaced the socket"):
        change_mode(str(precious), 0o666)
    assert precious.stat().st_mode & 0o777 == 0o600
    bind_unix(str(link)).close()
    assert link.stat().st_mode & 0o777 == 0o666
    # The new socket keeps the mode of its predecessor.
    link.chmod(0o660)
    bind_unix(str(link)).close()
    assert link.stat().st_mode & 0o777 == 0o660
