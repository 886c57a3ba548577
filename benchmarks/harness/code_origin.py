"""The origin of a sampled address in the source: the crate of the innermost inlined function.

A release build has functions of many crates in one symbol, so symbols alone show little. Line tables (`debug
= "line-tables-only"`) name the file of every inlined call at an address; the innermost file that is neither
Rust's library nor a bare container owns it. profile.py chooses the rooms of the profile.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path

# Library code without an owner: its time belongs to the caller.
TRANSPARENT = re.compile(
    r"/rustc/|/rustlib/|^library/|/rust/deps/|/hashbrown-|/slab-|/rustc-hash-|/tinyvec-"
)
CRATE = re.compile(r"/registry/src/[^/]+/(?P<name>.+?)-\d+\.\d+[^/]*/")
OURS = re.compile(r"(?:^|/)src/(?P<room>io|wire|limits|quic|h3|http|engine|py)/")
PROGRAM = re.compile(r"/benchmarks/native/")
FOREIGN = "C"
"""Code without a line table: aws-lc's C and assembler, which is all the C in the objects."""


def owner(files: Iterable[str]) -> str:
    """The crate that owns an address; `files` are its inlined calls, innermost first."""
    last = FOREIGN
    for file in files:
        if file.startswith("?"):
            continue
        if TRANSPARENT.search(file):
            last = "std"
        elif crate := CRATE.search(file):
            return "C" if crate["name"].endswith("-sys") else crate["name"]
        elif room := OURS.search(file):
            return f"uringcore-{room['room']}"
        elif PROGRAM.search(file):
            return "program"
    return last


class Object:
    """One executable or shared object with line tables."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._segments = _segments(path)

    def addresses(self, offsets: Iterable[int]) -> dict[int, int]:
        """The link-time address of each offset in the file that belongs to a loaded segment."""
        found = {}
        for offset in offsets:
            for start, size, address in self._segments:
                if start <= offset < start + size:
                    found[offset] = offset - start + address
        return found

    def offset(self, address: int) -> int:
        """The offset in the file of a link-time address."""
        for start, size, base in self._segments:
            if base <= address < base + size:
                return address - base + start
        raise ValueError(f"{self._path}: no segment has {address:#x}")

    def owners(self, addresses: Iterable[int]) -> dict[int, str]:
        """The owning crate of each link-time address."""
        ordered = sorted(set(addresses))
        tool = shutil.which("llvm-addr2line") or shutil.which("addr2line")
        if tool is None or not ordered:
            return {}
        done = subprocess.run(
            [tool, "-a", "-i", "-f", "-e", str(self._path)],
            input="\n".join(hex(address) for address in ordered),
            capture_output=True,
            text=True,
            check=True,
        )
        files: dict[int, list[str]] = {}
        lines = iter(done.stdout.splitlines())
        at = 0
        for line in lines:
            if line.startswith("0x"):
                at = int(line, 16)
                files[at] = []
            else:
                # A function's name, then its `file:line`.
                files[at].append(next(lines))
        return {address: owner(found) for address, found in files.items()}


def _segments(path: Path) -> list[tuple[int, int, int]]:
    """File offset, size and address of each loaded segment of a 64-bit little-endian ELF file."""
    with path.open("rb") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path}: not a 64-bit little-endian ELF file")
        (table,) = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        file.seek(table)
        entries = [file.read(size) for _ in range(count)]
    segments = []
    for entry in entries:
        kind, _, offset, address, _, in_file, _, _ = struct.unpack_from("<IIQQQQQQ", entry)
        if kind == 1:  # PT_LOAD
            segments.append((offset, in_file, address))
    return segments
