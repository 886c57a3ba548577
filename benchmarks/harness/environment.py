"""The peers' environment: a virtual environment, the native programs and a certificate.

The first run makes all of it inside folders that git ignores, and changes nothing else on the machine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "benchmarks"
# The file in which .ci/venv.py records the installed build.
STAMP = "uringcore-build.json"
GUIDED = "guided"
"""The profile of `.ci/venv.py` that wheels are released with."""
VERSIONS_CODE = """
import json, sys
from importlib import metadata
found = {(d.metadata["Name"] or "").lower(): d.version for d in metadata.distributions()}
print(json.dumps({"python": sys.version.split()[0], "packages": found}))
"""
# The engine is a separate package, so that the other programs build where it does not.
PROGRAMS = {
    "echo_load": "uringcore-bench",
    "upload_load": "uringcore-bench",
    "relay_load": "uringcore-bench",
    "tls_load": "uringcore-bench",
    "ws_load": "uringcore-bench",
    "file_load": "uringcore-bench",
    "quic_load": "uringcore-bench",
    "quinn_server": "uringcore-bench",
    "h3_load": "uringcore-bench",
    "http_load": "uringcore-bench",
    "h3_server": "uringcore-bench",
    "engine_server": "uringcore-bench-engine",
}
C_PROGRAMS = {"c_epoll": "c_epoll.c"}
"""The programs of the C compiler, each from one file in `native/`."""
SYSTEM_PROGRAMS = frozenset({"nginx", "caddy"})
"""Programs of the distribution, which are not installed here."""
GO_PROGRAMS = {"quicgo_load": "quicgo"}
"""The programs of the Go compiler, each from one folder in `native/`."""


@dataclass
class Environment:
    """The interpreter of the peers, their versions, the native programs and a certificate."""

    python: Path
    native: Path
    """The folder of the native programs."""
    certificates: Path
    refused: dict[str, str] = field(default_factory=dict)
    """The reason why a distribution or a program could not be installed or built, by name."""
    python_version: str = ""
    profile: str = "release"
    """The build profile of this project's wheel, as recorded by `.ci/venv.py`."""
    packages: dict[str, str] = field(default_factory=dict)

    def package_missing(self, name: str) -> str | None:
        """The reason why the distribution `name` is absent, or None."""
        if name.lower() in self.packages:
            return None
        return self.refused.get(name.lower(), "not installed")

    def program_missing(self, name: str) -> str | None:
        """The reason why the native program `name` is absent, or None."""
        if name in SYSTEM_PROGRAMS:
            return None if shutil.which(name) else "not installed"
        if self.program(name).exists():
            return None
        return self.refused.get(name, "not built")

    def program(self, name: str) -> Path:
        """The path of a native program."""
        return self.native / name

    def certificate_arguments(self) -> list[str]:
        """The options with a server's certificate."""
        return [
            "--cert",
            str(self.certificates / "cert.pem"),
            "--key",
            str(self.certificates / "key.pem"),
        ]

    def authority_arguments(self) -> list[str]:
        """The options that make a load generator verify that certificate."""
        return ["--ca", str(self.certificates / "ca.pem")]

    def read_versions(self) -> None:
        """Read the versions of the interpreter and of its packages."""
        answer = json.loads(_output([str(self.python), "-c", VERSIONS_CODE]))
        self.python_version = answer["python"]
        self.packages = answer["packages"]
        self.profile = profile_of(self.python.parents[1]) or self.profile


def profile_of(folder: Path) -> str | None:
    """The build profile of the wheel in this virtual environment; None if `.ci/venv.py` did not build it."""
    stamp = folder / STAMP
    return json.loads(stamp.read_text())["profile"] if stamp.exists() else None


def set_up(python: Path | None, venv: Path | None, *, install: bool) -> Environment:
    """Make or find everything that the peers need.

    `python` is the interpreter to make the environment with, `venv` an environment to use instead of the
    benchmarks' own; `install=False` changes nothing and uses the existing environment.
    """
    base = python or Path(sys.executable)
    version = _output([str(base), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
    folder = venv or HERE / f".venv-{version.strip()}"
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "benchmarks"
    environment = Environment(
        python=folder / "bin" / "python",
        native=target / "release",
        certificates=HERE / ".venv-certificates",
    )
    if install:
        if not environment.python.exists():
            print(f"making {folder}", flush=True)
            subprocess.run([str(base), "-m", "venv", str(folder)], check=True)
        _install_peers(environment)
        _install_ours(environment)
        _build_native(environment, target)
    elif not environment.python.exists():
        raise SystemExit(f"{folder} does not exist; run without --no-install")
    environment.read_versions()
    _make_certificate(environment)
    return environment


def _install_peers(environment: Environment) -> None:
    lines = (HERE / "requirements.txt").read_text().splitlines()
    for line in lines:
        requirement = line.partition("#")[0].strip()
        if not requirement:
            continue
        name = requirement.split(";")[0].split("[")[0].split(">")[0].strip()
        print(f"installing {name}", flush=True)
        pip = [str(environment.python), "-m", "pip", "install", "--quiet", requirement]
        done = subprocess.run(
            [*pip, "--disable-pip-version-check"], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            reason = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            environment.refused[name.lower()] = f"pip could not install it: {''.join(reason)}"
            print(f"  absent: {environment.refused[name.lower()]}", flush=True)
        elif ";" in requirement:
            # A marker that excludes this interpreter makes pip succeed without installing.
            marker = requirement.partition(";")[2].strip()
            environment.refused[name.lower()] = f"its wheels need {marker}"


def _install_ours(environment: Environment) -> None:
    """Install the released form of the wheel, which is compiled with a profile of the hot paths."""
    python = environment.python
    builder = [sys.executable, str(ROOT / ".ci" / "venv.py"), "--profile", GUIDED]
    command = [*builder, "--venv", str(python.parents[1].resolve()), "--python", str(python)]
    if subprocess.run(command, check=False).returncode != 0:
        raise SystemExit("this project's wheel could not be built")


def _build_native(environment: Environment, target: Path) -> None:
    cargo = ["cargo", "build", "--release", "--locked", "--quiet"]
    for program, package in PROGRAMS.items():
        _build(environment, program, [*cargo, "--package", package, "--bin", program], target)
    for program, source in C_PROGRAMS.items():
        path = str(environment.program(program))
        _build(environment, program, ["cc", "-O2", "-Wall", "-o", path, source], target)
    for program, folder in GO_PROGRAMS.items():
        go = ["go", "build", "-C", folder, "-o", str(environment.program(program).resolve()), "."]
        _build(environment, program, go, target)


def _build(environment: Environment, program: str, command: list[str], target: Path) -> None:
    if shutil.which(command[0]) is None:
        environment.refused[program] = f"{command[0]} is not installed"
        return
    print(f"building {program}", flush=True)
    environment.native.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        command,
        cwd=HERE / "native",
        env={**os.environ, "CARGO_TARGET_DIR": str(target)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        # A program of an older build must not be measured instead.
        environment.program(program).unlink(missing_ok=True)
        environment.refused[program] = "it does not build"
        print(done.stderr, file=sys.stderr, flush=True)


def _make_certificate(environment: Environment) -> None:
    """A fresh P-256 certificate for localhost, and the authority that clients verify it with."""
    folder = environment.certificates
    folder.mkdir(parents=True, exist_ok=True)
    if environment.package_missing("trustme") is None:
        program = [str(environment.python), "-m", "benchmarks.programs.certificate"]
        subprocess.run([*program, str(folder.resolve())], cwd=ROOT, check=True)


def _output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
