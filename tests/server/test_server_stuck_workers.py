"""Workers that cannot start, never finish their start, or never end, and their supervisor's reaction."""

import asyncio
import errno
import os
import re
import signal

import pytest

import uringcore
from tests.server.conftest import CROWD
from tests.server.test_server_processes import gone
from tests.server.worker_application import ask_once, eventually, processes
from uringcore.server import Config
from uringcore.server import _supervisor as supervisors
from uringcore.server._listening_sockets import ServerSockets
from uringcore.server._supervisor import Supervisor
from uringcore.server._worker_process import SERVING


def test_a_worker_at_its_request_limit_is_replaced_once_a_successor_starts(
    start, tmp_path, monkeypatch
):
    gate = tmp_path / "gate"
    monkeypatch.setenv("CROWD_GATE", str(gate))
    # The limit leaves enough requests to find both workers; no successor starts before the gate closes.
    server = start("--workers", "2", "--limit-max-requests", "20", app=CROWD)

    async def main():
        before = await processes(server, 2)
        gate.touch()

        async def failed():
            assert (await ask_once(server))[0] in before
            return server.log().count("failed to start (") >= 2

        await eventually(failed, "successors fail")
        gate.unlink()

        async def another():
            return (await ask_once(server))[0] not in before

        await eventually(another, "a new worker answers")

    uringcore.run(main())
    assert server.stop() == 0


@pytest.fixture
def hanging(start, tmp_path, monkeypatch):
    """Starts a server whose workers never finish their start."""
    gate = tmp_path / "gate"
    gate.write_text("hang")
    monkeypatch.setenv("CROWD_GATE", str(gate))

    def start_hanging(*arguments):
        # The start prints the address, and nothing more.
        server = start("--workers", "2", *arguments, app=CROWD, http3=False)
        server.wait_log(r"(?s)(LIFESPAN hangs in \d+\n.*){2}")
        return server

    return start_hanging


def test_workers_that_never_get_started_are_given_up_when_the_server_ends(hanging):
    server = hanging("--timeout-graceful-shutdown", "1")
    assert server.stop() == 0
    assert server.log().count("is still starting and is killed") == 2


def test_workers_that_never_get_started_end_when_their_supervisor_is_killed(hanging):
    server = hanging()
    pids = [int(pid) for pid in re.findall(r"LIFESPAN hangs in (\d+)", server.log())]
    assert len(pids) == 2
    server.kill()
    for pid in pids:
        asyncio.run(gone(pid))


def test_a_second_sigint_ends_workers_that_never_get_started(hanging):
    server = hanging()
    server.send_signal(signal.SIGINT)
    server.wait_log("Received SIGINT")
    assert server.stop(signal.SIGINT) == 0


def test_a_third_sigint_ends_a_worker_in_any_state(crowd):
    server = crowd()
    with server.http1() as connection:
        connection.request("GET", "/block")
        server.wait_log("BLOCKED")
        for count in (1, 2, 3):
            server.send_signal(signal.SIGINT)
            server.wait_log(f"(?s)(Received SIGINT.*){{{count}}}")
        assert server.wait_stopped() == 0


def test_another_round_gives_up_who_hangs_in_the_one_before(start, tmp_path, monkeypatch):
    gate = tmp_path / "gate"
    monkeypatch.setenv("CROWD_GATE", str(gate))
    server = start("--workers", "2", "--timeout-graceful-shutdown", "1", app=CROWD)

    async def main():
        before = await processes(server, 2)
        gate.write_text("hang")
        server.send_signal(signal.SIGHUP)
        found = await asyncio.to_thread(server.wait_log, r"LIFESPAN hangs in (\d+)")
        gate.unlink()
        server.send_signal(signal.SIGHUP)
        await gone(int(found.group(1)))
        for pid in before:
            await gone(pid)
        await processes(server, 2)

    uringcore.run(main())
    assert server.stop() == 0


def test_programs_that_a_worker_starts_do_not_keep_its_sockets(crowd):
    server = crowd()
    assert uringcore.run(ask_once(server, "/inherited")) == []


class Puppet:
    """A worker without a process, whose behaviour the test decides."""

    made = 0

    def __init__(self, target, config, sockets, places):
        Puppet.made += 1
        self.pid = Puppet.made
        self.places = places
        self.is_serving = self.is_leaving = False
        self.began_at = 0.0
        self.exitcode = None
        self.messages = b""
        self.channel, self._other = os.pipe()

    def read_messages(self):
        return self.messages

    def ask(self):
        return 0

    def retire(self):
        self.is_leaving = True

    stop = kill = retire

    def ended(self):
        os.close(self.channel)
        os.close(self._other)


@pytest.fixture
def puppets(monkeypatch):
    """Runs a coroutine function with a supervisor of two serving workers."""

    async def play(main):
        monkeypatch.setattr(supervisors, "Worker", Puppet)
        config = Config(CROWD, workers=2, http3=False)
        supervisor = Supervisor(config, ServerSockets(), target=None)
        supervisor._fill()
        for worker in supervisor._workers_now:
            serve(supervisor, worker)
        before = list(supervisor._workers_now)
        try:
            await main(supervisor, before)
        finally:
            supervisor._stop()
            await asyncio.sleep(0)
            for worker in supervisor._all_workers:
                supervisor._end(worker)

    return lambda main: asyncio.run(play(main))


def serve(supervisor, worker):
    worker.messages = SERVING
    supervisor._read_messages(worker)


def test_sighup_in_the_moment_in_which_a_successor_serves_leaves_no_worker_too_many(puppets):
    async def main(supervisor, before):
        supervisor._hang_up()
        await asyncio.sleep(0)
        successor = supervisor._workers_now[-1]
        assert successor not in before
        serve(supervisor, successor)
        # The second restart comes before the first has noticed its successor.
        supervisor._hang_up()
        for _ in range(5):
            await asyncio.sleep(0)
            for worker in supervisor._workers_now:
                serve(supervisor, worker)
        assert len(supervisor._workers_now) == 2
        assert not {*before, successor} & {*supervisor._workers_now}

    puppets(main)


def test_a_restart_without_processes_is_logged(puppets, monkeypatch, caplog):
    class Refused(Puppet):
        def __init__(self, *args):
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    async def main(supervisor, before):
        monkeypatch.setattr(supervisors, "Worker", Refused)
        with monkeypatch.context() as patch:
            patch.setattr(supervisors.logger, "handlers", [caplog.handler])
            supervisor._hang_up()
            await asyncio.sleep(0)
            assert await supervisor._round is None
        assert supervisor._workers_now == before

    puppets(main)
    assert "cannot be started: Resource temporarily unavailable" in caplog.text
    assert "The restart has ended" in caplog.text
