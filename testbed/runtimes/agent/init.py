"""The agent itself. In a native run it is the first process of the run's pid namespace.

When that ends, all processes in the namespace end.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from testbed.errors import TestbedError
from testbed.host import syscalls
from testbed.host.cgroups import AGENT_GROUP, RunGroups
from testbed.host.group import enter
from testbed.host.limits import PIDS_LIMIT, Limits
from testbed.host.reports import encode_error, report
from testbed.host.user_namespace import forbid_user_namespaces
from testbed.network.counters import TrafficMeter
from testbed.network.switch import Switch
from testbed.runtimes.agent.containers import Containers, own_containers
from testbed.runtimes.agent.lifeline import HungUp, giving_up_at_hangup, start_service
from testbed.runtimes.agent.nodes import CLEANUP_SECONDS, Nodes
from testbed.runtimes.agent.settings import AGENT_LOG, AGENT_SOCKET, COMMIT, PRIVATE, AgentSettings
from testbed.runtimes.agent.spawner import Spawner
from testbed.telemetry.folder import RunFolder

LIFELINE = 0
STATUS = 1
HOSTNAME_BYTES = 64
AGENT_LIMITS = Limits(cpu_weight=100, pids=2 * PIDS_LIMIT)
"""With the largest weight of version 2: it needs little, but the end of a busy run waits for it."""


def main(settings: AgentSettings) -> int:
    """Be the agent of a run whose processes are all in this process's pid namespace."""
    groups = RunGroups(settings.folder.name, settings.hierarchies)
    return serve(settings, groups, own_containers(groups), kill_all=kill_namespace)


def serve(
    settings: AgentSettings,
    groups: RunGroups,
    containers: Containers,
    *,
    kill_all: Callable[[], None],
) -> int:
    """Wait for the commit, start the agent, serve until the lifeline ends, clean up.

    ``kill_all`` kills all other processes of the run.
    """
    if not committed():
        return 1
    try:
        groups.create()
        nodes = None
        try:
            with giving_up_at_hangup(LIFELINE):
                nodes = _bring_up(settings, groups, containers)
                loop = start_service(
                    settings,
                    nodes,
                    lifeline=LIFELINE,
                    say=_say_at_last,
                    socket_path=_private_folder(settings) / AGENT_SOCKET,
                )
            loop.run()
        except HungUp:
            pass  # no client waits for the agent: clean up now, not once it is up
        finally:
            kill_all()
            groups.thaw_all()
            _wait_for_children()
            if nodes is not None:
                nodes.spawner.logs.catch_up_all()
            _leave(groups)
    except (OSError, TestbedError) as error:
        _say(error=encode_error(error))
        raise
    return 0


def committed() -> bool:
    """Wait until the controller has recorded this process; return False if it died before.

    At this point nothing exists that would have to be removed.
    """
    # The outer process only waits for this one; without it, no process would notice this one's end.
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    received = b""
    while not received.endswith(b"\n"):
        data = os.read(LIFELINE, len(COMMIT))
        if not data:
            return False
        received += data
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, 0)
    return received == COMMIT


def _bring_up(settings: AgentSettings, groups: RunGroups, containers: Containers) -> Nodes:
    """Create the run's namespaces and the agent's parts; the template is still warming up."""
    groups.add(AGENT_GROUP, AGENT_LIMITS)
    for entrance in groups.entrances(AGENT_GROUP):
        enter(entrance)
    syscalls.unshare(syscalls.CONTAINER & ~syscalls.CLONE_NEWPID)
    socket.sethostname(groups.run[:HOSTNAME_BYTES])
    syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount("proc", "/proc", "proc", flags=syscalls.PROC_FLAGS)
    if settings.users.namespace:
        forbid_user_namespaces()
    log = RunFolder(settings.folder).log(AGENT_LOG)
    spawner = Spawner.start(settings, agent_log=log)
    return Nodes(containers, spawner, Switch.build(), TrafficMeter())


def _private_folder(settings: AgentSettings) -> Path:
    """Return a folder that is mounted in this process's mount namespace only."""
    folder = RunFolder(settings.folder).control / PRIVATE
    folder.mkdir(exist_ok=True)
    syscalls.mount("tmpfs", str(folder), "tmpfs", data="mode=700,size=64k")
    return folder


def kill_namespace() -> None:
    """Kill every other process of this pid namespace."""
    assert os.getpid() == 1, "the pid namespace is not the run's"
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)


def _wait_for_children() -> None:
    with suppress(ChildProcessError):
        while True:
            os.wait()


def _leave(groups: RunGroups) -> None:
    """Remove the run's control groups; this process must not be in any of them."""
    groups.leave()
    groups.remove(deadline=time.monotonic() + CLEANUP_SECONDS)


def _say(**message: object) -> None:
    with suppress(BrokenPipeError):  # the controller has ended; the lifeline shows that too
        report(STATUS, **message)


def _say_at_last(**message: object) -> None:
    """Send the last message that the controller waits for."""
    _say(**message)
    os.dup2(sys.stderr.fileno(), STATUS)
