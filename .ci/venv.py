"""Make a virtual environment with uringcore built from this tree and installed in it.

    python3 .ci/venv.py --venv .venv-3.12 --python /usr/bin/python3.12 --extras dev --profile dev-opt

The profile `guided` is Cargo's `release` as wheels are released: built twice, with the profile of the hot
paths that the first build recorded (benchmarks/training.py), and tagged for other machines. `--out` copies
the wheel.

The script can run again at any time. It makes a venv of another interpreter anew, and it builds and installs
nothing if neither the sources nor the arguments have changed since the last success. It prints little unless
a tool fails; then it shows the tool's whole output. It uses the standard library only, because it runs
before any package is installed.
"""

import argparse
import ctypes
import errno
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
STAMP = "uringcore-build.json"
MATURIN = "maturin>=1.15,<2"  # as in pyproject.toml's build-system
WHEEL = "wheel"
GUIDED = "guided"
IO_URING_SETUP = 425
TOOLS = {
    "cargo": "a Rust toolchain (rustup, or your distribution's rustc and cargo)",
    "cc": "a C compiler (on Debian and Ubuntu: apt-get install build-essential)",
    "cmake": "cmake, which builds the TLS library (on Debian and Ubuntu: apt-get install cmake)",
}


class Failed(Exception):
    """A step failed; the message is all that the user needs."""


def main():
    options = arguments()
    venv = (ROOT / options.venv).resolve()
    python = venv / "bin" / "python"
    try:
        check_tools()
        make_venv(venv, options.python)
        guided = options.profile == GUIDED
        wanted = {
            "sources": sources_digest(guided),
            "extras": options.extras,
            "profile": options.profile,
        }
        if stamp(venv) != wanted:
            fetching = install_requirements(python, options.extras)
            wheel = build_wheel(venv, options.profile)
            install(python, wheel, options.extras, has_requirements=fetching.wait() == 0)
            (venv / STAMP).write_text(json.dumps(wanted))
        if options.out:
            keep(built_wheel(venv), ROOT / options.out)
    except Failed as failure:
        sys.exit(f"venv.py: {failure}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--venv", required=True, help="folder of the environment")
    parser.add_argument("--python", default=sys.executable, help="the interpreter to use")
    parser.add_argument("--extras", default="", help="extras of the package, comma-separated")
    parser.add_argument("--profile", default="release", help=f"Cargo profile, or {GUIDED}")
    parser.add_argument("--out", help="copy the wheel to this folder")
    return parser.parse_args()


def check_tools():
    for tool, what in TOOLS.items():
        if shutil.which(tool) is None:
            raise Failed(f"{tool} was not found; install {what}")


def make_venv(venv, interpreter):
    """Make a venv of exactly this interpreter; replace an old or broken one."""
    python = venv / "bin" / "python"
    if python.exists() and base_of(python) == base_of(interpreter):
        return
    say(f"creating {venv.name}")
    if venv.exists():
        shutil.rmtree(venv)
    try:
        run([interpreter, "-m", "venv", str(venv)], "creating the virtual environment")
    except Failed as failure:
        shutil.rmtree(venv, ignore_errors=True)
        raise Failed(f"{failure}\n(on Debian and Ubuntu: apt-get install python3-venv)") from None


def base_of(interpreter):
    """Identifies an interpreter: its version and where its standard library lives."""
    code = "import sys; print(sys.version, sys.base_prefix)"
    try:
        return subprocess.run(
            [str(interpreter), "-c", code], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def sources_digest(guided):
    """The digest of every file that is in the wheel or shapes it."""
    digest = hashlib.sha256()
    files = [ROOT / name for name in ("Cargo.toml", "Cargo.lock", "pyproject.toml")]
    for folder, patterns in (
        ("src", ("*.rs", "*.toml", "*.ld")),
        ("python", ("*.py", "*.pyi", "py.typed")),
    ):
        for pattern in patterns:
            files += (ROOT / folder).rglob(pattern)
    if guided:
        files.append(ROOT / "benchmarks" / "training.py")
        files += (ROOT / "benchmarks" / "programs").rglob("*.py")
    for path in sorted(files):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def stamp(venv):
    try:
        return json.loads((venv / STAMP).read_text())
    except (OSError, ValueError):
        return None


def check_profile_tools():
    """Check io_uring and llvm-profdata. The hot paths include those of io_uring, and llvm-profdata has to be
    of the compiler's version: a component of its toolchain."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(IO_URING_SETUP, 0, None)
    if ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
        why = os.strerror(ctypes.get_errno())
        raise Failed(
            f"the hot paths use io_uring, which this system does not allow ({why}); "
            "in a container: --security-opt seccomp=unconfined"
        )
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True).stdout
    if any(pathlib.Path(sysroot.strip()).glob("lib/rustlib/*/bin/llvm-profdata")):
        return
    if shutil.which("rustup") is None:
        raise Failed(
            f"llvm-profdata was not found in {sysroot.strip()}; install rustup's llvm-tools"
        )
    run(["rustup", "component", "add", "llvm-tools"], "rustup component add llvm-tools")


def build_wheel(venv, profile):
    """Build the wheel. Interpreters share Cargo's target directory, so only the bindings are built again."""
    python = venv / "bin" / "python"
    environment = clean_environment()
    options = ["--profile", profile, "--auditwheel", "skip"]
    if profile == GUIDED:
        check_profile_tools()
        options = ["--profile", "release", "--pgo"]
        # A profile's build is of no use to the next profile.
        target = pathlib.Path(environment.get("CARGO_TARGET_DIR", ROOT / "target")) / GUIDED
        shutil.rmtree(target, ignore_errors=True)
        environment["CARGO_TARGET_DIR"] = str(target)
    run([*pip_install(python), MATURIN], "pip")
    wheels = venv / WHEEL
    shutil.rmtree(wheels, ignore_errors=True)
    say(f"building the wheel for {venv.name} (profile {profile})")
    started = time.monotonic()
    command = [str(venv / "bin" / "maturin"), "build", "--locked", *options]
    command += ["--interpreter", str(python), "--out", str(wheels)]
    run(command, "maturin build", environment)
    say(f"built in {time.monotonic() - started:.0f} s")
    return built_wheel(venv)


def built_wheel(venv):
    return next((venv / WHEEL).glob("*.whl"))


def keep(wheel, folder):
    folder.mkdir(parents=True, exist_ok=True)
    say(f"kept as {shutil.copy(wheel, folder)}")


def install_requirements(python, extras):
    """Install the extras' requirements beside the build. A failure is ignored: `install` repeats it."""
    command = [*pip_install(python), *requirements(extras)]
    quiet = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    return subprocess.Popen(command, env=clean_environment(), **quiet)


def requirements(extras):
    """The requirements of these extras (comma-separated) and of those that they name."""
    extra = re.compile(r"^(\w+) = \[(.*?)\]$", re.MULTILINE | re.DOTALL)
    _, _, table = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")
    table = dict(extra.findall(table.partition("\n[")[0]))
    found = []
    for name in filter(None, extras.split(",")):
        for requirement in re.findall(r'"([^"]+)"', re.sub(r"(?m)^ *#.*$", "", table[name])):
            own = re.fullmatch(r"uringcore\[(.*)\]", requirement)
            found += requirements(own[1]) if own else [requirement]
    return found


def install(python, wheel, extras, has_requirements):
    say(f"installing into {python.parent.parent.name}")
    if not has_requirements:
        requirement = f"uringcore[{extras}] @ {wheel.as_uri()}" if extras else str(wheel)
        run([*pip_install(python), requirement], "pip")
    # Not one `--force-reinstall` for all: it would fetch every dependency again.
    run([*pip_install(python), "--force-reinstall", "--no-deps", str(wheel)], "pip")


def pip_install(python):
    """The command without the requirements. To compile all installed modules would take a minute, and most
    are never imported: each is compiled by its first import."""
    return [
        str(python),
        "-m",
        "pip",
        "-q",
        "--disable-pip-version-check",
        "install",
        "--no-compile",
    ]


def clean_environment():
    """The caller's environment without the variables of an active virtual environment."""
    environment = {**os.environ, "CARGO_TERM_COLOR": "never"}
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME", "MATURIN_PGO"):
        environment.pop(name, None)
    return environment


def run(command, what, environment=None):
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment or clean_environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        raise Failed(f"{what} failed ({' '.join(command)}):\n{done.stdout.rstrip()}")


def say(text):
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
