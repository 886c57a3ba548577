"""Fetches and unpacks the released source packages.

The source is PyPI, by pip. If a release there has no tests, the source is Debian's source package,
by apt, with a package list of its own, so that the machine's is neither read nor changed.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import urllib.request
from pathlib import Path

from tests.ecosystem.projects import Project

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".ecosystem"
KEYRINGS = ("debian-archive-keyring.gpg", "debian-archive-keyring.pgp")


class Missing(Exception):
    """A requirement that this machine lacks; the message names it, and the way to get it."""


class Unreachable(Missing):
    """A server that this machine cannot reach. Its projects are skipped."""


def unpacked(project: Project, python: Path) -> Path:
    """Return the folder with the sources of `project`, fetched if they are missing.

    `python` is an interpreter with pip.
    """
    folder = HOME / "sources" / f"{project.name}-{project.version}"
    if folder.exists():
        return folder
    downloads = HOME / "downloads" / project.name
    shutil.rmtree(downloads, ignore_errors=True)
    downloads.mkdir(parents=True)
    if project.github is not None:
        _from_github(*project.github, folder, downloads)
    elif project.debian is not None:
        _from_debian(*project.debian, project.version, downloads)
    else:
        _from_pypi(project, python, downloads)
    top = _unpacked(downloads)
    for name in project.remove:
        shutil.rmtree(top / name)
    _settle_pytest_configuration(top, project.pytest_ini)
    folder.parent.mkdir(parents=True, exist_ok=True)
    top.rename(folder)
    shutil.rmtree(downloads)
    return folder


def _unpacked(downloads: Path) -> Path:
    staging = downloads / "unpacked"
    wheels = list(downloads.glob("*.whl"))
    if wheels:
        shutil.unpack_archive(wheels[0], staging, "zip")
        return staging
    [archive] = [one for one in downloads.iterdir() if ".tar." in one.name]
    with tarfile.open(archive) as tar:
        tar.extractall(staging, filter="data") if hasattr(
            tarfile, "data_filter"
        ) else tar.extractall(staging)
    [top] = staging.iterdir()
    return top


def _settle_pytest_configuration(top: Path, ini_text: str) -> None:
    """pytest searches parent folders for a configuration: without one of its own, a suite would get
    ours.
    """
    if ini_text:
        (top / "pytest.ini").write_text(ini_text)
        return
    project = top / "pyproject.toml"
    if project.exists() and "[tool.pytest" in project.read_text():
        return
    ini = top / "pytest.ini"
    if not ini.exists():
        ini.write_text("[pytest]\n")


def _from_pypi(project: Project, python: Path, folder: Path) -> None:
    command = [str(python), "-m", "pip", "download", "-q", "--disable-pip-version-check"]
    command += ["--no-deps", "-d", str(folder)]
    if not project.wheel:
        command += ["--no-binary", project.release]
    _run([*command, f"{project.release}=={project.version}"], f"fetching {project.name}'s sources")


def _from_github(repository: str, commit: str, folder: Path, downloads: Path) -> None:
    url = f"https://codeload.github.com/{repository}/tar.gz/{commit}"
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            (downloads / "sources.tar.gz").write_bytes(answer.read())
    except OSError as exc:
        raise Unreachable(
            f"{url} cannot be fetched ({exc}); where there is a network, unpack it to {folder}"
        ) from exc


def _from_debian(package: str, suite: str, version: str, folder: Path) -> None:
    """Return the upstream tar file of Debian's source package, checked by apt against Debian's
    keys.
    """
    if shutil.which("apt-get") is None:
        raise Missing(
            f"{package}'s tests are only in Debian's source package, and this machine has no apt; "
            f"unpack {package} {version} to {HOME / 'sources'} by hand"
        )
    state, cache = folder / "apt-state", folder / "apt-cache"
    for part in (state / "lists" / "partial", cache / "archives" / "partial"):
        part.mkdir(parents=True)
    keyring = next(
        (path for name in KEYRINGS if (path := Path("/usr/share/keyrings") / name).exists()), None
    )
    mirror = _debian_mirror()
    if keyring is None or mirror is None:
        raise Missing(f"{package}'s tests come from Debian's archive, and this is not Debian")
    sources = folder / "sources.list"
    sources.write_text(f"deb-src [signed-by={keyring}] {mirror} {suite} main\n")
    options = [
        *("-o", f"Dir::Etc::sourcelist={sources}", "-o", "Dir::Etc::sourceparts=-"),
        *("-o", f"Dir::State={state}", "-o", f"Dir::Cache={cache}", "-o", "APT::Sandbox::User="),
    ]
    _run(["apt-get", "-q", *options, "update"], f"reading Debian's list of sources ({suite})")
    command = ["apt-get", "-q", *options, "source", "--tar-only", "--only-source", package]
    _run(command, f"fetching Debian's source package {package}", folder)
    if not any(version in one.name for one in folder.iterdir() if ".tar." in one.name):
        raise Missing(f"Debian {suite} no longer has version {version} of {package}")


def _debian_mirror() -> str | None:
    """Return this machine's mirror of Debian's packages."""
    found = subprocess.run(
        [
            "apt-get",
            "indextargets",
            "--format",
            "$(SITE)",
            "Created-By: Packages",
            "Origin: Debian",
        ],
        capture_output=True,
        text=True,
    ).stdout.split()
    return next((site for site in found if not site.rstrip("/").endswith("-security")), None)


def _run(command: list[str], what: str, folder: Path | None = None) -> None:
    done = subprocess.run(
        command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        raise Missing(f"{what} failed:\n{done.stdout.rstrip()}")
