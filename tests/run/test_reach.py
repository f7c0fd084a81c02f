"""How a run says that a node has not reached the parameter server on another host."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from testbed.errors import NodeError, UserCodeError


def test_a_worker_that_fails_on_another_host_before_the_training_says_how_to_test_the_way(
    small: Any,
) -> None:
    watch = small.watch()
    nodes = [replace(node, host="b" if node.name == "w1" else "a") for node in watch.plan.nodes]
    watch.plan = replace(watch.plan, nodes=tuple(nodes))
    log = f"Full log: testbed logs {small.setup.folder.name}"
    hint = watch.failed_with(NodeError, "it ended", "w1").hint
    doctor = f"testbed doctor {small.setup.folder.scenario}"
    assert hint == f"`{doctor}` tests whether b and a reach each other. {log} w1"
    assert watch.failed_with(NodeError, "it ended", "w2").hint == f"{log} w2"
    assert watch.failed_with(UserCodeError, "it ended", "w1").hint == f"{log} w1"
