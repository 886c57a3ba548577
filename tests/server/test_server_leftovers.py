"""Files and sockets that a killed server leaves on disk, and the keys that it warns about."""

from __future__ import annotations

import fcntl
import os
import pickle
import shutil
import signal
import subprocess
import sys

import pytest

import uringcore
from tests.server.harness import ROOT, Server, environment
from tests.server.test_server_processes import gone
from tests.server.worker_application import eventually, processes
from tests.support.child_processes import bound
from tests.support.other_user import OTHER_USER, needs_other_user
from uringcore.server._shared_process_folder import LOCK, SharedFolder

KINDS = {"sessions", "reports"}


def there(paths):
    """Returns the existing ones of these directories."""
    return {path for path in paths if os.path.exists(path)}


def alone(paths):
    """Returns the directories that only this test's servers remove.

    Sessions are in /dev/shm, where servers of other tests start too and remove the directories of killed
    ones.
    """
    return {path for path in paths if os.path.dirname(path) == os.environ["TMPDIR"]}


@pytest.fixture(autouse=True)
def own_place(tmp_path, monkeypatch):
    """Moves the system's temporary directory, which holds the reports, into this test's own. Its path is
    longer than a Unix socket's may be.
    """
    made = tmp_path / ("made" * 30)
    made.mkdir()
    monkeypatch.setenv("TMPDIR", str(made))


def held_by(pid):
    """Returns the directories whose lock a process holds."""
    found = set()
    for entry in os.listdir(f"/proc/{pid}/fd"):
        name = os.readlink(f"/proc/{pid}/fd/{entry}")
        if name.endswith(f"/{LOCK}"):
            found.add(os.path.dirname(name))
    return found


def test_nothing_is_left_of_a_supervisor_that_was_killed(crowd):
    server = crowd("--metrics-path", "/metrics", "--status-page", "/status")

    async def main():
        found = await processes(server, 2)
        made = held_by(server.process.pid)
        assert {os.path.basename(path).split("-")[1] for path in made} == KINDS
        for pid in found:
            assert held_by(pid) == made
        server.kill()
        for pid in found:
            await gone(pid)
        assert not there(made)

    uringcore.run(main())


def test_nothing_is_left_of_a_supervisor_that_was_stopped(crowd):
    server = crowd("--metrics-path", "/metrics")
    made = held_by(server.process.pid)
    assert len(made) == 2
    assert server.stop() == 0
    assert not there(made)


def test_the_next_start_removes_folders_of_killed_processes(crowd):
    """As when a control group is killed."""
    server = crowd("--metrics-path", "/metrics")

    async def kill_all():
        found = await processes(server, 2)
        # Stop all of them first, so that none notices the end of another.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in [*found, server.process.pid]:
                os.kill(pid, number)
        server.process.wait()
        for pid in found:
            await gone(pid)

    made = held_by(server.process.pid)
    uringcore.run(kill_all())
    own = alone(made)
    assert own and there(own) == own
    following = crowd("--metrics-path", "/metrics")
    assert not there(own)

    async def all_gone():
        return not there(made)

    # Another test's server may be removing them right now.
    uringcore.run(eventually(all_gone, "the folders that are left go"))
    # Directories in use stay.
    held = held_by(following.process.pid)
    another = crowd("--metrics-path", "/metrics")
    assert there(held) == held
    assert another.stop() == 0
    assert there(held) == held
    assert following.stop() == 0
    assert not there(held)


def test_a_key_that_was_made_goes_with_the_next_start(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    server = Server(folder, (None, None), "--dev-cert")
    (made,) = held_by(server.process.pid)
    server.kill()
    assert os.path.exists(os.path.join(made, "key.pem"))
    following = Server(folder, (None, None), "--dev-cert")
    try:
        assert not os.path.exists(made)
    finally:
        assert following.stop() == 0
    assert os.listdir(os.environ["TMPDIR"]) == []


# The shared directory itself --------------------------------------------------------------------------


def test_a_folder_is_removed_when_no_process_holds_it(tmp_path):
    first = SharedFolder("kind", str(tmp_path))
    assert os.stat(first.path).st_mode & 0o777 == 0o700
    SharedFolder("kind", str(tmp_path)).remove()
    other = pickle.loads(pickle.dumps(first))
    # Its creator has ended, but another process still holds the lock.
    os.close(first._lock)
    SharedFolder("kind", str(tmp_path)).remove()
    assert os.path.exists(other.path)
    os.close(other._lock)
    SharedFolder("other", str(tmp_path)).remove()
    assert os.path.exists(other.path)
    last = SharedFolder("kind", str(tmp_path))
    assert not os.path.exists(other.path)
    last.remove()
    last.remove()
    gone_with_it = pickle.loads(pickle.dumps(last))
    gone_with_it.remove()
    assert not os.path.exists(last.path)


def test_foreign_folders_are_not_removed(tmp_path):
    """Not removed: a link, a directory that others may write to, one of an older version."""
    target = tmp_path / "target"
    target.mkdir()
    (target / LOCK).touch()
    (tmp_path / "uringcore-kind-link.d").symlink_to(target)
    names = ["uringcore-kind-open.d", "uringcore-kind-old", "uringcore-kind-new.d", "kind.d"]
    for name in names:
        (tmp_path / name).mkdir(mode=0o700)
        if "new" not in name:
            (tmp_path / name / LOCK).touch()
    (tmp_path / names[0]).chmod(0o777)
    SharedFolder("kind", str(tmp_path)).remove()
    left = {name for name in os.listdir(tmp_path) if not name.startswith("made")}
    assert left == {"target", "uringcore-kind-link.d", *names}
    assert (target / LOCK).exists()


@needs_other_user
def test_another_users_folder_is_not_removed(tmp_path):
    theirs = tmp_path / "uringcore-kind-theirs.d"
    theirs.mkdir(mode=0o700)
    (theirs / LOCK).touch()
    os.chown(theirs, OTHER_USER, OTHER_USER)
    SharedFolder("kind", str(tmp_path)).remove()
    assert (theirs / LOCK).exists()


def test_a_folder_that_is_taken_for_a_left_one_is_made_again(tmp_path, monkeypatch):
    """Another server may start between the creation of a directory and its lock."""
    hold, taken = SharedFolder._hold, []

    def late(folder):
        if not taken:
            taken.append(folder.path)
            shutil.rmtree(folder.path)
        hold(folder)

    monkeypatch.setattr(SharedFolder, "_hold", late)
    folder = SharedFolder("kind", str(tmp_path))
    assert folder.path != taken[0] and os.path.exists(folder.path)
    with open(os.path.join(folder.path, LOCK), "rb") as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    folder.remove()


# Keys that every user may read -----------------------------------------------------------------------


def test_world_readable_keys_cause_one_warning(certificate, tmp_path):
    place = tmp_path / "keys"
    place.mkdir()
    names = {}
    for name in ("cert.pem", "key.pem", "token.key", "reset.key"):
        names[name] = str(place / name)
    shutil.copy(certificate[0], names["cert.pem"])
    shutil.copy(certificate[1], names["key.pem"])
    for name in ("token.key", "reset.key"):
        (place / name).write_bytes(os.urandom(32))
    for path in names.values():
        os.chmod(path, 0o644)
    os.chmod(names["token.key"], 0o640)
    # pytest's directories belong to this user alone; pretend that others can enter.
    program = """
import sys
sys.argv = ["uringcore", *sys.argv[1:]]
from uringcore import _private_files
_private_files._is_reachable = lambda path: True
from uringcore._command_dispatch import main
main()
"""
    command = [sys.executable, "-c", program, "tests.server.worker_application:app", "--port", "0"]
    command += ["--workers", "2", "--ssl-certfile", names["cert.pem"]]
    command += ["--ssl-keyfile", names["key.pem"], "--http3-token-key", names["token.key"]]
    command += ["--http3-reset-key", names["reset.key"]]
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            bound(command), cwd=ROOT, env=environment(), stdout=output, stderr=output
        )

    async def serving():
        async def both():
            return log.read_text().count("HTTP/3 running") == 2

        await eventually(both, "both workers serve")

    try:
        uringcore.run(serving())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    said = log.read_text()
    for name, count in (("key.pem", 1), ("reset.key", 1), ("token.key", 0), ("cert.pem", 0)):
        assert said.count(f"the key in {names[name]} (mode 0644): chmod o-rwx") == count, said
