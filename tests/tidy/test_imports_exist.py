"""Each import of the project's own modules finds its module, and in it the name.

Type checkers read the package and the examples; programs of the tests and of the benchmarks are imported only
when they run, in a process of their own.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {"uringcore": ROOT / "python", "tests": ROOT, "benchmarks": ROOT, "examples": ROOT}


def module_file(name: str) -> Path | None:
    """The source or the stub of a module, or the folder of a namespace package."""
    base = PACKAGES[name.split(".")[0]].joinpath(*name.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py", base.with_suffix(".pyi")):
        if path.is_file():
            return path
    return base if base.is_dir() else None


def top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, also those in `if`, `try` and `with`."""
    for statement in body:
        yield statement
        for field in ("body", "orelse", "finalbody"):
            if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield from top_level(getattr(statement, field, []))
        for handler in getattr(statement, "handlers", []):
            yield from top_level(handler.body)


@cache
def names_in(path: Path) -> frozenset[str] | None:
    """The names that a module defines; `None` if its text does not tell."""
    if path.is_dir():
        return frozenset()
    found: set[str] = set()
    for statement in top_level(ast.parse(path.read_text()).body):
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(statement.name)
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            found.update(alias.asname or alias.name.split(".")[0] for alias in statement.names)
        else:
            nodes = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
            found.update(node.id for node in nodes if isinstance(node.ctx, ast.Store))
    return None if found & {"*", "__getattr__"} else frozenset(found)


def missing(path: Path, source: str) -> Iterator[str]:
    """Yields what `source`, the text of `path`, imports of the project and what does not exist."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            wanted = [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            wanted = [(node.module, alias.name) for alias in node.names]
        else:
            continue
        for module, name in wanted:
            if module.split(".")[0] not in PACKAGES:
                continue
            file = module_file(module)
            if file is None:
                yield f"{path}:{node.lineno}: no module {module}"
            elif name not in (None, "*") and module_file(f"{module}.{name}") is None:
                names = names_in(file)
                if names is not None and name not in names:
                    yield f"{path}:{node.lineno}: no {name} in {module}"


def test_all_imports_exist() -> None:
    listed = subprocess.check_output(["git", "ls-files", "*.py", "*.pyi"], cwd=ROOT, text=True)
    files = [ROOT / line for line in listed.splitlines() if (ROOT / line).is_file()]
    assert len(files) > 500
    assert [fault for path in files for fault in missing(path, path.read_text())] == []


def test_the_checker_sees_modules_and_names() -> None:
    def found(source: str) -> list[str]:
        return [fault.partition(": ")[2] for fault in missing(Path("x.py"), source)]

    assert found("from uringcore.quic._gone import X") == ["no module uringcore.quic._gone"]
    assert found("def f():\n    import benchmarks.gone") == ["no module benchmarks.gone"]
    assert found("from tests.tidy.test_imports_exist import ROOT, Gone") == [
        "no Gone in tests.tidy.test_imports_exist"
    ]
    assert found("from uringcore import quic\nimport os.path\nfrom aioquic import gone") == []
