"""The projects whose suites are run: the release, the suite's requirements, the part of it that
runs.

Parts left out here are left out on every loop alike: parts without an event loop, linters,
benchmarks, tests that need a network beyond this machine. exceptions.py lists the tests that may
differ on our loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

PYTEST = ("pytest==9.1.1", "pytest-timeout==2.4.0")


@dataclass(frozen=True)
class Project:
    """One released project and the way to run its suite."""

    name: str
    version: str
    distribution: str = ""
    """The name on PyPI, if it differs from ``name``."""
    requirements: tuple[str, ...] = ()
    """Distributions that are installed besides the project and pytest."""
    extras: str = ""
    arguments: tuple[str, ...] = ("tests",)
    """Arguments of pytest, after the plugin and an emptied `addopts`."""
    environment: dict[str, str] = field(default_factory=dict)
    service: str | None = None
    """A server that the suite talks to: `redis` or `postgresql` (redis_and_postgresql.py)."""
    needs_ipv6_localhost: bool = False
    """True if it expects an IPv6 address of the name `localhost` too (localhost_names.py)."""
    remove: tuple[str, ...] = ()
    """Folders of the sources that would hide the installed package with its compiled parts."""
    debian: tuple[str, str] | None = None
    """Debian's source package and its suite, for a release whose PyPI package has no tests."""
    github: tuple[str, str] | None = None
    """A repository and its tag or commit, for tests that no package contains."""
    wheel: bool = False
    """The release on PyPI has no source package, so its wheel is unpacked instead."""
    on_pypi: bool = True
    """False: the project is imported from its sources."""
    python: tuple[int, int] = (3, 10)
    """The oldest interpreter that the release runs on."""
    pytest_ini: str = ""
    """Replaces the project's own configuration of pytest."""
    test_seconds: float = 60.0
    """A test that takes longer hangs."""
    aioquic: bool = False
    """Written for aioquic: its imports become uringcore's on our loops (inside/aioquic_renamed.py)."""

    @property
    def release(self) -> str:
        """The name on PyPI."""
        return self.distribution or self.name


INSIDE = Path(__file__).resolve().parent / "inside"
"""Tests of our own that run examples of releases without a suite, and plugins for suites."""

PROJECTS: tuple[Project, ...] = (
    Project(
        "websockets",
        "15.0.1",
        # The releases on PyPI have no tests of the asyncio implementation; Debian's sources do.
        debian=("python-websockets", "trixie"),
        requirements=("werkzeug", "python-socks[asyncio]"),
        arguments=("tests/asyncio", "tests/legacy"),
        environment={"WEBSOCKETS_TESTS_TIMEOUT_FACTOR": "20"},
    ),
    Project(
        "aiohttp",
        "3.14.5",
        extras="speedups",
        requirements=(
            "blockbuster",
            "coverage",
            "freezegun",
            "isal",
            "proxy.py>=2.4.4rc5",
            "pytest-codspeed",
            "pytest-mock",
            "pytest-xdist",
            "re-assert",
            "trustme",
            "zlib_ng",
        ),
        arguments=(
            *("-m", "not dev_mode and not autobahn and not internal", "tests"),
            # Parsers, data structures and benchmarks, which use no loop.
            *("--ignore-glob=tests/test_benchmarks_*", "--ignore=tests/autobahn"),
            *("--ignore=tests/test_http_parser.py", "--ignore=tests/test_multipart_helpers.py"),
            *("--ignore=tests/test_helpers.py", "--ignore=tests/test_cookie_helpers.py"),
            *("--ignore=tests/test_cookiejar.py", "--ignore=tests/test_imports.py"),
            *("--ignore=tests/test_circular_imports.py", "--ignore=tests/test_urldispatch.py"),
            *("--ignore=tests/test_websocket_parser.py", "--ignore=tests/test_leaks.py"),
        ),
        remove=("aiohttp",),
    ),
    Project(
        # Its own transports over any loop's readers and writers.
        "aiofastnet",
        "1.2.0",
        requirements=("async-timeout", "pytest-asyncio==1.5.0"),
        arguments=(
            "tests",
            *("--ignore=tests/test_benchmarks.py", "--ignore=tests/test_typing.py"),
        ),
        remove=("aiofastnet",),
    ),
    Project(
        "anyio",
        "4.16.0",
        requirements=(
            "blockbuster",
            "hypothesis",
            "psutil",
            "pytest-mock",
            "trustme",
            "truststore",
        ),
        arguments=(
            *("-p", "anyio", "-p", "pytest_mock", "-p", "timeout", "-p", "no:asyncio"),
            *("-m", "not network", "tests"),
        ),
        needs_ipv6_localhost=True,
    ),
    Project(
        "asyncpg",
        "0.32.0",
        requirements=("distro",),
        arguments=(
            *("--assert=plain", "--import-mode=importlib", "tests"),
            # flake8 and mypy over asyncpg's own sources.
            "--ignore=tests/test__sourcecode.py",
        ),
        service="postgresql",
        remove=("asyncpg",),
    ),
    Project(
        "redis",
        "8.1.0",
        requirements=(
            "cryptography",
            "aiohttp",
            "numpy",
            "pybreaker",
            "pyjwt",
            "pytest-asyncio==1.5.0",
            "redis-entraid",
            "ujson",
            "xxhash",
            "opentelemetry-api",
            "opentelemetry-sdk",
        ),
        arguments=(
            *("tests/test_asyncio", "-m", "not onlycluster and not redismod and not ssl"),
            # Needs a Redis Enterprise, a cluster, or sentinels.
            *("--ignore=tests/test_asyncio/test_scenario",),
        ),
        service="redis",
        test_seconds=120.0,
    ),
    Project(
        "uvicorn",
        "0.54.0",
        extras="standard",
        requirements=(
            "a2wsgi==1.10.10",
            "cryptography",
            "httpx2",
            "pytest-codspeed",
            "pytest-mock",
            "pytest-xdist",
            "trustme",
            "wsproto",
            "zttp==0.0.35",
        ),
        arguments=("tests", "--ignore=tests/benchmarks"),
    ),
    Project(
        # The native classes over HTTP/1.1, in place of uvicorn's.
        "uvicorn-native",
        "0.54.0",
        distribution="uvicorn",
        extras="standard",
        requirements=(
            *("a2wsgi==1.10.10", "cryptography", "httpx2", "pytest-mock", "pytest-xdist"),
            *("trustme", "wsproto", "zttp==0.0.35"),
        ),
        arguments=(
            *("-p", "uvicorn_native", "tests/protocols/test_http.py"),
            *("tests/protocols/test_websocket.py", "tests/test_default_headers.py"),
        ),
    ),
    Project(
        "httpx",
        "0.28.1",
        extras="brotli,cli,http2,socks,zstd",
        # The versions that the release was tested with; newer ones fail its tests on any loop.
        requirements=(
            "chardet==5.2.0",
            "click==8.1.7",
            "cryptography",
            "trio==0.27.0",
            "trustme",
            "uvicorn==0.32.1",
        ),
        arguments=("tests", "-m", "not network"),
    ),
    Project(
        "starlette",
        "1.10.0",
        extras="full",
        requirements=(
            "blockbuster",
            "httpx2[zstd]",
            "importlib-metadata",
            "opentelemetry-sdk",
            "trio",
        ),
        arguments=("tests", "-m", "not benchmark", "-k", "not trio"),
    ),
    Project(
        "hypercorn",
        "0.18.0",
        requirements=(
            "httpx",
            "hypothesis",
            "mock",
            "pytest-asyncio==1.5.0",
            "pytest-trio",
            "trio",
        ),
        arguments=("tests", "--ignore=tests/trio", "--ignore=tests/e2e"),
    ),
    Project(
        "aiosmtplib",
        "5.1.3",
        requirements=("aiosmtpd", "hypothesis", "pytest-asyncio==1.5.0", "trustme"),
        arguments=("--import-mode=importlib", "tests"),
    ),
    Project(
        "aioquic",
        "1.7.2",
        # The others test aioquic's internals: packets, keys, recovery, the handshake, and the
        # single datagrams and timers of its state machine.
        arguments=(
            *("-p", "aioquic_suite", "tests/test_asyncio.py", "tests/test_buffer.py"),
            *("tests/test_h0.py", "tests/test_h3.py", "tests/test_logger.py"),
            "tests/test_webtransport.py",
        ),
        environment={"ECOSYSTEM_PLACEHOLDERS": "1"},
        aioquic=True,
    ),
    Project(
        "dnspython",
        "2.9.2",
        extras="doh,doq,trio",
        # The rest tests names and records, or queries servers on the internet.
        arguments=("tests/test_doq.py", "tests/test_tsig_doh_doq.py"),
        # Its server could send Retry packets of its own, and sends none.
        environment={"ECOSYSTEM_PLACEHOLDERS": "1"},
        aioquic=True,
    ),
    Project(
        "pywebtransport",
        # The last release that uses aioquic.
        "0.8.0",
        arguments=(str(INSIDE / "examples_of_pywebtransport.py"),),
        aioquic=True,
    ),
    Project(
        "http3x",
        "0.2.1",
        requirements=("trustme",),
        arguments=(str(INSIDE / "examples_of_http3x.py"),),
        python=(3, 12),
        aioquic=True,
    ),
    Project(
        "mitmproxy",
        "12.2.3",
        requirements=("pytest-asyncio==1.5.0",),
        arguments=(
            "test/mitmproxy/proxy/layers/quic",
            "test/mitmproxy/proxy/layers/http/test_http3.py",
            "test/mitmproxy/contentviews/test__view_http3.py",
        ),
        # It has two configuration tables for pytest, which pytest 9 rejects.
        pytest_ini="[pytest]\nasyncio_mode = auto\n",
        github=("mitmproxy/mitmproxy", "v12.2.3"),
        remove=("mitmproxy",),
        python=(3, 12),
        aioquic=True,
    ),
    Project(
        "pproxy",
        "2.7.9",
        requirements=("aioquic==1.2.0", "trustme"),
        arguments=(str(INSIDE / "examples_of_pproxy.py"),),
        wheel=True,
        aioquic=True,
    ),
    Project(
        # The last release that uses aioquic: 0.5 imports qh3.
        "aiomoqt",
        "0.3.9",
        requirements=("pytest-asyncio==1.5.0", "sortedcontainers"),
        arguments=("aiomoqt/tests",),
        pytest_ini="[pytest]\nasyncio_mode = auto\n",
        aioquic=True,
    ),
    Project(
        "quic-migration-tester",
        "0.1.0",
        requirements=("aioquic==1.2.0", "trustme"),
        arguments=(str(INSIDE / "examples_of_quic_migration_tester.py"),),
        github=(
            "stackia/quic-connection-migration-tester",
            "92345f6f499869410a7bd69c47a0d2c1ba2b9d46",
        ),
        on_pypi=False,
        python=(3, 13),
        aioquic=True,
    ),
)

BY_NAME = {project.name: project for project in PROJECTS}
