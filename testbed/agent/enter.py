"""Runs a command in a running node, with the node's restrictions.

``python -m testbed.agent.enter WHERE COMMAND...`` with WHERE as JSON: ``process`` (the role's pid
and start time) and ``entrances`` (of the node's control groups). Ends with the command's status.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from testbed.errors import NodeError
from testbed.host import syscalls
from testbed.host.confine import confine, keep_only
from testbed.host.process import Process, end_with, environment_of

NOT_FOUND = 127
NOT_EXECUTABLE = 126
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT)


def main() -> int:
    """Enter the node, run the command, and wait for it."""
    where = json.loads(sys.argv[1])
    role = Process.parse(where["process"])
    pidfd = role.open() if role is not None else None
    if role is None or pidfd is None:
        raise NodeError("the node has ended.")
    theirs, mine = (Path(f"/proc/{which}/ns/user").readlink() for which in (role.pid, "self"))
    if theirs != mine:
        syscalls.setns(pidfd, syscalls.CLONE_NEWUSER)
    # Now that this process is in the same user namespace: there it may read all of the role, and
    # the uid has the number that it has for the role itself.
    status = Path(f"/proc/{role.pid}/status").read_text().splitlines()
    uid = next(int(line.split()[1]) for line in status if line.startswith("Uid:"))
    environment = environment_of(role.pid)
    # Only children are moved into a pid namespace.
    syscalls.setns(pidfd, syscalls.CLONE_NEWPID)
    child = os.fork()
    if child == 0:
        end_with(lambda: _become(pidfd, where["entrances"], uid, environment, sys.argv[2:]))
    # Ctrl-C is for the command, which is in the same process group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def _become(
    pidfd: int, entrances: Sequence[str], uid: int, environment: dict[str, str], command: list[str]
) -> int:
    """Become the command; returns only if there is no such command."""
    for entrance in entrances:
        _enter_group(Path(entrance))
    syscalls.setns(pidfd, syscalls.CONTAINER & ~syscalls.CLONE_NEWPID)
    os.chdir("/")
    keep_only()
    confine(uid)
    for number in IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environment)
    except FileNotFoundError:
        sys.stderr.write(f"{command[0]}: no such command in the node\n")
        return NOT_FOUND
    except PermissionError:
        sys.stderr.write(f"{command[0]}: not executable in the node\n")
        return NOT_EXECUTABLE


def _enter_group(entrance: Path) -> None:
    try:
        entrance.write_text("0")
    except OSError as error:
        raise NodeError(
            f"{entrance.parent} cannot be entered: {error.strerror}.",
            hint="Call this from inside the same `systemd-run --user --scope` as the run's own.",
        ) from None


if __name__ == "__main__":
    end_with(main)
