"""Files with secrets in directories that other users may write to: no existing file is used, no link is
followed.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.server.harness import ROOT, environment
from tests.support.other_user import OTHER_USER, needs_other_user
from uringcore import _private_files
from uringcore.devcert import DevelopmentCertificate
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.sessions import SharedSessionStore

BESIDE = ["", "-wal", "-shm", "-journal"]


@pytest.fixture
def shared(tmp_path):
    """A directory with the mode of /tmp."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@pytest.fixture
def entered():
    """A directory that every user may enter, unlike the directories of pytest."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o1777)
        yield folder


def refuses(path, why):
    """Checks that the store names the file that it refuses, and has created and changed nothing there."""
    before = {name: os.lstat(path.parent / name) for name in os.listdir(path.parent)}
    with pytest.raises(PermissionError, match=why) as caught:
        SharedSessionStore(path)
    assert sorted(os.listdir(path.parent)) == sorted(before)
    for name, found in before.items():
        now = os.lstat(path.parent / name)
        assert (now.st_ino, now.st_size, now.st_mode) == (
            found.st_ino,
            found.st_size,
            found.st_mode,
        )
    return caught.value.filename


@needs_other_user
@pytest.mark.parametrize("suffix", BESIDE)
def test_a_store_takes_no_file_of_another_users(shared, suffix):
    planted = shared / f"sessions{suffix}"
    planted.touch()
    planted.chmod(0o666)
    os.chown(planted, OTHER_USER, OTHER_USER)
    assert refuses(shared / "sessions", f"belongs to the user {OTHER_USER}") == str(planted)
    assert planted.read_bytes() == b""


@pytest.mark.parametrize("suffix", BESIDE)
@pytest.mark.parametrize("exists", [True, False])
def test_a_store_follows_no_link(shared, tmp_path, suffix, exists):
    target = tmp_path / "target"
    if exists:
        target.write_bytes(b"precious")
        target.chmod(0o600)
    planted = shared / f"sessions{suffix}"
    planted.symlink_to(target)
    assert refuses(shared / "sessions", "is a symbolic link") == str(planted)
    assert not exists or target.read_bytes() == b"precious"
    assert target.exists() == exists


@pytest.mark.parametrize("suffix", BESIDE)
def test_a_store_takes_no_second_name_of_a_file(shared, tmp_path, suffix):
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    target.chmod(0o600)
    os.link(target, shared / f"sessions{suffix}")
    refuses(shared / "sessions", "has a second name")
    assert target.read_bytes() == b"precious"


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o666])
def test_a_store_that_others_may_look_into_is_not_used(shared, mode):
    store = SharedSessionStore(shared / "sessions")
    store.put(b"ticket", b"session")
    assert {name.stat().st_mode & 0o777 for name in shared.iterdir()} == {0o600}
    store.close()
    (shared / "sessions").chmod(mode)
    assert refuses(shared / "sessions", f"mode {mode:04o}.*remove it") == str(shared / "sessions")
    (shared / "sessions").unlink()
    assert SharedSessionStore(shared / "sessions").take(b"ticket") is None


def test_a_folder_is_no_store(shared):
    (shared / "sessions").mkdir()
    refuses(shared / "sessions", "is not a regular file")


def test_a_file_planted_while_the_store_opens_is_noticed(shared, monkeypatch):
    """The last process that closes a database removes its log; afterwards any user may create a file of that
    name.
    """
    connect, planted = sqlite3.connect, shared / "sessions-wal"

    class Planting(sqlite3.Connection):
        def execute(self, statement, *args):
            done = super().execute(statement, *args)
            if "tokens" in statement:
                planted.chmod(0o666)
            return done

    def plant(*args, **options):
        return connect(*args, factory=Planting, **options)

    monkeypatch.setattr(sqlite3, "connect", plant)
    with pytest.raises(PermissionError, match="mode 0666"):
        SharedSessionStore(shared / "sessions")


def test_a_development_certificate_is_written_through_no_link(tmp_path):
    folder, precious = tmp_path / "folder", tmp_path / "precious"
    folder.mkdir()
    precious.write_bytes(b"precious")
    for name in ("cert.pem", "key.pem"):
        (folder / name).symlink_to(precious)
    made = DevelopmentCertificate.make()
    for _ in range(2):
        certificate, key = made.write(folder)
        assert precious.read_bytes() == b"precious"
        for path, mode in ((certificate, 0o644), (key, 0o600)):
            assert not os.path.islink(path)
            assert os.lstat(path).st_mode & 0o777 == mode
    assert Path(key).read_bytes() == made.key_pem
    assert sorted(os.listdir(folder)) == ["cert.pem", "key.pem"]


@pytest.mark.parametrize("name", ["cert.pem", "key.pem"])
def test_a_development_certificate_goes_into_no_file_that_was_there(tmp_path, name):
    """Another process with the file open could read the data."""
    (tmp_path / name).write_bytes(b"planted")
    (tmp_path / name).chmod(0o666)
    with open(tmp_path / name, "rb") as theirs:
        DevelopmentCertificate.make().write(tmp_path)
        assert theirs.read() == b"planted"
    assert (tmp_path / name).stat().st_mode & 0o022 == 0


@needs_other_user
@pytest.mark.parametrize("name", ["cert.pem", "key.pem"])
def test_a_file_that_is_not_replaceable_is_named(entered, name):
    """The test runs as another user, because root may replace any file."""
    shared = entered
    (shared / name).write_bytes(b"theirs")
    program = f"""
import os, sys
from uringcore.devcert import DevelopmentCertificate
os.setgid({OTHER_USER}); os.setuid({OTHER_USER})
try:
    DevelopmentCertificate.make().write(sys.argv[1])
except OSError as exc:
    print(exc.filename, exc.strerror)
"""
    command = [sys.executable, "-c", program, str(shared)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith(f"{shared / name} cannot be replaced"), done
    assert (shared / name).read_bytes() == b"theirs"
    assert [path for path in os.listdir(shared) if path.startswith(".")] == []


# Keys that every user may read -----------------------------------------------------------------------


@pytest.fixture
def identity(tmp_path, monkeypatch):
    """A certificate and its key in a directory that counts as open to every user."""
    monkeypatch.setattr(_private_files, "_warned", set())
    monkeypatch.setattr(_private_files, "_is_reachable", lambda path: True)
    return DevelopmentCertificate.make().write(tmp_path)


def load(certificate, key):
    QuicConfiguration(is_client=False).load_cert_chain(certificate, key)


def read(certificate, key):
    configuration = QuicConfiguration(is_client=False, alpn_protocols=["test"])
    configuration.certificate, configuration.private_key = certificate, key
    configuration.setup()


def add(certificate, key):
    configuration = QuicConfiguration(is_client=False)
    configuration.add_certificate(certificate, key)


@pytest.mark.parametrize("use", [load, read, add])
@pytest.mark.parametrize(
    ("mode", "may"),
    [(0o600, None), (0o640, None), (0o440, None), (0o644, "read"), (0o602, "change")],
)
def test_a_world_readable_key_causes_one_warning(identity, caplog, use, mode, may):
    certificate, key = identity
    os.chmod(key, mode)
    with caplog.at_level(logging.WARNING, "uringcore"):
        use(certificate, key)
        use(certificate, key)
    said = [record.getMessage() for record in caplog.records]
    text = f"Every user of this machine may {may} the key in {key} (mode {mode:04o}): chmod o-rwx {key}"
    assert said == ([] if may is None else [text])


def test_a_key_in_the_certificates_file(identity, tmp_path, caplog):
    both = tmp_path / "both.pem"
    both.write_bytes(b"".join(Path(path).read_bytes() for path in identity))
    both.chmod(0o644)
    with caplog.at_level(logging.WARNING, "uringcore"):
        load(identity[0], identity[1])
        # A certificate alone is not secret.
        assert caplog.records == []
        QuicConfiguration(is_client=False).load_cert_chain(both)
    assert [str(both) in record.getMessage() for record in caplog.records] == [True]


def test_a_key_in_a_folder_that_others_cannot_enter(tmp_path, monkeypatch, caplog):
    """Like certbot's directory, whose older keys have mode 0644."""
    monkeypatch.setattr(_private_files, "_warned", set())
    inner = tmp_path / "live"
    inner.mkdir()
    identity = DevelopmentCertificate.make().write(inner)
    os.chmod(identity[1], 0o644)
    inner.chmod(0o700)
    load(*identity)
    assert caplog.records == []
