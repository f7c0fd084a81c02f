"""Which nodes a user means: ``w3``, ``w[0-9]``, ``ps``, ``class=slow``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from testbed.errors import Problem, ScenarioError
from testbed.scenario import load
from testbed.telemetry.folder import RunFolder, RunState

OTHERS = ("agent", "controller")
"""No nodes, but they have logs too; meant only where they are called by their names."""


def nodes_of(state: RunState) -> Mapping[str, str]:
    """Every node of a run and its device class, which is empty for the PS and the evaluator."""
    workers = {f"w{index}": name for index, name in enumerate(state.classes)}
    return {"ps": "", "evaluator": "", **workers}


def require_containers(folder: RunFolder) -> None:
    """Refuse what needs a node or a link where there are none.

    Raises:
        ScenarioError: the run is simulated, whether it goes on or not.
    """
    if not load(folder.scenario).simulated:
        return
    lines = folder.scenario.read_text(encoding="utf-8").splitlines()
    line = next(i for i, text in enumerate(lines, 1) if text.startswith("runtime:"))
    expected = "a run with containers and links: native or docker"
    hint = "A simulated run is watched with `testbed logs` and `testbed report` alone."
    raise ScenarioError(
        [Problem(str(folder.scenario), line, "runtime", "simulated", expected, hint)]
    )


def select(selectors: Sequence[str], state: RunState) -> tuple[str, ...]:
    """Whose logs any of the selectors names, in the run's order; all nodes without one.

    Raises:
        ScenarioError: a selector that names no node.
    """
    nodes = nodes_of(state)
    if not selectors:
        return tuple(nodes)
    chosen: set[str] = set()
    problems = []
    for selector in selectors:
        found = {selector} if selector in OTHERS else _matching(selector, nodes)
        chosen |= found
        if not found:
            problems.append(_nothing(selector, state))
    if problems:
        raise ScenarioError(problems)
    return tuple(name for name in (*nodes, *OTHERS) if name in chosen)


def _matching(selector: str, nodes: Mapping[str, str]) -> set[str]:
    key, equals, wanted = selector.partition("=")
    if equals:
        classes = nodes if key == "class" else {}
        return {node for node, name in classes.items() if name and fnmatchcase(name, wanted)}
    return {node for node in nodes if fnmatchcase(node, selector)}


def _nothing(selector: str, state: RunState) -> Problem:
    classes = ", ".join(dict.fromkeys(state.classes))
    expected = (
        f"a node (ps, evaluator, w0 to w{len(state.classes) - 1}), a pattern like 'w[0-9]', "
        f"class=NAME with a class of this run ({classes}), agent or controller"
    )
    return Problem("selector", 0, "", repr(selector), expected)
