"""systemd as process 1 of a separate machine: namespaces, with a file system that discards changes.

Its ports, users, units and files are private, so that instructions for a machine can be executed unchanged.
Of Debian's units only the targets exist, and these are empty.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from tests.support.child_processes import bound

__all__ = ["Booted", "why_not"]

SYSTEMD = Path("/lib/systemd/systemd")
TOOLS = ("unshare", "nsenter", "mount", "ip")
TARGETS = (
    *("basic", "multi-user", "network-online", "network", "shutdown", "sockets", "sysinit"),
    *("final", "umount", "paths", "timers", "slices", "local-fs", "swap", "cryptsetup"),
)

BOOT = """
set -eu
base=$1
mount -t tmpfs tmpfs "$base"
for folder in etc root srv var; do
    # The server is not root and has to read the interpreter.
    mkdir -p -m 755 "$base/$folder" "$base/$folder.work"
    options="lowerdir=/$folder,upperdir=$base/$folder,workdir=$base/$folder.work"
    mount -t overlay -o "$options" overlay "/$folder"
done
mount -t proc proc /proc
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs /run
for folder in system system-generators; do
    mount -t tmpfs -o mode=755 tmpfs "/usr/lib/systemd/$folder"
done
rm -rf /etc/systemd/system
mkdir -p /etc/systemd/system
shift
for target in "$@"; do
    printf '[Unit]\\nDefaultDependencies=no\\n' > "/usr/lib/systemd/system/$target.target"
done
ip link set lo up
exec env -i container=test PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \\
    /lib/systemd/systemd --system --unit=multi-user.target --log-target=null --show-status=no
"""


def why_not() -> str | None:
    """Returns the reason why no such machine can be made here, or None."""
    if not SYSTEMD.exists():
        return "systemd is not installed"
    missing = [
        tool for tool in TOOLS if shutil.which(tool, path="/usr/sbin:/usr/bin:/sbin:/bin") is None
    ]
    if missing:
        return f"{', '.join(missing)} is not installed"
    if os.geteuid():
        return "only root can make a machine of namespaces"
    return None


class Booted:
    """The machine, from its start to its end; `folder` keeps systemd's log."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "systemd.log"
        base = folder / "machine"
        base.mkdir()
        self._group = _control_groups() / f"uringcore-test-{os.getpid()}"
        self._group.mkdir()
        command = [
            *("unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup", "--fork"),
            *("--kill-child", "--propagation", "private"),
            *("bash", "-c", BOOT, "boot", str(base), *TARGETS),
        ]
        with self._log.open("wb") as output:
            self._outer = subprocess.Popen(
                bound(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=lambda: (self._group / "cgroup.procs").write_text("0"),
            )

    def __enter__(self) -> Booted:
        deadline = time.monotonic() + 60
        while self.run("systemctl is-system-running --quiet", check=False).returncode:
            assert self._outer.poll() is None and time.monotonic() < deadline, self.log()
            time.sleep(0.1)
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._outer.wait()
        deadline = time.monotonic() + 30
        while self._group.exists() and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                for group, _, _ in os.walk(self._group, topdown=False):
                    os.rmdir(group)
            time.sleep(0.02)

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def run(self, script: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs a shell script on the machine, as root."""
        inner = self._processes()
        command = ["nsenter", "--all", "--target", str(inner[0] if inner else 0)]
        done = subprocess.run(
            [*command, "sh", "-euc", script],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert not check or done.returncode == 0, f"{script}\n{done}\n{self.log()}"
        return done

    def write(self, path: str, text: str) -> None:
        """Writes a file of the machine."""
        self.run(
            f"mkdir -p {Path(path).parent} && cat > {path} <<'END OF FILE'\n{text}END OF FILE\n"
        )

    def _processes(self) -> list[int]:
        """Returns process 1, by its process ID outside."""
        try:
            return [
                int(number)
                for number in Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children")
                .read_text()
                .split()
            ]
        except FileNotFoundError:
            return []


def _control_groups() -> Path:
    unified = Path("/sys/fs/cgroup/unified")
    return unified if unified.exists() else Path("/sys/fs/cgroup")
