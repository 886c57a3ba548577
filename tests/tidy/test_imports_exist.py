"""Each import of the project's own modules finds a file of the repository, and in it the name.

Type checkers read the package and the examples; programs of the tests and of the benchmarks are imported only
when they run, in a process of their own. Names of modules in strings are not checked.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.tidy.test_import_cycles import origin

ROOT = Path(__file__).parents[2]
PACKAGES = {"uringcore": ROOT / "python", "tests": ROOT, "benchmarks": ROOT, "examples": ROOT}


@cache
def files() -> frozenset[Path]:
    """The files of the repository, without what a rename has left in a working copy."""
    listed = subprocess.check_output(["git", "ls-files", "*.py", "*.pyi"], cwd=ROOT, text=True)
    return frozenset(ROOT / line for line in listed.splitlines() if (ROOT / line).is_file())


@cache
def folders() -> frozenset[Path]:
    """The folders with such files: packages, some of them without an `__init__.py`."""
    return frozenset(parent for path in files() for parent in path.parents)


@cache
def module_file(name: str) -> Path | None:
    """The source or the stub of a module, or the folder of a namespace package."""
    base = PACKAGES[name.split(".")[0]].joinpath(*name.split("."))
    found = (base.with_suffix(".py"), base / "__init__.py", base.with_suffix(".pyi"))
    return next((path for path in found if path in files()), base if base in folders() else None)


def package_of(path: Path) -> str:
    """The name of the package that a file is in."""
    root = next(root for root in (ROOT / "python", ROOT) if root in path.parents)
    return ".".join(path.parent.relative_to(root).parts)


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
        elif isinstance(node, ast.ImportFrom):
            wanted = [(origin(node, package_of(path)), alias.name) for alias in node.names]
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
    paths = sorted(files())
    assert len(paths) > 500
    assert [fault for path in paths for fault in missing(path, path.read_text())] == []


def test_the_checker_sees_modules_and_names() -> None:
    def found(source: str) -> list[str]:
        path = ROOT / "tests" / "tidy" / "x.py"
        return [fault.partition(": ")[2] for fault in missing(path, source)]

    assert found("from uringcore.quic._gone import X") == ["no module uringcore.quic._gone"]
    assert found("def f():\n    import benchmarks.gone") == ["no module benchmarks.gone"]
    assert found("from tests.tidy.test_imports_exist import ROOT, Gone") == [
        "no Gone in tests.tidy.test_imports_exist"
    ]
    assert found("from . import gone") == ["no gone in tests.tidy"]
    assert found("from ..tidy import test_rooms") == []
    assert found("from uringcore import quic\nimport os.path\nfrom aioquic import gone") == []
