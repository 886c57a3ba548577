"""AddressSanitizer over the Rust crates: their own tests, then the stress test on the extension module.

    python .ci/asan.py --seconds 60        arguments go to `python -m tests.stress`

This needs a nightly Rust toolchain (`-Zsanitizer` is unstable). The second part also needs the C compiler's
libasan: the interpreter is not instrumented, so the sanitizer's runtime has to be loaded before it starts.
Leak detection is off: CPython keeps much memory until its end. tests/stress counts objects left over.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = "x86_64-unknown-linux-gnu"
ROOMS = (
    "uringcore-io",
    "uringcore-wire",
    "uringcore-limits",
    "uringcore-quic",
    "uringcore-h3",
    "uringcore-http",
    "uringcore-engine",
)
# It measures what glibc's heap gives back. The sanitizer has a heap of its own, which keeps freed memory.
GLIBC_HEAP = "freed_memory_below_what_is_in_use_goes_back_on_a_thread_that_ends"
BACKENDS = ("uring", "epoll")


def main(arguments):
    toolchains = output("rustup", "toolchain", "list") if shutil.which("rustup") else ""
    if "nightly" not in toolchains:
        sys.exit("a nightly Rust toolchain was not found (rustup toolchain install nightly)")
    folder = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "asan"
    environment = {
        **os.environ,
        "CARGO_TARGET_DIR": str(folder),
        "RUSTFLAGS": "-Zsanitizer=address",
        "PYO3_PYTHON": sys.executable,
        # Leaks of CPython and of the test harness would hide all other reports.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
    }
    cargo = ["cargo", "+nightly"]
    rooms = [word for room in ROOMS for word in ("-p", room)]
    test = ["test", "--locked", "--quiet", "--target", TARGET, *rooms, "--", "--skip", GLIBC_HEAP]
    run([*cargo, *test], environment)
    runtime = output("cc", "-print-file-name=libasan.so").strip()
    if not os.path.isabs(runtime):
        sys.exit("libasan of the C compiler was not found (on Debian and Ubuntu: libasan8)")
    build = ["build", "--locked", "--quiet", "--target", TARGET, "--lib", "-p", "uringcore-py"]
    run([*cargo, *build], environment)
    package = folder / "site" / "uringcore"
    shutil.rmtree(package.parent, ignore_errors=True)
    ignore = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "python" / "uringcore", package, ignore=ignore)
    module = f"_uringcore{sysconfig.get_config_var('EXT_SUFFIX')}"
    built = folder / TARGET / "debug" / "lib_uringcore.so"
    if b"__asan_report_load8" not in built.read_bytes():
        sys.exit("the extension module was built without the sanitizer")
    shutil.copy(built, package / module)
    environment |= {
        "LD_PRELOAD": runtime,
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(package.parent),
    }
    for backend in BACKENDS:
        stress = ["-W", "ignore", "-m", "tests.stress", "--backend", backend, *arguments]
        run([sys.executable, *stress], environment)


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def run(command, environment):
    print(f"== {' '.join(command)}", flush=True)
    done = subprocess.run(command, cwd=ROOT, env=environment)
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main(sys.argv[1:])
