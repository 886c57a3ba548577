"""docs/deploy.md under systemd: its unchanged units, on a machine of the test's own."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.deployment_guide import APPLICATION, BLOCKS, HOOKS, adapted
from tests.server.harness import ROOT
from tests.support.interpreter_roles import is_default_interpreter
from tests.support.systemd_machine import Booted, why_not

HOOK = f"{HOOKS}/uringcore"
LINEAGE = "/etc/letsencrypt/live/example.org"

SERVICE = "/etc/systemd/system/uringcore.service"
ACTIVATED = "/etc/systemd/system/uringcore-activated"

WAIT = "until grep -q '{}' /run/server.log; do sleep 0.05; done"
FETCH = "curl --silent --show-error --insecure --include https://localhost/"
FETCH_HTTP3 = "/srv/app/venv/bin/uringcore get --insecure --verbose https://localhost/"

needs_a_machine = pytest.mark.skipif(
    why_not() is not None or not is_default_interpreter(),
    reason=why_not() or "systemd does not depend on the interpreter",
)


def needed():
    """Returns the directories of the interpreter and of the package under test."""
    sources = [place for place in os.environ.get("PYTHONPATH", "").split(":") if place]
    return [sys.prefix, sys.base_prefix, *sources]


def unit(path):
    """Returns the page's unit, except that it may read home directories, where the tested interpreter may
    be.
    """
    text = BLOCKS[path]
    if "ProtectHome=yes" in text:
        text = adapted(text, {"ProtectHome=yes": "ProtectHome=read-only"})
    return text


@pytest.fixture
def machine(tmp_path, certificate):
    """A machine with the application in /srv/app and a certificate as certbot's hook leaves it."""
    with Booted(tmp_path) as booted:
        sources = ":".join(str(Path(place).resolve()) for place in needed()[2:])
        booted.write("/srv/app/app.py", APPLICATION)
        booted.write(
            "/srv/app/venv/bin/uringcore",
            f'#!/bin/sh\nPYTHONPATH="{sources}" exec "{sys.executable}" -m uringcore "$@"\n',
        )
        booted.run("chmod 755 /srv/app/venv/bin/uringcore")
        booted.run(BLOCKS["systemd 1"].splitlines()[0])
        for file, name in zip(certificate, ("fullchain.pem", "privkey.pem"), strict=True):
            booted.write(f"{LINEAGE}/{name}", Path(file).read_text())
        booted.write(HOOK, BLOCKS[HOOK])
        booted.run(f"chmod 755 {HOOK}; RENEWED_LINEAGE={LINEAGE} {HOOK}")
        yield booted


def install(machine, path):
    """Installs the unit; its output goes to a file, because there is no journal."""
    machine.write(path, unit(path))
    if path.endswith(".service"):
        places = {str(Path(place).resolve()) for place in (*needed(), ROOT)}
        kept = [f"BindReadOnlyPaths={place}" for place in places if place.startswith("/tmp/")]
        lines = ["[Service]", "StandardOutput=append:/run/server.log", *kept]
        machine.write(f"{path}.d/test.conf", "\n".join([*lines, ""]))
    machine.run("systemctl daemon-reload")


def check_answers(machine):
    said = machine.run(FETCH).stdout
    assert 'alt-svc: h3=":443"; ma=86400' in said
    assert '"http_version": "2"' in said
    assert '"http_version": "3"' in machine.run(FETCH_HTTP3).stdout


def wait(machine, pattern, count=1):
    """Waits until the server's output matches this many times."""
    machine.run(
        f"until [ $(grep -c '{pattern}' /run/server.log) -ge {count} ]; do sleep 0.05; done"
    )


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_no_fault(tmp_path):
    program = tmp_path / "uringcore"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    files = [name for name in BLOCKS if name.startswith("/etc/systemd/")]
    assert len(files) == 3
    for name in files:
        text = BLOCKS[name].replace("/srv/app/venv/bin/uringcore", str(program))
        (tmp_path / Path(name).name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(tmp_path / Path(name).name for name in files)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    found = [line for line in done.stderr.splitlines() if str(tmp_path) in line]
    assert found == []


@needs_a_machine
def test_a_service_with_workers(machine):
    install(machine, SERVICE)
    _, enable, reload = BLOCKS["systemd 1"].splitlines()
    machine.run(enable)
    wait(machine, "HTTP/3 running on UDP port 443", 4)
    check_answers(machine)
    who = machine.run("systemctl show --property=MainPID --value uringcore").stdout.strip()
    assert machine.run(f"ps -o user= -p {who}").stdout.strip() == "uringcore"
    before = children(machine, who)
    assert len(before) == 4
    machine.run(reload)
    wait(machine, "HTTP/3 running on UDP port 443", 8)
    wait(machine, "Finished server process", 4)
    machine.run(f"while ps -o pid= -p {','.join(before)}; do sleep 0.05; done")
    check_answers(machine)
    machine.run("systemctl stop uringcore")
    shown = machine.run("systemctl show --property=Result,ExecMainStatus uringcore").stdout
    assert "Result=success" in shown
    assert "ExecMainStatus=0" in shown


def children(machine, pid):
    """Returns the workers, without multiprocessing's helper process."""
    lines = machine.run(f"ps -ww -o pid=,args= --ppid {pid}").stdout.splitlines()
    return {line.split()[0] for line in lines if "spawn_main" in line}


@needs_a_machine
def test_sockets_of_systemd(machine):
    """A client that connects during a restart waits, and the next process serves it."""
    install(machine, f"{ACTIVATED}.service")
    install(machine, f"{ACTIVATED}.socket")
    enable, restart = BLOCKS["systemd 2"].splitlines()
    machine.run(enable)
    # The first client's connection starts the service.
    check_answers(machine)
    wait(machine, "HTTP/3 running on UDP port 443")
    script = f"""
        {restart} &
        {WAIT.format("Finished server process")}
        {FETCH}
        {FETCH_HTTP3}
        wait
    """
    machine.run(script)
    wait(machine, "HTTP/3 running on UDP port 443", 2)
    check_answers(machine)


@needs_a_machine
def test_all_files_of_the_machine_are_for_whom_they_are_meant(machine):
    """The unit's user can read the secrets; the container's user can read the key through its group."""
    keys, command = BLOCKS["Several machines 1"].split("uringcore app:app")
    machine.run(keys)
    for file in re.findall(r"/etc/uringcore/\w+\.key", command):
        assert machine.run(f"runuser -u uringcore -- head -c 32 {file} | wc -c").stdout == "32\n"
    said = BLOCKS["Containers 1"]
    group = machine.run(f"echo {re.search(r'--group-add (.*) ', said)[1]}").stdout.strip()
    folder, inside = re.search(r"--volume (\S+):(\S+):ro", said).groups()
    machine.run(f"mkdir {inside}; mount --bind {folder} {inside}")
    image = BLOCKS["Dockerfile"].replace("\\\n", "")
    words = [
        json.loads(re.search(rf"^{word} (.*)$", image, re.M)[1]) for word in ("ENTRYPOINT", "CMD")
    ]
    program, *arguments = [word for part in words for word in part]
    (user,) = re.findall(r"^USER (\d+)$", image, re.M)
    started = machine.run(f"""
        cd /srv/app
        PATH=/srv/app/venv/bin:$PATH setpriv --reuid {user} --regid {user} --groups {group} \\
            {program} {shlex.join(arguments)} > /run/server.log 2>&1 &
        echo $!
    """).stdout.strip()
    wait(machine, "HTTP/3 running on UDP port 8443")
    said = machine.run(FETCH_HTTP3.replace("localhost", "localhost:8443")).stdout
    assert '"http_version": "3"' in said
    machine.run(f"kill {started}; while kill -0 {started}; do sleep 0.05; done")
    assert "Finished server process" in machine.run("cat /run/server.log").stdout
