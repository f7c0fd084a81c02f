"""What import-linter cannot see: a module that is named in a string, and started or imported so."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODULE = re.compile(r"(?<![\w./-])testbed\.([a-z_]*)")
"""Without a part behind it, it is the beginning of a name that is put together."""

SEPARATORS = re.compile(r"[|:]")


def ranks() -> dict[str, int]:
    """How high each part stands, as the contract of import-linter has it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = (one["layers"] for one in contracts["contracts"] if one["type"] == "layers")
    return {
        part.strip(" ()"): -row
        for row, parts in enumerate(layers)
        for part in SEPARATORS.split(parts)
    }


def named(file: Path) -> Iterator[tuple[int, str]]:
    """The parts that a file names in strings, not in prose: the line, and the part."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            for found in MODULE.finditer(node.value):
                yield node.lineno, found[1]


def test_no_part_names_a_higher_one_in_a_string() -> None:
    order = {**ranks(), "": 0}  # a name put together could be anybody's: as high as can be
    bottom = min(order.values())
    faults = []
    for file in sorted((ROOT / "testbed").glob("*/**/*.py")):
        own = order[file.relative_to(ROOT / "testbed").parts[0]]
        for line, part in named(file):
            if order.get(part, bottom) > own:
                faults.append(f"{file.relative_to(ROOT)}:{line}: testbed.{part}")
    assert faults == []
