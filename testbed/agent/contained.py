"""The agent of a run whose containers an engine makes; it is in one of them itself.

``python -m testbed.agent.contained SETTINGS``, with AgentSettings as JSON. Its container shares the
host's pid namespace, has no network, the host's control groups at /sys/fs/cgroup (writable, and no
cgroup namespace of its own), and the run folder at the folder's own path. Uid 0 in there is the
host's, with these capabilities and no other; without any one of them something fails:

==============  ====================================================================================
SYS_ADMIN       enter namespaces; tell the controller other pids than one's own
SYS_CHROOT      enter a mount namespace
SYS_PTRACE      reach the namespaces of other uids' processes; read a role's private memory
NET_ADMIN       the switch and its links
SETUID, SETGID  become a node's user
SETPCAP         empty the bounding set, and lock the secure bits
KILL            signal roles, and the first processes of their containers
CHOWN           give the sockets to the run's owner, and writable folders to a node's group
FOWNER          let that group write there
DAC_OVERRIDE    write in a run folder that is another user's
==============  ====================================================================================

It listens at ``control/lifeline.sock``. Whoever connects is the controller, says "commit", and
hands over the run's lock; from then on the connection is what the pipes are for a native agent:
reports go one way, and what is to become of the run the other.
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

from testbed.agent.containers import GivenContainers
from testbed.agent.discovery import title_of
from testbed.agent.lifeline import HungUp, giving_up_at_hangup, start_service
from testbed.agent.nodes import CLEANUP_SECONDS, Nodes
from testbed.agent.settings import (
    AGENT_LOG,
    COMMIT,
    LIFELINE_SOCKET,
    OWN_FAILURE,
    SERVED,
    AgentSettings,
)
from testbed.agent.spawner import Spawner
from testbed.errors import TestbedError
from testbed.host import syscalls
from testbed.host.process import end_with
from testbed.host.reports import encode_error, report
from testbed.host.sockets import short_path
from testbed.network.counters import TrafficMeter
from testbed.network.switch import Switch
from testbed.telemetry.folder import RunFolder

CONNECT_SECONDS = 60.0
"""For this long it waits for its controller, which may have died after asking for the container."""

POLL_SECONDS = 0.005


def main() -> int:
    """Wait for the commit, bring the agent up, serve until the lifeline ends, end all nodes."""
    settings = AgentSettings.from_json(sys.argv[1])
    # If the first process of the container is killed, the engine takes its time over the others.
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    syscalls.set_name(title_of(settings.folder))
    os.environ.pop("HOSTNAME", None)  # which the engine adds; it would be wrong for a node
    folder = RunFolder(settings.folder)
    _print_to(folder.log(AGENT_LOG))
    held = _wait_for_commit(folder)
    if held is None:
        return 1
    lifeline, _lock = held  # the lock is held for as long as this process lives
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
    """The controller's connection and the run's lock; None if it has ended or does not come.

    Nothing exists yet that anybody would have to remove but this container.
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
    """Whoever finds the socket there may connect to it, if the run is theirs."""
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
    """Give something in the run folder to the folder's owner."""
    owner = path.parent.stat()
    os.chown(path, owner.st_uid, owner.st_gid)


def _live(settings: AgentSettings, lifeline: socket.socket) -> int:
    """Do what there is to do until the run ends. Returns the exit status."""
    # Roles are forked two processes away from this one, and end as children of its own.
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    _say(lifeline, pid=os.getpid())
    folder = RunFolder(settings.folder)
    containers = GivenContainers()
    say = partial(_say, lifeline)
    try:
        with giving_up_at_hangup(lifeline.fileno()):
            spawner = Spawner.start(settings, agent_log=folder.log(AGENT_LOG))
            nodes = Nodes(containers, spawner, Switch.build(), TrafficMeter())
            loop = start_service(settings, nodes, lifeline=lifeline.fileno(), say=say)
    except HungUp:
        return 0  # no node was launched; the template ends when this process does
    for name in SERVED:
        _hand_over(folder.control / name)
    # As the engine's ``stop`` asks for it.
    signal.signal(signal.SIGTERM, lambda number, frame: loop.stop())
    try:
        loop.run()
    finally:
        left = end_all(nodes, containers)
    return OWN_FAILURE if left else 0


def end_all(
    nodes: Nodes, containers: GivenContainers, *, within_seconds: float = CLEANUP_SECONDS
) -> Sequence[str]:
    """Kill every role and every container, and wait for what are children of this process.

    Never more than these: the pid namespace is the host's. Returns the nodes whose roles have not
    ended in time, which the log says too: the engine takes its time to remove their containers.
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
    with suppress(ConnectionError):  # the controller has ended, and the lifeline says so too
        report(lifeline.fileno(), **message)


if __name__ == "__main__":
    end_with(main)
