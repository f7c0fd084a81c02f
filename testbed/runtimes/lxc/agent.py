"""The agent of a run in LXC containers: a process of the host with a network namespace of its own.

It enters the containers as the agent of a run in Docker does, and is therefore in the pid namespace
in which they are. All processes of root's run are in the run's control groups, and end by them;
those of an ordinary user's run are in its pid namespace, and end with the agent.
"""

from __future__ import annotations

import time

from testbed.host import syscalls
from testbed.runtimes.agent.containers import GivenContainers
from testbed.runtimes.agent.init import kill_namespace, serve
from testbed.runtimes.agent.nodes import CLEANUP_SECONDS
from testbed.runtimes.agent.settings import AgentSettings
from testbed.runtimes.lxc.groups import LxcGroups


def main(settings: AgentSettings) -> int:
    """Serve until the run ends, then remove all it has on this host; return the exit status."""
    # Roles are forked two levels below this process, and become its own children.
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    groups = LxcGroups.of(settings.folder, settings.hierarchies)

    def kill_groups() -> None:
        groups.leave()
        groups.kill_all(deadline=time.monotonic() + CLEANUP_SECONDS)

    of_user = settings.users.namespace
    containers = GivenContainers(grouped=not of_user)
    return serve(settings, groups, containers, kill_all=kill_namespace if of_user else kill_groups)
