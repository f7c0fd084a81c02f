"""The structure, as far as import-linter does not check it."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Collection, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODULE = re.compile(r"(?<![\w./-])testbed\.([a-z_]*)")
"""Without a part behind it, it is the beginning of a name that is put together."""

IMPORT = re.compile(r"^ *(from|import) testbed\b", re.MULTILINE)
SEPARATORS = re.compile(r"[|:]")


FILES = sorted((ROOT / "testbed").rglob("*.py"))
"""Of the package."""


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def ranks() -> dict[str, int]:
    """The rank of each part, as in the contract of import-linter."""
    return {part: -row for row, parts in enumerate(contract()) for part in parts}


def named(file: Path) -> Iterator[tuple[int, str]]:
    """The parts that a file names in strings other than prose: the line, and the part."""
    if not MODULE.search(IMPORT.sub("", file.read_text(encoding="utf-8"))):
        return
    nodes = list(ast.walk(parsed(file)))
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            for found in MODULE.finditer(node.value):
                yield node.lineno, found[1]


def test_no_part_names_a_higher_one_in_a_string() -> None:
    order = {**ranks(), "": 0}  # a composed name could be any part: the highest rank
    bottom = min(order.values())
    faults = []
    for file in FILES:
        room, *inside = file.relative_to(ROOT / "testbed").parts
        for line, part in named(file) if inside else ():
            if order.get(part, bottom) > order[room]:
                faults.append(f"{file.relative_to(ROOT)}:{line}: testbed.{part}")
    assert faults == []


def drawn() -> list[list[str]]:
    """The rooms in CONTRIBUTING.md, row by row."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    drawing = text.split("```text\n", 1)[1].split("```", 1)[0]
    return [row[1:42].split() for row in drawing.splitlines()]


def contract() -> list[list[str]]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = (one["layers"] for one in contracts["contracts"] if one["type"] == "layers")
    return [[part.strip(" ()") for part in SEPARATORS.split(parts)] for parts in layers]


def test_the_drawing_matches_the_contract_and_has_every_room() -> None:
    rooms = {
        path.stem
        for path in (ROOT / "testbed").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert drawn() == contract()
    assert {room for row in drawn() for room in row} == rooms - {"__init__"}
    assert len(rooms) - 1 <= 22
    assert len(drawn()) <= 12


def test_every_room_documents_its_contents_and_exclusions() -> None:
    for package in (ROOT / "testbed").glob("*/__init__.py"):
        text = ast.get_docstring(parsed(package)) or ""
        text = " ".join(text.split())
        assert "Here: " in text, package
        assert "Not here: " in text, package


def imports(tree: ast.AST, modules: Collection[str]) -> Iterator[str]:
    """The modules of the package that a file imports, anywhere in it, including for types."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module in modules:
            for one in node.names:
                inner = f"{node.module}.{one.name}"
                yield inner if inner in modules else node.module


def test_files_have_no_import_cycles() -> None:
    files = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
        for file in FILES
    }
    graph = {name: {*imports(parsed(file), files)} - {name} for name, file in files.items()}
    graph["testbed"] = set()  # imports lazily on first access
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the files
