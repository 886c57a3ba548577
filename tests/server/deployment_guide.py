"""docs/deploy.md as programs: its blocks, and a machine in a directory, on which they run.

A block is the text of a code fence. Its name is the file in its first line, or the heading above it and its
number below that heading.
"""

from __future__ import annotations

import grp
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
from pathlib import Path

from tests.server.harness import ROOT, STARTED, Server, environment
from tests.support.child_processes import bound
from uringcore.devcert import DevelopmentCertificate

PAGE = ROOT / "docs" / "deploy.md"
PROFILE = ROOT / "docs" / "seccomp.json"

PARTS = re.compile(r"^## (?P<heading>.*?)$|^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.M | re.S)
NAME = re.compile(r"\A(?:#!.*\n)?# (\S+)\n")

TLS = "/etc/uringcore/tls"
HOOKS = "/etc/letsencrypt/renewal-hooks/deploy"

APPLICATION = """
import json

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    while (await receive()).get("more_body"):
        pass
    shown = {key: scope[key] for key in ("http_version", "client", "scheme")}
    body = json.dumps(shown).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
"""


def blocks():
    """Returns the page's blocks by name."""
    found, heading, count = {}, "", 0
    for part in PARTS.finditer(PAGE.read_text()):
        if part["heading"]:
            heading, count = part["heading"], 0
            continue
        named = NAME.search(part["text"])
        if named is None:
            count += 1
        name = named[1] if named else f"{heading} {count}"
        assert name not in found, f"two blocks are called {name}"
        found[name] = part["text"]
    return found


BLOCKS = blocks()


def block(name, **changes):
    """Returns a block's text with other ports and directories. The text in `OLD` for each key must occur in
    it.
    """
    return adapted(BLOCKS[name], {OLD[key]: str(new) for key, new in changes.items()})


OLD = {
    "port": "443",
    "inner": "8443",
    "workers": "--workers 4",
    "tls": TLS,
    "site": "example.org",
    "keys": "/etc/uringcore",
    "folder": "/srv/app",
}
"""Texts of the page that tests replace, by key."""


def adapted(text, changes):
    """Replaces all at once, longest first, so that replacements are not replaced again."""
    for old in changes:
        assert old in text, f"{old!r} is no longer there: change the test with it\n{text}"
    if not changes:
        return text
    olds = sorted(changes, key=len, reverse=True)
    pattern = "|".join(rf"(?<!\d){re.escape(old)}(?!\d)" for old in olds)
    return re.sub(pattern, lambda match: changes[match[0]], text)


class Deployed(Server):
    """A server that a shell has started with a command of the page."""

    def __init__(self, machine, command, name, **options):
        self.certificate = str(machine.certificate)
        self._log = machine.folder / f"{name}.log"
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                bound(["sh", "-euc", f"exec {command.strip()}"]),
                cwd=machine.folder,
                env={**machine.environment, **options},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait_http3(self, workers=1):
        """Waits until this many processes serve."""
        match = self.wait_log(r"(?s)" + ".*".join([STARTED.pattern] * workers))
        self.port = int(match[1])
        self.url = f"https://localhost:{self.port}"


class Machine:
    """A directory that replaces a machine's root, with an application, a certificate and commands."""

    def __init__(self, folder, certificate):
        self.folder = folder
        self.tls = folder / "etc" / "tls"
        self.tls.mkdir(parents=True)
        self.certificate = Path(shutil.copy(certificate[0], self.tls / "fullchain.pem"))
        shutil.copy(certificate[1], self.tls / "privkey.pem")
        (folder / "app.py").write_text(APPLICATION)
        self.add_command("uringcore", f'exec "{sys.executable}" -m uringcore "$@"')
        self._started = []

    @property
    def environment(self):
        """The environment of a shell on this machine."""
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}:/usr/sbin:/sbin"
        # Absolute paths, so that any working directory finds the package under test.
        sources = os.environ.get("PYTHONPATH", "")
        places = [str(Path(place).resolve()) for place in sources.split(":") if place]
        return {
            **environment(),
            "PATH": path,
            "PYTHONPATH": ":".join(places),
            "CURL_CA_BUNDLE": str(self.certificate),
        }

    def add_command(self, name, script):
        """Adds a program that the page names and that this machine has under another name or path."""
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def renew(self, hooks, changes):
        """Writes a new certificate and runs certbot's hook, with `changes`. Returns the certificate's
        file.
        """
        lineage = self.folder / "live"
        lineage.mkdir()
        for made, name in zip(
            DevelopmentCertificate.make().write(lineage), ("fullchain", "privkey"), strict=True
        ):
            shutil.move(made, lineage / f"{name}.pem")
        assert list(hooks) == sorted(hooks)
        changes = {TLS: str(self.tls), "--group=uringcore": f"--group={own_group()}", **changes}
        for hook in hooks:
            text = BLOCKS[f"{HOOKS}/{hook}"]
            script = self.folder / f"hook-{hook}"
            script.write_text(adapted(text, {old: changes[old] for old in changes if old in text}))
            script.chmod(0o755)
            environment = {**self.environment, "RENEWED_LINEAGE": str(lineage)}
            subprocess.run([script], env=environment, check=True, timeout=60)
        return lineage / "fullchain.pem"

    def serve(self, command, name="server", **options):
        """Starts a server, which ends with the test."""
        self._started.append(Deployed(self, command, name, **options))
        return self._started[-1]

    def shell(self, script, **options):
        """Runs a block and returns its output."""
        done = subprocess.run(
            ["sh", "-euc", script],
            cwd=self.folder,
            env={**self.environment, **options},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def close(self):
        for server in self._started:
            server.kill()
        for server in self._started:
            server.check_log()


def own_group():
    """Returns a group to which the current user may give files."""
    return grp.getgrgid(os.getegid()).gr_name


def served_over_tcp(port):
    """Returns the certificate that a TCP port presents."""
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), 20) as plain:
        with trust.wrap_socket(plain, server_hostname="localhost") as sock:
            return sock.getpeercert(binary_form=True)
