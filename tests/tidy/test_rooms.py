"""Rules of ARCHITECTURE.md that no compiler checks: imports between packages, and the shape of a file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "uringcore"

# room: the rooms of the package that it must not import at module level, directly or not.
FORBIDDEN = {
    "_loop": {
        "quic",
        "asyncio",
        "h3",
        "h0",
        "http3",
        "contrib",
        "server",
        "_command_dispatch",
        "webtransport",
    },
    "quic": {
        "asyncio",
        "h3",
        "h0",
        "http3",
        "contrib",
        "server",
        "_command_dispatch",
        "webtransport",
    },
    "asyncio": {"h3", "h0", "http3", "contrib", "server", "_command_dispatch", "webtransport"},
    "h3": {"http3", "contrib", "server", "_command_dispatch", "webtransport"},
    "webtransport": {"h3", "h0", "http3", "contrib", "server", "_command_dispatch"},
    "http3": {"contrib", "server", "_command_dispatch"},
    "contrib": {"_command_dispatch"},
}
# One line each, for programs that import an adapter by its former name.
FORMER_NAMES = {
    "uringcore.httpx",
    "uringcore.server.gunicorn",
    "uringcore.webtransport.events",
    "uringcore.webtransport.starlette",
}
LINES_MAX = {".rs": 700, ".py": 550}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_type_checking(node: ast.If) -> bool:
    return "TYPE_CHECKING" in ast.unparse(node.test)


def run_time_imports(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yields the imports that run when the module is imported, without those in functions or for type
    checkers.
    """
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and not is_type_checking(node):
            yield from run_time_imports(node.body + node.orelse)
        elif isinstance(node, ast.Try):
            yield from run_time_imports(node.body + node.orelse + node.finalbody)
        elif isinstance(node, ast.ClassDef):
            yield from run_time_imports(node.body)


def imported_modules(path: Path) -> set[str]:
    """Returns the full names of the package's modules that `path` imports at import time."""
    name = module_name(path)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: set[str] = set()
    for node in run_time_imports(ast.parse(path.read_text()).body):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
            continue
        base = node.module or ""
        if node.level:
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*above, *([base] if base else [])])
        found.add(base)
        found.update(f"{base}.{alias.name}" for alias in node.names)
    return {name for name in found if name.split(".")[0] == "uringcore"}


def import_graph() -> dict[str, set[str]]:
    paths = {module_name(path): path for path in PACKAGE.rglob("*.py")}
    return {name: imported_modules(path) & paths.keys() for name, path in paths.items()}


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    todo = [start]
    while todo:
        for name in graph.get(todo.pop(), set()) - seen:
            seen.add(name)
            todo.append(name)
    return seen


@pytest.mark.parametrize("room", FORBIDDEN)
def test_a_room_imports_only_what_is_below_it(room: str) -> None:
    graph = import_graph()
    everything = [name for name in graph if (name + ".").startswith(f"uringcore.{room}.")]
    modules = [name for name in everything if name not in FORMER_NAMES]
    assert modules, f"the room {room} is gone: mend this table"
    for module in modules:
        rooms = {name.split(".")[1] for name in reachable(graph, module) if "." in name}
        assert not rooms & FORBIDDEN[room], f"{module} reaches {rooms & FORBIDDEN[room]}"


def test_the_checker_sees_a_forbidden_import(tmp_path: Path) -> None:
    source = "from __future__ import annotations\nif True:\n    from uringcore.server import x\n"
    nodes = list(run_time_imports(ast.parse(source).body))
    assert [node.module for node in nodes if isinstance(node, ast.ImportFrom)] == [
        "__future__",
        "uringcore.server",
    ]


PROTOCOLS = ("wire", "limits", "quic", "h3", "http")


@pytest.mark.parametrize("room", ["io", *PROTOCOLS, "engine"])
def test_only_the_bindings_depend_on_python(room: str) -> None:
    assert "pyo3" not in (ROOT / "src" / room / "Cargo.toml").read_text()


@pytest.mark.parametrize("room", [*PROTOCOLS, "engine"])
def test_rooms_without_unsafe_forbid_it(room: str) -> None:
    assert "#![forbid(unsafe_code)]" in (ROOT / "src" / room / "lib.rs").read_text()


# Operations that a state machine must not do: read a clock, a file, the environment, or wait.
WORLDLY = re.compile(
    r"""SystemTime::now | Instant::now | \.elapsed\(\)
    | \b(env|fs|process)::(?!!) | std::(env|fs|os|process|io::Std\w+|thread)\b
    | std::\{[^}]*\b(env|fs|os|process|thread)\b | \bthread::(sleep|spawn|Builder)
    | \bFile::(open|create|options) | \bOpenOptions\b | \bio::(stdin|stdout|stderr)\b
    | (Tcp|Udp|Unix)(Stream|Listener|Socket|Datagram) | ToSocketAddrs
    | native_certs | StdSystemTime
    # These read the system's clock; `builder_with_details` takes the host's.
    | (Client|Server)Config::builder(_with_provider)?\( | DefaultTimeProvider""",
    re.VERBOSE,
)


def worldly(source: str) -> list[str]:
    """Returns the lines of Rust code with such operations, outside of comments and tests."""
    code, _, _ = source.partition("#[cfg(test)]\nmod tests {")
    lines = [line.partition("//")[0] for line in code.splitlines()]
    return [line.strip() for line in lines if WORLDLY.search(line)]


@pytest.mark.parametrize("room", PROTOCOLS)
def test_a_protocol_crate_reads_no_clock_and_does_no_input_or_output(room: str) -> None:
    folder = ROOT / "src" / room
    files = [path for path in folder.rglob("*.rs") if not {"tests", "tests.rs"} & set(path.parts)]
    assert len(files) > 5
    found = {str(path.relative_to(ROOT)): worldly(path.read_text()) for path in files}
    assert {name: lines for name, lines in found.items() if lines} == {}
    dependencies = (folder / "Cargo.toml").read_text().partition("[dev-dependencies]")[0]
    assert not re.search("native|libc|socket2|getrandom|tokio|mio|dirs", dependencies)


def test_the_checker_sees_a_clock_and_a_file() -> None:
    found = worldly(
        "use std::net::SocketAddr; // Instant::now\n"
        "let now = SystemTime::now();\n"
        "let path = std::env::var_os(name);\n"
        "rustls::ClientConfig::builder_with_details(provider, clock)\n"
        "rustls::ClientConfig::builder_with_provider(provider)\n"
        "use std::{fs, io};\n"
        "fs::read(path);\n"
        "io::stdin();\n"
        "#[cfg(test)]\nmod tests {\n    let now = Instant::now();\n}\n"
    )
    assert len(found) == 6


def source_files() -> list[Path]:
    return [
        path
        for folder, pattern in (("src", "*.rs"), ("python", "*.py"))
        for path in sorted((ROOT / folder).rglob(pattern))
        if path.read_text().strip() and "tests" not in path.relative_to(ROOT).parts
    ]


@pytest.mark.parametrize("path", source_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_describes_its_contents_and_is_one_noun(path: Path) -> None:
    text = path.read_text()
    opening = text.lstrip()
    if path.suffix == ".rs":
        opening = re.sub(r"^(#!?\[[^\]]*\]\s*)+", "", opening)
    assert opening.startswith(("//!", '"""', 'r"""')), "the file does not open with what lives here"
    assert text.count("\n") <= LINES_MAX[path.suffix], "look for the second noun"
