"""A run that another process controls: its output, its end, its nodes and commands in them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from testbed.errors import NodeError
from testbed.plan.written import read_plan
from testbed.run.agents import connect
from testbed.runtimes.agent.client import AgentEndedError
from testbed.runtimes.agent.launch import NodeState
from testbed.runtimes.base import RuntimeDriver
from testbed.runtimes.lock import is_controlled
from testbed.telemetry.entry import Entry
from testbed.telemetry.events import EventReader
from testbed.telemetry.files import LineReader
from testbed.telemetry.folder import ENDED, RunFolder, RunState

LOOK_SECONDS = 0.2
UNSTARTED_SECONDS = 30.0
"""A run without a final state that was not locked for this long was never started."""


@dataclass(frozen=True)
class Line:
    """A line that a node printed."""

    node: str
    text: str


def read_logs(folder: RunFolder, nodes: Sequence[str]) -> Iterator[Line]:
    """Yield what these nodes have printed so far, one node after the other."""
    for node in nodes:
        yield from _lines(node, LineReader(folder.log(node)), whole=True)


def follow_logs(folder: RunFolder, nodes: Sequence[str]) -> Iterator[Line]:
    """Yield what these nodes have printed and print until the run ends, in order of arrival."""
    logs = {node: LineReader(folder.log(node)) for node in nodes}
    active = True
    while active:
        active = folder.alive()
        for node, log in logs.items():
            yield from _lines(node, log, whole=not active)
        if active:
            time.sleep(LOOK_SECONDS)  # logs are files, which do not notify readers


def _lines(node: str, log: LineReader, *, whole: bool) -> Iterator[Line]:
    for line in log.read(whole=whole):
        yield Line(node, line.decode(errors="replace"))


def follow_events(folder: RunFolder) -> Iterator[Entry]:
    """Yield the events of a run so far, and new ones until it ends.

    Raises:
        TestbedError: a line is damaged; names it.
    """
    reader = EventReader(folder.events)
    active = True
    while active:
        active = folder.alive()
        yield from reader.read()
        if active:
            time.sleep(LOOK_SECONDS)  # as with logs


def wait_for_end(folder: RunFolder, *, timeout_seconds: float | None) -> RunState | None:
    """Wait until a run's report is written, or the run has ended without its controller.

    Returns the run's last state, which is not a final one if its controller was killed; None
    if it is still running after the timeout.

    Raises:
        RunNotFound: the folder was deleted.
    """
    begun = time.monotonic()
    while True:
        controlled = is_controlled(folder)  # checked first: then all that it wrote is visible
        alive = folder.alive()
        state = folder.state()
        waited = time.monotonic() - begun
        started = folder.lock.exists() or waited > UNSTARTED_SECONDS
        if not controlled and (state.state in ENDED or (started and not alive)):
            return state
        if timeout_seconds is not None and waited >= timeout_seconds:
            return None
        time.sleep(LOOK_SECONDS)  # neither a lock nor a file can be waited for with a timeout


def running_nodes(folder: RunFolder) -> Mapping[str, NodeState]:
    """Return the states of a run's running nodes, by name; none if its agent does not run."""
    if not folder.agent_socket.exists():
        return {}
    try:
        plan = read_plan(folder) if folder.plan.exists() else None
        agent = connect(plan, folder, deadline=time.monotonic())
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
        condition = "has ended" if state is None else f"is {state.condition}"
        raise NodeError(f"{node} {condition}: nothing can be run in it.")
    return driver.exec(folder, state, command)
