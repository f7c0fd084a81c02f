"""The agent at work, whatever kind of container it and its nodes are in."""

from __future__ import annotations

from collections.abc import Callable

from testbed.agent.nodes import Nodes
from testbed.agent.server import Server
from testbed.agent.spawner import Spawner
from testbed.agent.tether import Tether
from testbed.errors import TestbedError
from testbed.runtimes.lifeline import AGENT_SOCKET
from testbed.runtimes.reports import encode_error
from testbed.runtimes.settings import AgentSettings
from testbed.telemetry.folder import RunFolder

Say = Callable[..., None]
"""Tells the controller something, as keywords; it may have ended."""


def take_orders(settings: AgentSettings, nodes: Nodes, *, lifeline: int, say: Say) -> Server:
    """Listen at ``control/agent.sock``; what is returned is still to serve.

    Args:
        settings: of the run.
        nodes: of the run.
        lifeline: descriptor of the agent's end, after the commit; at its end the server stops.
        say: called once while it serves, with ``ready`` or the ``error`` of the template.
    """
    server = Server(nodes, RunFolder(settings.folder).control / AGENT_SOCKET)
    Tether(lifeline, server, nodes, fate="kept" if settings.detached else "ended")
    server.watch(nodes.spawner.ready_pipe, lambda _: _template_says(server, nodes.spawner, say))
    return server


def _template_says(server: Server, spawner: Spawner, say: Say) -> None:
    server.forget(spawner.ready_pipe)
    try:
        spawner.check_ready()
    except TestbedError as error:
        say(error=encode_error(error))
        server.stop()
    else:
        say(ready=True)
