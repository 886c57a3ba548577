"""Run the targets in fuzz/ with libFuzzer, one after the other.

    python .ci/fuzz.py --seconds 600 quic_datagrams wire_frames   every target without a name
    python .ci/fuzz.py quic_datagrams --input FILE                a found input once more

A stable compiler is enough: coverage is an LLVM pass that stable Rust supports. AddressSanitizer (`cargo
+nightly fuzz run`) would find little, because the crate under test forbids `unsafe`. The corpus of a target
is kept in the target folder, and its next run starts from it. After a failure the exit status is 1, once
all targets have run.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MANIFEST = ROOT / "fuzz" / "Cargo.toml"
FOLDER = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute() / "fuzz"
# The flags of cargo-fuzz without the sanitizer. With more than one codegen unit the linker drops counters.
COVERAGE = (
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
)
TOOLS = {
    "cargo": "a Rust toolchain (rustup, or your distribution's rustc and cargo)",
    "c++": "a C++ compiler, which builds libFuzzer (on Debian and Ubuntu: apt-get install g++)",
    "cmake": "cmake, which builds the TLS library (on Debian and Ubuntu: apt-get install cmake)",
}
MEGABYTES_MAX = 2048
# The longest time that a target may take for one input.
INPUT_SECONDS_MAX = 30


def main():
    parser = argparse.ArgumentParser(description="Run fuzz targets.")
    parser.add_argument("targets", nargs="*", help="every target without a name")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--input", type=pathlib.Path, help="run this file once, and nothing else")
    options = parser.parse_args()
    lacking = [what for tool, what in TOOLS.items() if not shutil.which(tool)]
    if lacking:
        sys.exit(f"fuzzing needs {'; '.join(lacking)}")
    known = known_targets()
    targets = options.targets or known
    if unknown := sorted(set(targets) - set(known)):
        sys.exit(f"no fuzz target is called {', '.join(unknown)}; there are {', '.join(known)}")
    programs = build(targets)
    if options.input:
        if len(targets) != 1:
            sys.exit("--input needs the name of one target")
        sys.exit(subprocess.run([programs / targets[0], options.input]).returncode)
    failed = [target for target in targets if not passes(target, programs, options.seconds)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def known_targets():
    command = ["cargo", "metadata", "--no-deps", "--locked", "--format-version", "1"]
    (package,) = json.loads(output(*command, "--manifest-path", MANIFEST))["packages"]
    return sorted(target["name"] for target in package["targets"])


def build(targets):
    """Build the targets; return the folder of the programs. Cargo's output shows a failure."""
    # With an explicit `--target`, build scripts and macros are built without coverage.
    host = re.search(r"^host: (.*)$", output("rustc", "-vV"), re.MULTILINE)[1]
    names = [word for target in targets for word in ("--bin", target)]
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--target", host, *names]
    flags = " ".join([os.environ.get("RUSTFLAGS", ""), *COVERAGE]).strip()
    environment = {**os.environ, "CARGO_TARGET_DIR": str(FOLDER), "RUSTFLAGS": flags}
    done = subprocess.run([*command, "--manifest-path", MANIFEST], env=environment)
    if done.returncode:
        sys.exit("the fuzz targets do not build")
    return FOLDER / host / "release"


def passes(target, programs, seconds):
    corpus, findings = FOLDER / "corpus" / target, FOLDER / "findings"
    for folder in (corpus, findings):
        folder.mkdir(parents=True, exist_ok=True)
    log = findings / f"{target}.log"
    command = [
        programs / target,
        corpus,
        f"-max_total_time={seconds}",
        f"-artifact_prefix={findings}/{target}-",
        f"-rss_limit_mb={MEGABYTES_MAX}",
        f"-timeout={INPUT_SECONDS_MAX}",
    ]
    print(f"{target}: ", end="", flush=True)
    with log.open("wb") as file:
        status = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT).returncode
    said = log.read_text(errors="replace")
    if status == 0:
        runs = re.search(r"^Done (\d+) runs", said, re.MULTILINE)
        reached = re.findall(r" cov: (\d+) ", said)
        print(f"{runs[1]} inputs, {reached[-1] if reached else 0} places reached, no failure")
        return True
    panic = re.search(r"panicked at (.*)\n(.*)", said)
    print(f"FAILED: {' '.join(panic.groups()) if panic else f'status {status}'}")
    if found := re.search(r"Test unit written to (\S+)", said):
        print(f"    python .ci/fuzz.py {target} --input {found[1]}")
    print(f"    {log}", flush=True)
    return False


def output(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command[:2]))} failed")
    return done.stdout


if __name__ == "__main__":
    main()
