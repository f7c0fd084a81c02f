"""What a ClientApp or ServerApp imports, read from its files without running them."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

from testbed.scenario.flower import Imports
from testbed.scenario.flower_app import App


def imports_of(app: App) -> Imports:
    """Return the import statements that run when an app's ClientApp and ServerApp are imported."""
    return Imports(_imports_of(app, app.client), _imports_of(app, app.server))


def _imports_of(app: App, component: str) -> tuple[str, ...]:
    """Return the import statements that run when a component of an app is imported.

    Those of the app's own modules are followed, not returned. Imports inside functions and
    conditions are left out. Of a file that cannot be parsed, there are none: Flower reports it.
    """
    found: dict[str, None] = {}
    waiting, seen = [component.partition(":")[0]], set()
    while waiting:
        module = waiting.pop()
        file = _file(app.folder, module)
        if module in seen or file is None:
            continue
        seen.add(module)
        parent = module.rpartition(".")[0]
        waiting.append(parent)
        for node in _statements(file):
            names = _imported(node, module if file.name == "__init__.py" else parent)
            if any(_is_own(app, name) for name in names):
                waiting += names
            elif names[0] != "__future__":
                found[ast.unparse(node)] = None
    return tuple(found)


def _is_own(app: App, module: str) -> bool:
    top = app.folder / module.partition(".")[0]
    return top.is_dir() or top.with_name(f"{top.name}.py").is_file()


def _file(folder: Path, module: str) -> Path | None:
    """Return the file of an app's own module; None for packages without one, and for others."""
    path = folder.joinpath(*module.split("."))
    files = (path.with_name(f"{path.name}.py"), path / "__init__.py")
    return next((file for file in files if module and file.is_file()), None)


def _statements(file: Path) -> Iterator[ast.Import | ast.ImportFrom]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # Python tells the app's author
            tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node


def _imported(node: ast.Import | ast.ImportFrom, package: str) -> list[str]:
    """Return the names of all modules that a statement of a package may import."""
    if isinstance(node, ast.Import):
        return [one.name for one in node.names]
    above = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
    base = ".".join((*above, *filter(None, [node.module])))
    return [base, *(f"{base}.{one.name}" for one in node.names)]
