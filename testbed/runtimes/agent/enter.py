"""Runs a command in a running node, with the node's restrictions.

``python -m testbed.runtimes.agent.enter WHERE COMMAND...`` with WHERE as JSON: ``process`` (the
role's pid and start time), ``entrances`` (of the node's control groups) and, for a command with a
terminal, ``terminal``: its ``size``, its ``term`` and the ``descriptor`` of a socket, to which the
terminal's other end is sent. Forwards signals, and exits with the command's status.

The caller's own terminal must not be among the streams: other processes of the node can reach the
command's descriptors.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.errors import NodeError
from testbed.host import syscalls
from testbed.host.confine import confine, keep_only
from testbed.host.group import enter
from testbed.host.process import Process, end_with, environment_of, max_processes_of
from testbed.host.terminal import open_terminal

NOT_FOUND = 127
NOT_EXECUTABLE = 126
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT)
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class NodeAccess:
    """The part of a node that a command enters."""

    pidfd: int  # of the node's role
    entrances: Sequence[str]  # files of the node's control groups, into which a process writes 0
    uid: int  # the role's
    processes: int  # the maximum number of processes of the uid
    environment: dict[str, str]  # the role's

    @classmethod
    def find(cls, where: Mapping[str, Any]) -> NodeAccess:
        """Enter the node's user namespace, and inspect its role; NodeError if that has ended."""
        role = Process.parse(where["process"])
        pidfd = role.open() if role is not None else None
        if role is None or pidfd is None:
            raise NodeError("the node has ended.")
        theirs, mine = (Path(f"/proc/{which}/ns/user").readlink() for which in (role.pid, "self"))
        if theirs != mine:
            syscalls.setns(pidfd, syscalls.CLONE_NEWUSER)
        # Only now that this process is in the same user namespace may it read all of the role, and
        # sees the uid by the number that it has for the role itself.
        status = Path(f"/proc/{role.pid}/status").read_text().splitlines()
        uid = next(int(line.split()[1]) for line in status if line.startswith("Uid:"))
        most = max_processes_of(role.pid)
        return cls(pidfd, where["entrances"], uid, most, environment_of(role.pid))


def main() -> int:
    """Enter the node, run the command, and wait for it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    where = json.loads(sys.argv[1])
    access = NodeAccess.find(where)
    # setns moves only children into a pid namespace.
    syscalls.setns(access.pidfd, syscalls.CLONE_NEWPID)
    child = os.fork()
    if child == 0:
        end_with(lambda: _become(access, where.get("terminal"), sys.argv[2:]))
    for number in PASSED_ON:
        signal.signal(number, lambda number, frame: _pass_on(number, child))
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGHUP)  # if the caller is killed
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def _pass_on(number: int, child: int) -> None:
    """Send a signal to the command and the processes it started."""
    try:
        os.killpg(child, number)
    except ProcessLookupError:  # it has no group of its own yet, or has just ended
        with suppress(ProcessLookupError):
            os.kill(child, number)


def _become(access: NodeAccess, terminal: Mapping[str, Any] | None, command: list[str]) -> int:
    """Become the command; return only if no such command exists."""
    for entrance in access.entrances:
        _enter_group(Path(entrance))
    syscalls.setns(access.pidfd, syscalls.CONTAINER & ~syscalls.CLONE_NEWPID)
    os.chdir("/")
    environment = access.environment
    if terminal is None:
        os.setsid()
    else:
        _take_terminal(terminal)
        environment = {**environment, "TERM": terminal["term"]}
    keep_only()
    confine(access.uid, processes=access.processes)
    for number in (*IGNORED_BY_PYTHON, *PASSED_ON):  # nohup, too, ignores SIGHUP
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environment)
    except FileNotFoundError:
        sys.stderr.write(f"{command[0]}: no such command in the node\n")
        return NOT_FOUND
    except PermissionError:
        sys.stderr.write(f"{command[0]}: not executable in the node\n")
        return NOT_EXECUTABLE


def _take_terminal(terminal: Mapping[str, Any]) -> None:
    """Open a pseudo-terminal in the node, send its master end, and log in on the other end."""
    lines, columns = terminal["size"]
    master, slave = open_terminal((lines, columns))
    with socket.socket(fileno=terminal["descriptor"]) as asking:
        socket.send_fds(asking, [b"\n"], [master])
    os.close(master)
    os.login_tty(slave)


def _enter_group(entrance: Path) -> None:
    try:
        enter(entrance)
    except OSError as error:
        raise NodeError(
            f"{entrance.parent} cannot be entered: {error.strerror}.",
            hint="Run this command in the same `systemd-run --user --scope` as `testbed up`.",
        ) from None


if __name__ == "__main__":
    end_with(main)
