# uringcore's commands. `make demo` shows it at work, `make test` builds and tests it on this machine's
# default CPython, `make test-all` on others too, `make check` runs every lint.
#
# Needed: CPython >= 3.10 with venv, Rust, a C compiler and cmake. All else goes into .venv*.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-all test-rust test-conformance test-interop test-browser test-stress test-served test-asan test-ecosystem test-autobahn fuzz check wheel bench bench-instructions develop clean

export CARGO_TARGET_DIR ?= $(CURDIR)/target
export CARGO_TERM_COLOR ?= auto
# What was compiled once is kept, whatever the user likes elsewhere: each process of a test run imports it again.
unexport PYTHONDONTWRITEBYTECODE

# Asked once: it runs every interpreter of the machine.
ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell python3 .ci/pythons.py default)
endif
# `make test PYTEST="-x tests/loop"` narrows the run.
PYTEST ?=
# Close to release speed without the minutes that link-time optimisation takes.
TEST_PROFILE ?= dev-opt
# What is installed for Python's tests; `make test BUILD=guided` tests what `make wheel` builds.
BUILD ?= $(TEST_PROFILE)
DEV_VENV := .venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
PACKAGES := python examples tests benchmarks .ci
# Crates outside of the workspace, with lock files of their own, which follow ours.
OTHER_CRATES := benchmarks/native tests/interop/quinn tests/interop/webtransportquinn fuzz

help:
	@echo 'make demo     set up, serve the FastAPI example, fetch it over HTTP/1.1 and HTTP/3, print a table'
	@echo 'make test     cargo test, then pytest on the default CPython'
	@echo 'make test-all  the same on the oldest, default and newest CPython >= 3.10 here, and on 3.14 and 3.15'
	@echo 'make check    rustfmt, clippy, ruff, mypy, stubtest, tests of the tree, whether fuzz/ compiles, and all lock files are up to date'
	@echo 'make test-conformance  run CPython'"'"'s asyncio tests on every interpreter here, print a table'
	@echo 'make test-interop  play every case of QUIC, HTTP/3 and WebTransport with every peer (quic-go, curl, nginx...)'
	@echo 'make test-browser  Chromium and Firefox: pages over HTTP/3, WebTransport and its web-platform-tests'
	@echo 'make test-stress  random scenarios of connections, processes and loops for as long as wanted'
	@echo 'make test-served  a minute of load on a server whose clients and workers are killed'
	@echo 'make test-asan  the Rust tests and a stress run under AddressSanitizer (nightly Rust)'
	@echo 'make fuzz     every fuzz target for a minute, or some for longer'
	@echo 'make test-ecosystem  run the suites of websockets, aiohttp, asyncpg... on this loop and on asyncio'
	@echo 'make test-autobahn  run the Autobahn test suite of WebSocket against --http native (needs Python 2.7)'
	@echo 'make bench    measure against the peers, write BENCHMARK.md and docs/benchmarks'
	@echo 'make bench-instructions  count the instructions of the hot paths, compare with the committed counts'
	@echo 'make wheel    the wheel as it is released, in dist/: optimised by a profile of its hot paths'
	@echo 'make develop  an environment in $(DEV_VENV) to work on the tree with'
	@echo 'make clean    remove the environments and everything built'

demo:
	@$(PYTHON) .ci/venv.py --venv .venv --python "$(PYTHON)" --extras demo --profile release
	@.venv/bin/python examples/demo.py

# More processes than processors: most of a test is waiting, for a server's start, a time-out or the next look at a fact.
PROCESSES ?= $(shell n=$$((3 * $$(nproc))); echo $$((n < 12 ? n : 12)))
PYTEST_RUN = -m pytest -q -n $(PROCESSES) --dist worksteal
# The bindings have no Rust tests, and are built for each interpreter by itself.
# Their package is named all the same: without it others are built with fewer features, a second time.
RUST_TESTS := --workspace --profile $(TEST_PROFILE) --locked --quiet

# Rust's tests are built and run beside Python's. Tests of code above the driver run each case on one backend here, in
# turn, and on both in test-all (tests/support/one_backend_per_case.py). Also left to test-all: cases with other QUIC
# implementations and with browsers (`wire`), because what they see is the wire, which is the same under every
# interpreter; programs of the benchmarks (`measuring`); random scenarios and loads (`soak`); and examples in
# comments of Rust, of which there are none and for which each crate would be read once more. `make check` has `lint`.
TESTED := not lint and not wire and not measuring and not soak
test: $(DEV_VENV)
	@log="$$(mktemp)"; trap 'rm -f "$$log"; kill $$(jobs -p) 2>/dev/null || true' EXIT; \
	env --default-signal=INT cargo test $(RUST_TESTS) --tests > "$$log" 2>&1 < /dev/null & rust=$$!; \
	$(DEV_VENV)/bin/python -m tests.fetch --without-peers; \
	python=0; $(DEV_VENV)/bin/python $(PYTEST_RUN) -m "$(TESTED)" --backends-in-turn $(PYTEST) || python=$$?; \
	status=0; wait $$rust || status=$$?; \
	echo '== cargo test'; cat "$$log"; \
	if [[ $$status != 0 || $$python != 0 ]]; then exit 1; fi

# The programs of other projects that tests play with: no test fetches any. Tests of what cannot be had are skipped.
.PHONY: fetch
fetch: $(DEV_VENV)
	@$(DEV_VENV)/bin/python -m tests.fetch

# With ten times the mutated datagrams of `make test` (src/quic/tests/mutated_datagrams.rs and invalid_datagrams.rs).
test-rust:
	@MUTATED=1000000 cargo test $(RUST_TESTS)

# One interpreter after the other: every test on the default one; on the others, no test whose result is the same under
# every interpreter (`wire`, `peer_input`, `measuring`), no long load (`soak`), and each test of code above the driver on
# one backend, in turn. The versions that the machine lacks come from Debian's unstable packages
# (.ci/debian_unstable.py), where that can be.
# With RETRY=1, as `.ci/run` has it, tests that failed run once more, alone and at the end (.ci/retry.py); not with -x or
# --maxfail, after which nobody knows of the tests that had no turn.
RETRY ?=
ifneq ($(and $(RETRY),$(filter -x% --exitfirst --maxfail%,$(PYTEST))),)
$(error RETRY runs nothing again after -x or --maxfail: leave out one of them)
endif
test-all: test-rust fetch
	@lacking="$$(mktemp)"; trap 'cat "$$lacking" >&2; rm -f "$$lacking"' EXIT; \
	interpreters="$$(python3 .ci/pythons.py 2> "$$lacking")"; \
	failed=; \
	while read -r role version path; do \
	    extras=test; share=(-m "not wire and not peer_input and not measuring and not soak" --backends-in-turn); \
	    if [[ ".venv-$$version" == "$(DEV_VENV)" ]]; then extras=dev; share=(); fi; \
	    python3 .ci/venv.py --venv ".venv-$$version" --python "$$path" --extras $$extras --profile $(TEST_PROFILE); \
	    echo "== pytest on CPython $$version ($$role)"; \
	    rm -rf ".pytest_cache/$$version"; \
	    ".venv-$$version/bin/python" $(PYTEST_RUN) -o cache_dir=".pytest_cache/$$version" "$${share[@]}" $(PYTEST) < /dev/null \
	    || failed+=" $$version=$$?"; \
	done <<< "$$interpreters"; \
	if [[ -n $$failed && -n "$(RETRY)" ]]; then $(PYTHON) .ci/retry.py $$failed; \
	elif [[ -n $$failed ]]; then echo "failed on CPython (with pytest's status)$$failed" >&2; exit 1; fi

# Tests that read the tree, and programs for type checkers.
LINTS := tests/tidy tests/loop/test_typing.py tests/quic/native/test_typing.py

check: $(DEV_VENV)
	@cargo fmt --all --check
	@cargo clippy --workspace --all-targets --profile $(TEST_PROFILE) --locked --quiet -- -D warnings
	@$(DEV_VENV)/bin/ruff check --quiet $(PACKAGES)
	@$(DEV_VENV)/bin/ruff format --quiet --check $(PACKAGES)
	@$(DEV_VENV)/bin/mypy
	@$(DEV_VENV)/bin/python -m mypy.stubtest uringcore._uringcore
	@$(DEV_VENV)/bin/python -m pytest -q -n $(PROCESSES) -m lint $(LINTS)
# On the stable compiler, with the profiles of the workspace and what it has built, and without libFuzzer itself.
	@CUSTOM_LIBFUZZER_PATH=/dev/null cargo check --manifest-path fuzz/Cargo.toml --config Cargo.toml \
	    --profile $(TEST_PROFILE) --locked --quiet
	@for folder in $(OTHER_CRATES); do \
	    cargo tree --quiet --locked --offline --manifest-path "$$folder/Cargo.toml" > /dev/null 2>&1 \
	    || cargo tree --quiet --locked --manifest-path "$$folder/Cargo.toml" > /dev/null \
	    || { echo "$$folder/Cargo.lock is out of date: cargo update --workspace --manifest-path $$folder/Cargo.toml" >&2; exit 1; }; \
	done

# All of CPython's asyncio tests that a foreign loop can run, on every interpreter that pythons.py finds, both
# backends and stock asyncio beside them: three quarters of an hour. `make test` runs the groups that hang on the loop.
# `make test-conformance CONFORMANCE="ssl streams"` narrows it.
CONFORMANCE ?= --all
test-conformance:
	@rm -rf .conformance; mkdir .conformance; \
	while read -r version path; do \
	    extras=test; if [[ ".venv-$$version" == "$(DEV_VENV)" ]]; then extras=dev; fi; \
	    python3 .ci/venv.py --venv ".venv-$$version" --python "$$path" --extras $$extras --profile $(TEST_PROFILE); \
	    ".venv-$$version/bin/python" -m tests.conformance $(CONFORMANCE) --json ".conformance/$$version.json" \
	        < /dev/null || echo "CPython $$version differs"; \
	done < <(python3 .ci/pythons.py every); \
	$(PYTHON) -m tests.conformance.table .conformance/*.json

# QUIC, HTTP/3 and WebTransport with other implementations, both roles, through the impairment proxy: half an hour. Needs
# Go and Rust for those written in them; `make test-interop INTEROP="--cases v2 zerortt --peers quic-go"` narrows it. Then
# `python -m tests.interop.table` writes docs/interoperability.md.
INTEROP ?=
test-interop: $(DEV_VENV)
	@$(DEV_VENV)/bin/python -m tests.interop $(INTEROP)

# Installs the browsers first, where that can be. `make test-all` runs the first of the two with the browsers that
# are there; the second is all that the web-platform-tests ask of WebTransport. `make test-browser
# BROWSER="--browser firefox --server webtransport-go close"` narrows that.
BROWSER ?=
test-browser: $(DEV_VENV)
	@python3 .ci/browsers.py
	@$(DEV_VENV)/bin/python -m tests.fetch
	@$(DEV_VENV)/bin/python -m pytest -q tests/browser
	@$(DEV_VENV)/bin/python -m tests.browser.platform $(BROWSER)

# `make test-stress STRESS="--seconds 3600 --seed 5"`; a failure prints the seed that repeats it.
STRESS ?= --seconds 300
test-stress: $(DEV_VENV)
	@for backend in uring epoll; do $(DEV_VENV)/bin/python -W ignore -m tests.stress --backend $$backend $(STRESS); done

# `make test-served SERVED="--seconds 600 --seed 5"`: a server with workers, clients of HTTP/1.1, 2 and 3, and faults.
SERVED ?= --seconds 60
test-served: $(DEV_VENV)
	@for backend in uring epoll; do $(DEV_VENV)/bin/python -m tests.stress.served --backend $$backend $(SERVED); done

# The rooms of Rust under AddressSanitizer, then the extension module with a stress run on top.
ASAN_STRESS ?= --seconds 60
test-asan: $(DEV_VENV)
	@$(DEV_VENV)/bin/python .ci/asan.py $(ASAN_STRESS)

# `make fuzz FUZZ="--seconds 600 quic_datagrams"`; without names every target, a minute each. A failure prints the
# command that repeats it.
FUZZ ?=
fuzz:
	@$(PYTHON) .ci/fuzz.py $(FUZZ)

# Other projects' own test suites, an hour in all: `make test-ecosystem ECOSYSTEM="websockets uring"`
# narrows it. PostgreSQL and Redis have to be installed (Debian: postgresql, redis-server).
ECOSYSTEM ?=
test-ecosystem:
	@$(PYTHON) -m tests.ecosystem $(ECOSYSTEM)

# The Autobahn test suite against a server with `--http native`, on both backends: half an hour. It needs Python 2.7 with
# pip, and says so where there is none. `make test-autobahn AUTOBAHN="--backend epoll 1.* 9.*"` narrows it.
AUTOBAHN ?=
test-autobahn: $(DEV_VENV)
	@$(DEV_VENV)/bin/python -m tests.http.websocket.autobahn $(AUTOBAHN)

# Hours; `make bench BENCH="--quick tcp_echo_1k_c100 micro"` takes a minute or two, and ten before that for the wheel
# if its sources have changed (`make wheel`). On the newest interpreter, because aiopquic's wheels
# need CPython 3.12; `make bench PYTHON=python3.11` takes another.
BENCH ?=
bench: PYTHON = $(shell python3 .ci/pythons.py newest)
bench:
	@$(PYTHON) benchmarks/run.py $(BENCH)

# Holds on a busy machine too. Three minutes beside the release build, in the demo's environment; needs valgrind.
# `make bench-instructions INSTRUCTIONS=--record` makes the counts the baseline.
INSTRUCTIONS ?=
bench-instructions:
	@$(PYTHON) .ci/venv.py --venv .venv --python "$(PYTHON)" --extras demo --profile release
	@.venv/bin/python -m benchmarks.instructions $(INSTRUCTIONS)

# A quarter of an hour: it is built twice, and its hot paths run in between (benchmarks/training.py). Needs rustup's
# llvm-tools, which are fetched. `make wheel PYTHON=python3.12` is for another CPython.
wheel:
	@$(PYTHON) .ci/venv.py --venv .venv-wheel --python "$(PYTHON)" --profile guided --out dist

develop: $(DEV_VENV)
	@echo 'source $(DEV_VENV)/bin/activate; after a change of Rust code: maturin develop --profile dev-opt'

# Always asked; venv.py knows whether there is anything to do.
.PHONY: $(DEV_VENV)
$(DEV_VENV):
	@$(PYTHON) .ci/venv.py --venv $(DEV_VENV) --python "$(PYTHON)" --extras dev --profile $(BUILD)

clean:
	rm -rf .venv .venv-* target dist build .pytest_cache .mypy_cache .ruff_cache
