"""No two modules of the package import each other, at any place in them.

An import in a function or for type checkers counts: such a cycle loads, but neither of its modules can
be read, tested or moved without the other. The implicit import of a package's ``__init__`` before its
modules does not count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.test_rooms import PACKAGE, module_name, reachable


def origin(node: ast.ImportFrom, package: str) -> str:
    """The module or package that a module of `package` imports from."""
    parents = package.split(".")
    above = parents[: len(parents) - node.level + 1] if node.level else []
    return ".".join([*above, *filter(None, [node.module])])


def imports(source: str, package: str, modules: set[str]) -> Iterator[str]:
    """Yields the imports of a module of `package` among `modules`, preferring submodules."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            base = origin(node, package)
            for alias in node.names:
                name = f"{base}.{alias.name}"
                yield from {name if name in modules else base} & modules


def import_graph() -> dict[str, set[str]]:
    files = [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi")]
    paths: dict[str, Path] = {module_name(path): path for path in files}
    graph = {}
    for name, path in paths.items():
        package = name if path.stem == "__init__" else name.rpartition(".")[0]
        graph[name] = set(imports(path.read_text(), package, set(paths)))
    return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Returns the groups of modules that reach each other."""
    reached = {name: reachable(graph, name) for name in graph}
    found = {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in graph
        if name in reached[name]
    }
    return sorted(sorted(group) for group in found)


def test_no_modules_import_each_other() -> None:
    graph = import_graph()
    assert len(graph) > 80
    assert circles(graph) == []


def test_the_checker_sees_circles_in_functions_and_for_type_checkers() -> None:
    modules = {"p", "p.a", "p.b", "p.c", "p.d"}
    sources = {
        "p.a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.b import B\n",
        "p.b": "def f():\n    from . import a\n",
        "p.c": "import p.a\nfrom p import d\n",
        "p.d": "from p.a import X\n",
    }
    graph = {name: set(imports(source, "p", modules)) for name, source in sources.items()}
    assert graph["p.c"] == {"p.a", "p.d"}
    assert circles(graph) == [["p.a", "p.b"]]
