"""Several workers on one port: distribution, the death of one, and a rolling restart without lost
requests.
"""

import asyncio
import contextlib
import fcntl
import glob
import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import termios
import threading
import time
import types
import urllib.request

import pytest

import uringcore
from examples.aioquic_peer import connect_peer
from tests.server.conftest import CROWD, backends
from tests.server.harness import ROOT, command, environment
from tests.server.worker_application import ask, ask_once, eventually, processes
from tests.support.child_processes import bound
from uringcore.quic.logger import QuicLogger

pytestmark = pytest.mark.either_backend

UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def session_folders(pid):
    """Returns the directories in which a process keeps shared sessions."""
    for entry in glob.glob(f"/proc/{pid}/fd/*"):
        # The descriptor may be closed by now.
        with contextlib.suppress(FileNotFoundError):
            if "uringcore-sessions" in (name := os.readlink(entry)):
                yield os.path.dirname(name)


async def gone(pid):
    async def is_gone():
        return not is_alive(pid)

    await eventually(is_gone, f"process {pid} ends")


@pytest.mark.parametrize("backend", backends())
def test_all_workers_answer_over_both_protocols(crowd, backend):
    server = crowd(backend=backend, workers=3)
    found = uringcore.run(processes(server, 3))
    parents = set()
    over_tcp = set()
    deadline = time.monotonic() + 60
    while not over_tcp >= found and time.monotonic() < deadline:
        # These connections are open at the same time, so that no worker gets all of them.
        with contextlib.ExitStack() as stack:
            for connection in [stack.enter_context(server.http1()) for _ in range(12)]:
                connection.request("GET", "/sleep/0.05")
                pid, parent = json.loads(connection.getresponse().read())
                over_tcp.add(pid)
                parents.add(parent)
    assert over_tcp == found
    assert parents == {server.process.pid}
    assert server.stop() == 0
    assert server.log().count("LIFESPAN ends") == 3


def test_workers_without_a_certificate_serve_http1(start):
    server = start("--workers", "2", app=CROWD, certificate=(None, None), backend=None, http3=False)
    server.wait_log("Application startup complete")
    server.wait_listening()
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/", timeout=60) as response:
        assert json.loads(response.read())[1] == server.process.pid
    assert "HTTP/3 is off: it needs a certificate" in server.log()
    assert server.stop() == 0


@pytest.mark.parametrize("backend", backends())
def test_a_connection_stays_with_its_worker_when_the_client_moves(crowd, backend):
    server = crowd(backend=backend, workers=3)

    async def main():
        seen = set()
        while len(seen) < 2:
            async with ask(server) as client:
                first = await client.get("/")
                for _ in range(4):
                    await client.migrate()
                    assert await client.get("/") == first
                seen.add(first[0])

    uringcore.run(main())


@pytest.mark.parametrize("backend", backends())
def test_a_session_is_resumed_and_a_token_believed_by_whichever_worker(crowd, backend):
    server = crowd("--http3-retry", "always", backend=backend)

    async def visit(**shown):
        tickets, tokens = [], []
        logger = QuicLogger()
        async with ask(
            server,
            session_ticket_handler=tickets.append,
            token_handler=tokens.append,
            quic_logger=logger,
            **shown,
        ) as client:
            pid, _ = await client.get("/")

            async def given():
                return tickets and tokens

            await eventually(given, "a ticket and a token")
            # The store's thread saves the session during this time.
            await client.get("/sleep/0.1")
            was_resumed = client.resumed
        retried = '"retry"' in json.dumps(logger.to_dict())
        return pid, {"session_ticket": tickets[0], "token": tokens[0]}, (was_resumed, retried)

    async def elsewhere():
        """Returns true if one worker accepted a ticket that another had issued."""
        first, shown, outcome = await visit()
        assert outcome == (False, True)
        second, _, outcome = await visit(**shown)
        return second != first and outcome == (True, False)

    uringcore.run(eventually(elsewhere, "a session resumed by another worker"))


@pytest.mark.parametrize("backend", backends())
def test_a_worker_that_dies_is_replaced_and_the_connections_of_others_go_on(crowd, backend):
    server = crowd(backend=backend)

    async def main():
        async with contextlib.AsyncExitStack() as stack:
            clients = {}
            while len(clients) < 2:
                client = await stack.enter_async_context(ask(server))
                pid, _ = await client.get("/")
                clients.setdefault(pid, client)
            (killed, lost), (other, kept) = clients.items()
            answer = asyncio.ensure_future(kept.get("/sleep/1"))
            os.kill(killed, signal.SIGKILL)
            # No waiting: the other worker answers at once.
            for _ in range(10):
                await ask_once(server)
            assert (await answer)[0] == other

            async def another():
                return (await ask_once(server))[0] not in clients

            await eventually(another, "a new worker answers")
            assert (await kept.get("/"))[0] == other
            # The new worker answered its first packet with a stateless reset.
            with pytest.raises(ConnectionError):
                await lost.get("/")

    uringcore.run(main())
    assert "Child process [" in server.log()
    assert "died (signal 9)" in server.log()
    assert server.stop() == 0


class Load:
    """Threads that send requests continuously, on a new connection for each or on a kept one."""

    def __init__(self, server):
        self.server = server
        self.failures = []
        self.answers = 0
        self.pids = set()
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=run)
            for run in (self._http1_each, self._http1_kept, self._http3_each)
        ]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc):
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _count(self, what, pid):
        self.answers += 1
        self.pids.add(pid)

    def _http1_each(self):
        while not self._is_over.is_set():
            try:
                with self.server.http1() as connection:
                    connection.request("GET", "/")
                    self._count("h1", json.loads(connection.getresponse().read())[0])
            except Exception as exc:
                self.failures.append(("http1 each", repr(exc)))

    def _http1_kept(self):
        trust = ssl.create_default_context(cafile=self.server.certificate)
        connection = http.client.HTTPSConnection("localhost", self.server.port, context=trust)
        while not self._is_over.is_set():
            try:
                # `http.client` reconnects by itself after a "connection: close".
                connection.request("GET", "/")
                self._count("h1", json.loads(connection.getresponse().read())[0])
            except Exception as exc:
                connection.close()
                self.failures.append(("http1 kept", repr(exc)))
        connection.close()

    def _http3_each(self):
        async def main():
            while not self._is_over.is_set():
                try:
                    self._count("h3", (await ask_once(self.server))[0])
                except Exception as exc:
                    self.failures.append(("http3 each", repr(exc)))

        uringcore.run(main())


@pytest.mark.parametrize("backend", backends())
@pytest.mark.parametrize("workers", [1, 2])
def test_sighup_replaces_all_workers_and_no_request_is_lost(crowd, workers, backend):
    """Requests succeed even on connections older than the successor of their worker."""
    server = crowd(backend=backend)
    if workers == 1:
        server.send_signal(signal.SIGTTOU)
        server.wait_log("Finished server process")

    async def main():
        before = await processes(server, workers)
        async with ask(server) as old:
            slow = asyncio.ensure_future(old.get("/sleep/2"))
            pid = (await old.get("/"))[0]
            with Load(server) as load:
                server.send_signal(signal.SIGHUP)

                async def told():
                    return old.goaway

                await eventually(told, "GOAWAY")
                assert (await slow)[0] == pid
                await gone(pid)

                async def all_new():
                    return len(load.pids - before) >= workers

                await eventually(all_new, "new workers answer")
            assert old.closed.error_code == 0x100
        return load

    load = uringcore.run(main())
    assert load.failures == []
    assert load.answers > 20
    assert server.stop() == 0


def test_rounds_and_deaths_leave_no_descriptor_behind_in_the_supervisor(crowd):
    server = crowd()
    folder = f"/proc/{server.process.pid}/fd"

    async def main():
        before = await processes(server, 2)
        count = len(os.listdir(folder))
        for how in ("round", "death", "round"):
            if how == "round":
                server.send_signal(signal.SIGHUP)
            else:
                for pid in before:
                    os.kill(pid, signal.SIGKILL)
            for pid in before:
                await gone(pid)
            before = await processes(server, 2)

        async def as_many():
            return len(os.listdir(folder)) == count

        await eventually(as_many, f"{count} descriptors, as before")

    uringcore.run(main())
    assert server.stop() == 0


def test_aioquics_client_meets_all_workers(crowd):
    """aioquic's connection ids have another length than ours."""
    server = crowd()

    async def main():
        seen = set()
        while len(seen) < 2:
            async with connect_peer(server.url, cafile=server.certificate) as peer:
                first, second = [(await peer.fetch("GET", "/")).body for _ in range(2)]
                assert first == second
                seen.add(json.loads(bytes(first))[0])

    asyncio.run(asyncio.wait_for(main(), 60))
    assert server.stop() == 0


def test_workers_that_cannot_start_leave_the_old_ones_in_service(start, tmp_path, monkeypatch):
    gate = tmp_path / "gate"
    monkeypatch.setenv("CROWD_GATE", str(gate))
    server = start("--workers", "2", app=CROWD)

    async def main():
        before = await processes(server, 2)
        gate.touch()
        server.send_signal(signal.SIGHUP)
        await asyncio.to_thread(server.wait_log, "The restart has ended")
        assert await processes(server, 2) == before
        gate.unlink()
        server.send_signal(signal.SIGHUP)

        async def all_new():
            return not before & {(await ask_once(server))[0] for _ in range(20)}

        await eventually(all_new, "new workers answer")

    uringcore.run(main())
    assert server.stop() == 0


def test_a_failing_import_is_logged_and_ends_all_processes(certificate):
    arguments = ["--ssl-certfile", certificate[0], "--ssl-keyfile", certificate[1]]
    done = command("no_such_module:app", "--workers", "2", "--port", "0", *arguments)
    assert done.returncode == 3
    output = done.stdout + done.stderr
    assert 'Could not import module "no_such_module"' in output
    assert "failed to start, stopping the parent process" in output
    assert "Traceback" not in output


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_waits_for_requests(crowd, sig):
    server = crowd()

    async def main():
        async with ask(server) as client:
            slow = asyncio.ensure_future(client.get("/sleep/1"))
            await client.get("/")
            server.send_signal(sig)
            await slow
            await asyncio.wait_for(client.wait_closed(), 30)
            assert client.goaway
            assert client.closed.error_code == 0x100

    uringcore.run(main())
    assert server.wait_stopped() == 0
    assert server.log().count("LIFESPAN ends") == 2


def test_sigttin_and_sigttou_change_the_number_of_workers(crowd):
    server = crowd()

    async def main():
        before = await processes(server, 2)
        server.send_signal(signal.SIGTTIN)
        after = await processes(server, 3)
        assert before < after
        server.send_signal(signal.SIGTTOU)
        (youngest,) = after - before
        await gone(youngest)
        assert await processes(server, 2) == before
        for pid in before:
            assert is_alive(pid)

    uringcore.run(main())
    assert server.stop() == 0


def test_a_worker_that_hangs_is_replaced(crowd):
    # The default time limit: with a shorter one a busy machine's workers would be killed too.
    server = crowd()

    async def main():
        before = await processes(server, 2)
        hanging = before.pop()
        os.kill(hanging, signal.SIGSTOP)
        await gone(hanging)
        await processes(server, 2)

    uringcore.run(main())
    assert "does not answer and is killed" in server.log()
    assert server.stop() == 0


def test_a_worker_that_has_served_its_requests_makes_room_for_another(crowd):
    server = crowd("--limit-max-requests", "5")

    async def main():
        seen = set()
        while len(seen) < 4:
            seen.add((await ask_once(server))[0])

    uringcore.run(main())
    assert "died" not in server.log()
    assert server.stop() == 0


def test_workers_end_when_their_supervisor_is_killed(crowd):
    server = crowd()

    async def main():
        found = await processes(server, 2)
        (folder,) = {folder for pid in found for folder in session_folders(pid)}
        server.kill()
        for pid in found:
            await gone(pid)
        # Sessions are secrets.
        assert not os.path.exists(folder)

    uringcore.run(main())


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_end_of_its_terminal_is_the_end_of_the_server(certificate, tmp_path, workers):
    """SIGHUP from a terminal does not mean a restart here: nobody could press Ctrl+C afterwards."""
    log = tmp_path / "log"
    arguments = ["--ssl-certfile", certificate[0], "--ssl-keyfile", certificate[1], "--port", "0"]
    ours, theirs = os.openpty()
    with log.open("wb") as output:
        process = subprocess.Popen(
            bound([sys.executable, "-m", "uringcore", CROWD, "--workers", workers, *arguments]),
            cwd=ROOT,
            env=environment(),
            stdin=theirs,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
    os.close(theirs)
    try:

        async def started():
            return "HTTP/3 running on UDP port" in log.read_text()

        asyncio.run(eventually(started, "a worker serves"))
        os.close(ours)
        assert process.wait(60) == 0
        assert "LIFESPAN ends" in log.read_text()
    finally:
        process.kill()
        process.wait()


def may_unshare():
    if shutil.which(UNSHARE[0]) is None:
        return False
    return subprocess.run([*UNSHARE, "true"], capture_output=True, timeout=100).returncode == 0


@pytest.mark.skipif(not may_unshare(), reason="this machine permits no PID namespace")
def test_as_process_1_it_buries_orphans_and_ends_with_status_0(certificate, tmp_path):
    """The server runs in a PID namespace of its own, as in a container."""
    log = tmp_path / "log"
    arguments = ["--ssl-certfile", certificate[0], "--ssl-keyfile", certificate[1], "--port", "0"]
    with log.open("wb") as output:
        command = [*UNSHARE, sys.executable, "-m", "uringcore", CROWD, "--workers", "2"]
        outer = subprocess.Popen(
            bound([*command, *arguments]),
            cwd=ROOT,
            env=environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        asyncio.run(as_process_1(outer, log, certificate[0]))
        assert outer.wait(30) == 0
    finally:
        outer.kill()
        outer.wait()


async def as_process_1(outer, log, certificate):
    server = types.SimpleNamespace(certificate=certificate)

    async def started():
        return "HTTP/3 running on UDP port" in log.read_text()

    await eventually(started, "a worker serves")
    server.port = int(log.read_text().split("HTTP/3 running on UDP port ")[1].split()[0])

    def children():
        with open(f"/proc/{outer.pid}/task/{outer.pid}/children") as file:
            (first,) = file.read().split()
        with open(f"/proc/{first}/task/{first}/children") as file:
            return int(first), file.read().split()

    first, before = children()
    assert (await ask_once(server, "/orphan"))[1] == 1

    async def adopted():
        return set(children()[1]) - set(before)

    (orphan,) = await eventually(adopted, "the orphan is a child of process 1")
    os.kill(int(orphan), signal.SIGKILL)

    async def buried():
        return not os.path.exists(f"/proc/{orphan}")

    await eventually(buried, "the orphan is gone")
    os.kill(first, signal.SIGTERM)


def reloading(start, folder):
    """Starts a server under --reload whose application reports its process."""
    arguments = ["--reload", "--reload-dir", str(folder), "--reload-delay", "0.05"]
    return start(*arguments, app=CROWD)


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_of_reload_that_ends_is_replaced(start, tmp_path, sig):
    server = reloading(start, tmp_path)

    async def main():
        (first,) = await processes(server, 1)
        os.kill(first, sig)
        await asyncio.to_thread(server.wait_log, rf"Child process \[{first}\] died")
        await asyncio.to_thread(server.wait_log, "(?s)(HTTP/3 running.*){2}")
        (second,) = await processes(server, 1)
        assert second != first

    uringcore.run(main())
    assert server.stop() == 0


@pytest.mark.parametrize("status", [1, 3])
def test_a_child_of_reload_that_has_served_is_replaced_after_any_status(start, tmp_path, status):
    """A failed start exits with these statuses too."""
    server = reloading(start, tmp_path)

    async def main():
        (first,) = await processes(server, 1)
        async with server.connect() as client:
            asking = asyncio.create_task(client.get(f"/exit/{status}"))
            said = rf"Child process \[{first}\] died \(status {status}\)"
            await asyncio.to_thread(server.wait_log, said)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        await asyncio.to_thread(server.wait_log, "(?s)(HTTP/3 running.*){2}")
        (second,) = await processes(server, 1)
        assert second != first

    uringcore.run(main())
    assert server.stop() == 0


def test_a_child_of_reload_that_cannot_start_waits_for_a_change(start, tmp_path, monkeypatch):
    gate = tmp_path / "gate"
    monkeypatch.setenv("CROWD_GATE", str(gate))
    server = reloading(start, tmp_path)
    changed = tmp_path / "changed.py"
    changed.touch()

    def change(seconds):
        os.utime(changed, (2 * 10**9 + seconds, 2 * 10**9 + seconds))

    async def main():
        gate.touch()
        # The reloader's first scan may come later, and it takes the files as they are then. So change the
        # file again.
        for number in range(60):
            change(number)
            with contextlib.suppress(AssertionError):
                await asyncio.to_thread(server.wait_log, "Reloading", seconds=1)
                break
        await asyncio.to_thread(server.wait_log, "the gate is closed")
        gate.unlink()
        await asyncio.to_thread(server.wait_log, "could not start")
        # The start is not repeated without a change.
        await asyncio.sleep(1)
        assert server.log().count("RuntimeError: the gate is closed") == 1
        assert server.log().count("could not start (status 1): waiting for a file to change") == 1
        assert "died" not in server.log()
        change(100)
        await asyncio.to_thread(server.wait_log, "(?s)(HTTP/3 running.*){2}")

    uringcore.run(main())
    assert server.stop() == 0


def test_a_child_of_reload_stops_when_the_process_above_is_killed(start, tmp_path):
    server = reloading(start, tmp_path)

    async def main():
        (child,) = await processes(server, 1)
        server.kill()
        await gone(child)
        # The end is graceful: the application got its shutdown event.
        assert f"LIFESPAN ends in {child}" in server.log()

    uringcore.run(main())


def test_a_child_of_reload_that_is_starting_ends_when_the_process_above_is_killed(
    start, tmp_path, monkeypatch
):
    gate = tmp_path / "gate"
    monkeypatch.setenv("CROWD_GATE", str(gate))
    server = reloading(start, tmp_path)

    async def main():
        (first,) = await processes(server, 1)
        gate.write_text("hang")
        os.kill(first, signal.SIGKILL)
        said = await asyncio.to_thread(server.wait_log, r"LIFESPAN hangs in (\d+)")
        server.kill()
        await gone(int(said[1]))

    uringcore.run(main())


def test_a_second_sigint_reaches_the_child_of_reload(start, tmp_path, monkeypatch):
    """The child hangs in its start, where the first SIGINT has no effect."""
    gate = tmp_path / "gate"
    monkeypatch.setenv("CROWD_GATE", str(gate))
    server = reloading(start, tmp_path)
    (tmp_path / "changed.py").touch()
    gate.write_text("hang")

    async def main():
        (first,) = await processes(server, 1)
        os.kill(first, signal.SIGKILL)
        await asyncio.to_thread(server.wait_log, "LIFESPAN hangs")
        server.send_signal(signal.SIGINT)
        # Two pending signals merge into one. A third one reaches a process that had not handled the first
        # yet.
        for _ in range(2):
            await asyncio.sleep(0.5)
            server.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                assert await asyncio.to_thread(server.process.wait, 15) == 0
                return
        raise AssertionError(f"does not end: {server.log()}")

    uringcore.run(main())
