"""Selects nodes: ``w3``, ``w[0-9]``, ``ps``, ``class=slow``."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.errors import Problem, ScenarioError
from testbed.values.topology import NodeSpec, Plan, matches

SIMULATION = "simulation"
"""The log for the output of user code in a simulation."""

OTHERS = ("agent", "controller", SIMULATION)
"""Not nodes, but they have logs too; selected only by their exact names."""


def select(selectors: Sequence[str], plan: Plan, *, others: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the names that match any selector, in the run's order; all nodes without a selector.

    ``others`` are names that can be selected, too.

    Raises:
        ScenarioError: a selector matches no node.
    """
    names = [node.name for node in plan.nodes]
    if not selectors:
        return tuple(names)
    found = {
        selector: {selector} if selector in others else _matching(selector, plan.nodes)
        for selector in selectors
    }
    if unknown := [selector for selector, nodes in found.items() if not nodes]:
        classes = f"class=NAME with a class of this run ({', '.join(classes_of(plan))})"
        *most, last = (f"a node ({_names(plan)})", "a pattern like 'w[0-9]'", classes, *others)
        expected = f"{', '.join(most)} or {last}"
        problems = [Problem("selector", 0, "", repr(selector), expected) for selector in unknown]
        raise ScenarioError(problems)
    chosen = set().union(*found.values())
    return tuple(name for name in dict.fromkeys((*names, *others)) if name in chosen)


def find_node(name: str, plan: Plan) -> NodeSpec:
    """Return the node with that name.

    Raises:
        ScenarioError: there is none.
    """
    try:
        return plan.node(name)
    except KeyError:
        expected = f"one node of this run: {_names(plan)}"
        raise ScenarioError([Problem("node", 0, "", repr(name), expected)]) from None


def classes_of(plan: Plan) -> tuple[str, ...]:
    """Return the device classes, in their order."""
    return tuple(dict.fromkeys(node.device_class for node in plan.devices))


def _matching(selector: str, nodes: Sequence[NodeSpec]) -> set[str]:
    return {
        node.name
        for node in nodes
        if matches(selector, name=node.name, device_class=node.device_class)
    }


def _names(plan: Plan) -> str:
    """Return the names of all nodes except the workers, which are many."""
    if not plan.workers:
        return ", ".join(node.name for node in plan.nodes)
    *_, last = plan.workers
    others = [node.name for node in plan.nodes if node not in plan.workers]
    return f"{', '.join(others)}, {plan.workers[0].name} to {last.name}"
