"""Selectors of nodes, on a run of a PS, an evaluator, two fast workers and a slow one."""

from __future__ import annotations

import pytest

from testbed.errors import ScenarioError
from testbed.orchestrator.selection import nodes_of, select
from testbed.telemetry.folder import RunState

STATE = RunState(
    format=1,
    run="r",
    scenario="s",
    state="training",
    created="2026-01-01T00:00:00.000Z",
    classes=("fast", "fast", "slow"),
)


def test_all_nodes_without_a_selector() -> None:
    assert select([], STATE) == ("ps", "evaluator", "w0", "w1", "w2")
    assert nodes_of(STATE)["w2"] == "slow"


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
    assert select(selectors, STATE) == nodes


@pytest.mark.parametrize("selector", ["w7", "class=medium", "role=ps", "", "class="])
def test_a_selector_that_names_nothing_is_refused(selector: str) -> None:
    with pytest.raises(ScenarioError, match=r"expected a node .*w0 to w2.*fast, slow"):
        select([selector], STATE)


def test_every_wrong_selector_is_named() -> None:
    with pytest.raises(ScenarioError) as refused:
        select(["w7", "w1", "w8"], STATE)
    assert [problem.found for problem in refused.value.problems] == ["'w7'", "'w8'"]
