"""The agent of a run whose containers an engine creates; the agent runs in a container, too.

``python -m testbed.runtimes.agent.contained SETTINGS``, with AgentSettings as JSON. The agent's
container shares the pid and cgroup namespaces of the host and has no network. The host's control
groups are mounted writable at /sys/fs/cgroup, and the run folder at its path on the host. The
agent runs as the host's uid 0 with exactly these capabilities, all of which are required:

==============  ====================================================================================
SYS_ADMIN       enter namespaces; send pids of other processes to the controller
SYS_CHROOT      enter a mount namespace
SYS_PTRACE      open the namespaces of other users' processes; read a role's private memory
NET_ADMIN       create the switch and its links
NET_RAW         capture what a link carries
SETUID, SETGID  switch to the user of a node
SETPCAP         empty the bounding set, and lock the secure bits
KILL            signal roles, and the first processes of their containers
CHOWN           give the sockets to the run's owner, and writable folders to a node's group
FOWNER          make these folders writable for that group
DAC_OVERRIDE    write to a run folder that belongs to another user
==============  ====================================================================================

The agent listens at ``control/lifeline.sock``. The controller connects, sends "commit" and hands
over the run's lock; on another host, ``relay`` does in its place. From then on the connection
replaces the pipes of a native agent: it carries reports to the controller, and to the agent what to
do when the connection ends.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from testbed.errors import TestbedError
from testbed.host import syscalls
from testbed.host.process import end_with
from testbed.host.reports import encode_error, report
from testbed.host.sockets import short_path
from testbed.network.counters import TrafficMeter
from testbed.network.switch import Switch
from testbed.runtimes.agent.containers import GivenContainers
from testbed.runtimes.agent.first_process import copy_first_process
from testbed.runtimes.agent.lifeline import HungUp, giving_up_at_hangup, start_service
from testbed.runtimes.agent.mark import Mark
from testbed.runtimes.agent.nodes import CLEANUP_SECONDS, Nodes
from testbed.runtimes.agent.settings import (
    AGENT_LOG,
    AGENT_SOCKET,
    COMMIT,
    LIFELINE_SOCKET,
    OWN_FAILURE,
    AgentSettings,
    title_of,
)
from testbed.runtimes.agent.spawner import Spawner
from testbed.telemetry.folder import RunFolder

CONNECT_SECONDS = 50.0
"""How long it waits for its controller, which may have died after requesting the container: not for
as long as the lease of a controller that has connected."""

POLL_SECONDS = 0.005


def main() -> int:
    """Wait for the commit, start the agent, serve until the lifeline ends, end all nodes."""
    settings = AgentSettings.from_json(sys.argv[1])
    # If the container's first process is killed, the engine takes a while to kill the others.
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    syscalls.set_name(title_of(settings.folder))
    os.environ.pop("HOSTNAME", None)  # set by the engine; it would be wrong for a node
    folder = RunFolder(settings.folder)
    _print_to(folder.log(AGENT_LOG))
    held = _wait_for_commit(folder)
    if held is None:
        return 1
    lifeline, _lock = held  # the lock is held until this process ends
    try:
        return _live(settings, lifeline)
    except (OSError, TestbedError) as error:
        _say(lifeline, error=encode_error(error))
        raise


def _print_to(log: Path) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(descriptor, sys.stdout.fileno())
    os.dup2(descriptor, sys.stderr.fileno())
    os.close(descriptor)


def _wait_for_commit(folder: RunFolder) -> tuple[socket.socket, int] | None:
    """Return the controller's connection and the run's lock; None without a live controller.

    At this point nothing exists that would have to be removed except this container.
    """
    deadline = time.monotonic() + CONNECT_SECONDS
    place = folder.control / LIFELINE_SOCKET
    try:
        with _listen_for_owner(place) as listener:
            listener.settimeout(CONNECT_SECONDS)
            lifeline, _ = listener.accept()
        lifeline.settimeout(max(0.001, deadline - time.monotonic()))
        said, descriptors, _, _ = socket.recv_fds(
            lifeline, len(COMMIT), 1, flags=socket.MSG_CMSG_CLOEXEC
        )
    except (TimeoutError, ConnectionError):
        return None
    finally:
        place.unlink(missing_ok=True)
    if said != COMMIT or not descriptors:
        return None
    lifeline.settimeout(None)
    return lifeline, descriptors[0]


def _listen_for_owner(place: Path) -> socket.socket:
    """Return a socket that listens there and accepts connections of the run's owner."""
    unready = place.with_name(f".{place.name}")
    unready.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_path(unready) as name:
        listener.bind(name)
    unready.chmod(0o600)
    _hand_over(unready)
    listener.listen()
    unready.rename(place)
    return listener


def _hand_over(path: Path) -> None:
    """Change the owner of a path in the run folder to the folder's owner."""
    owner = path.parent.stat()
    os.chown(path, owner.st_uid, owner.st_gid)


def _live(settings: AgentSettings, lifeline: socket.socket) -> int:
    """Serve until the run ends; return the exit status."""
    # Roles are forked two levels below this process, and become its own children.
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    _say(lifeline, pid=os.getpid())
    folder = RunFolder(settings.folder)
    if settings.images:
        for path in copy_first_process(folder.control):
            _hand_over(path)
    containers = GivenContainers(find_all=Mark.make(folder).remove)
    socket_path = folder.control / AGENT_SOCKET
    try:
        with giving_up_at_hangup(lifeline.fileno()):
            spawner = Spawner.start(settings, agent_log=folder.log(AGENT_LOG))
            nodes = Nodes(containers, spawner, Switch.build(tunnel=settings.tunnel), TrafficMeter())
            loop = start_service(
                settings,
                nodes,
                lifeline=lifeline.fileno(),
                say=partial(_say, lifeline),
                socket_path=socket_path,
            )
    except HungUp:
        return 0  # no node was launched; the template ends when this process does
    _hand_over(socket_path)
    # The engine's ``stop`` sends SIGTERM.
    signal.signal(signal.SIGTERM, lambda number, frame: loop.stop())
    try:
        loop.run()
    finally:
        left = end_all(nodes, containers)
    return OWN_FAILURE if left else 0


def end_all(
    nodes: Nodes, containers: GivenContainers, *, within_seconds: float = CLEANUP_SECONDS
) -> Sequence[str]:
    """Kill every role and every container, and wait for the children of this process.

    It never kills more than these: the pid namespace is the host's. Returns the nodes whose roles
    have not ended in time, and logs them: the engine takes a while to remove their containers.
    """
    nodes.end()
    containers.end()
    nodes.spawner.process.kill()
    deadline = time.monotonic() + within_seconds
    while (left := nodes.running()) and time.monotonic() < deadline:
        nodes.reap()
        time.sleep(POLL_SECONDS)
    for name in left:
        sys.stderr.write(
            f"{name} (process {nodes.pid(name)}) was killed and has not ended after "
            f"{within_seconds:g} s: see its state in /proc.\n"
        )
    return left


def _say(lifeline: socket.socket, **message: object) -> None:
    with suppress(ConnectionError):  # the controller has ended; the lifeline shows that too
        report(lifeline.fileno(), **message)


if __name__ == "__main__":
    end_with(main)
