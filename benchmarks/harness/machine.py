"""The properties of a measurement beside the code: processor, kernel, versions, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.harness.environment import ROOT, Environment
from benchmarks.harness.provenance import WARM

SHOWN = (
    "uringcore",
    "uvloop",
    "rloop",
    "blazio",
    "zloop",
    "aiofastnet",
    "aioquic",
    "qh3",
    "aiopquic",
    "hypercorn",
    "weft-server",
    "peregrine-server",
    "granian",
    "pyvoy",
    "h2corn",
    "fastapi",
    "uvicorn",
    "httptools",
    "zttp",
)
NATIVE = ("quinn", "quinn-proto", "h3", "h3-quinn", "rustls", "tokio")


def facts(environment: Environment) -> dict[str, Any]:
    """The machine, the kernel, the commit and the versions, for a result file."""
    return {
        "taken": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(_memory_kib() / 2**20),
        "kernel": platform.release(),
        "virtual": _virtual(),
        "python": environment.python_version,
        "profile": environment.profile,
        "heap": WARM,
        "versions": {
            name: environment.packages[name] for name in SHOWN if name in environment.packages
        },
        "native_versions": _native_versions(),
    }


def commit() -> str:
    """The short commit hash, with `+` if files other than results have changed."""

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else ""

    head = git("rev-parse", "--short=10", "HEAD")
    if not head:
        return "uncommitted"
    outputs = (":!BENCHMARK.md", ":!README.md", ":!benchmarks/figures", ":!docs/benchmarks")
    return head + ("+" if git("status", "--porcelain", "--", ".", *outputs) else "")


def load_average() -> float:
    """The one-minute load average: figures of a busy machine are noise."""
    return os.getloadavg()[0]


def processor() -> str:
    """The processor's name."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_kib() -> int:
    first = Path("/proc/meminfo").read_text().splitlines()[0]
    return int(first.split()[1])


def _virtual() -> bool:
    return " hypervisor " in Path("/proc/cpuinfo").read_text().replace("\n", " ")


def _native_versions() -> dict[str, str]:
    """Versions of the native programs' crates, from their lock file."""
    versions: dict[str, str] = {}
    name = ""
    lock = ROOT / "benchmarks" / "native" / "Cargo.lock"
    for line in lock.read_text().splitlines() if lock.exists() else []:
        key, _, value = line.partition(" = ")
        if key == "name":
            name = value.strip('"')
        elif key == "version" and name in NATIVE:
            versions[name] = value.strip('"')
    return versions
