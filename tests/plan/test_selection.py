"""Selectors of nodes, on a run of a PS, an evaluator, two fast workers and a slow one."""

from __future__ import annotations

import pytest

from testbed.errors import ScenarioError
from testbed.plan.make import plan
from testbed.plan.selection import OTHERS, find_node, select
from testbed.scenario import load_text

TEXT = """\
name: chosen
algorithm: asgd
model: digits-cnn
dataset: digits
workers: {count: 3, classes: {fast: {share: 0.67}, slow: {share: 0.33}}}
stop: {updates: 1}
"""
PLAN = plan(load_text(TEXT), "r")


def test_all_nodes_without_a_selector() -> None:
    assert select([], PLAN) == ("ps", "evaluator", "w0", "w1", "w2")


@pytest.mark.parametrize(
    ("selectors", "nodes"),
    [
        (["w1"], ("w1",)),
        (["w[0-1]"], ("w0", "w1")),
        (["class=slow"], ("w2",)),
        (["class=*"], ("w0", "w1", "w2")),
        (["w2", "ps"], ("ps", "w2")),
        (["w1", "class=fast"], ("w0", "w1")),
    ],
)
def test_a_selector_names_nodes(selectors: list[str], nodes: tuple[str, ...]) -> None:
    assert select(selectors, PLAN) == nodes


@pytest.mark.parametrize("selector", ["w7", "class=medium", "role=ps", "", "class="])
def test_a_selector_without_a_match_is_refused(selector: str) -> None:
    with pytest.raises(ScenarioError, match=r"expected a node .*w0 to w2.*fast, slow"):
        select([selector], PLAN)


def test_only_logs_have_names_that_are_no_nodes() -> None:
    assert select(["agent", "w1"], PLAN, others=OTHERS) == ("w1", "agent")
    with pytest.raises(ScenarioError, match=r"fast, slow\), agent, controller or simulation"):
        select(["w7"], PLAN, others=OTHERS)
    with pytest.raises(ScenarioError, match=r"'agent', expected .* or class=NAME with .*slow\)$"):
        select(["agent"], PLAN)


def test_every_invalid_selector_is_named() -> None:
    with pytest.raises(ScenarioError) as refused:
        select(["w7", "w1", "w8"], PLAN)
    assert [problem.found for problem in refused.value.problems] == ["'w7'", "'w8'"]


def test_a_single_node_by_name() -> None:
    assert find_node("w1", PLAN) == PLAN.workers[1]
    with pytest.raises(ScenarioError, match=r"found 'w3', expected one .*ps, evaluator, w0 to w2"):
        find_node("w3", PLAN)
