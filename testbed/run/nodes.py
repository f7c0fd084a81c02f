"""The nodes of a run that another process controls: their states, and commands in them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from testbed.errors import NodeError
from testbed.runtimes.agent.client import AgentClient, AgentEndedError
from testbed.runtimes.agent.launch import NodeState
from testbed.runtimes.base import RuntimeDriver
from testbed.telemetry.folder import RunFolder


def running_nodes(folder: RunFolder) -> Mapping[str, NodeState]:
    """Return the states of a run's running nodes, by name; none if its agent does not run."""
    try:
        agent = AgentClient.connect(folder.agent_socket, deadline=time.monotonic())
    except NodeError:
        return {}
    with agent, suppress(AgentEndedError):
        return {state.node: state for state in agent.nodes()}
    return {}


def run_command(driver: RuntimeDriver, folder: RunFolder, node: str, command: Sequence[str]) -> int:
    """Run a command in a node; return its exit status.

    Raises:
        NodeError: the node is frozen, or does not run.
    """
    state = running_nodes(folder).get(node)
    if state is None or state.frozen:
        condition = "ended" if state is None else state.condition
        raise NodeError(f"{node} is {condition}: nothing can be run in it.")
    return driver.exec(folder, state, command)
