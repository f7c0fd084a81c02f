"""What the text of a file of the user's own tells: whether it is Python, its names and imports."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator
from importlib.util import decode_source, find_spec
from pathlib import Path

from testbed.errors import Problem, ScenarioError
from testbed.scenario.document import Document, Keys, problem_at
from testbed.user_code import UserCode


def check_text(code: UserCode, document: Document, path: Keys) -> Iterator[Problem]:
    """Check that a file is Python, imports what is there and has the name, without executing it.

    Imports inside `try` and `if` may be meant to fail, and are not checked.

    Args:
        code: the file, and the name of the class or function in it.
        document: the scenario.
        path: where it has the name.
    """
    try:
        code.compiled()
        tree = code.parsed()
    except ScenarioError as error:
        yield from error.problems
        return
    for line, module in _imported(tree):
        if not _is_there(module):
            found = f"an import of {module}, which is not there"
            expected = "an installed package: no other file beside this one can be imported"
            yield Problem(str(code.path), line, code.path_in_scenario, found, expected)
    names = _defined(code.path)
    if code.name not in names and not _defines_untold(tree):
        listed = ", ".join(sorted(names)[:10]) or "nothing"
        found = f"no {code.name} in {code.path.name}, which defines {listed}"
        yield problem_at(document, path, found=found, expected="a class or function of that file")


def _imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and the top package of every import at the top of a file."""
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            yield from ((statement.lineno, one.name.split(".")[0]) for one in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            module = statement.module or ""
            yield statement.lineno, "." * statement.level + module.split(".")[0]


def _is_there(module: str) -> bool:
    return not module.startswith(".") and find_spec(module) is not None


def _defines_untold(tree: ast.Module) -> bool:
    """Whether it may have names that its text does not tell."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(one.name == "*" for one in node.names):
            return True
        if isinstance(node, ast.Name) and node.id in ("exec", "globals"):
            return True
    return False


def _defined(file: Path) -> set[str]:
    symbols = symtable.symtable(decode_source(file.read_bytes()), str(file), "exec").get_symbols()
    return {one.get_name() for one in symbols if one.is_assigned() or one.is_imported()}
