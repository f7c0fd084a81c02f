"""Tries out which namespaces this user may have, and reports it on standard output.

``python -m testbed.host.trial``: makes what the agent of a run makes first, and lets it go again.
"""

from __future__ import annotations

import os
import sys

from testbed.errors import HostError
from testbed.host import syscalls
from testbed.host.process import end_with
from testbed.host.refusals import explain
from testbed.host.reports import encode_error, report
from testbed.host.user_namespace import enter_user_namespace
from testbed.host.users import Kind, find_ranges


def main() -> int:
    """Report ``users``, the best kind that can be had, or an ``error``; 0 either way."""
    if find_ranges() is not None and _succeeds("range"):
        report(sys.stdout.fileno(), users="range")
        return 0
    try:
        attempt("one")
    except (OSError, HostError) as error:
        refusal = explain(error, root=False) if isinstance(error, OSError) else error
        report(sys.stdout.fileno(), error=encode_error(refusal))
    else:
        report(sys.stdout.fileno(), users="one")
    return 0


def attempt(kind: Kind) -> None:
    """Make the namespaces of a run; what they allow is seen from a process that is in all of them.

    Raises:
        OSError, HostError: something is refused.
    """
    enter_user_namespace(kind)
    syscalls.unshare(syscalls.CONTAINER)
    reader, writer = os.pipe()
    first = os.fork()
    if first == 0:
        end_with(lambda: _look_around(writer))
    os.close(writer)
    refused = os.read(reader, 16)
    os.close(reader)
    os.waitpid(first, 0)
    if refused:
        raise OSError(int(refused), os.strerror(int(refused)))


def _look_around(writer: int) -> int:
    """A security profile may give namespaces without the rights to do anything in them."""
    try:
        syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
        syscalls.mount("proc", "/proc", "proc", flags=syscalls.PROC_FLAGS)
        syscalls.bring_loopback_up()
    except OSError as error:
        os.write(writer, str(error.errno).encode())
    return 0


def _succeeds(kind: Kind) -> bool:
    child = os.fork()
    if child == 0:
        end_with(lambda: _silently(kind))
    return os.waitpid(child, 0)[1] == 0


def _silently(kind: Kind) -> int:
    """Without a report: if this kind fails, another one is tried."""
    try:
        attempt(kind)
    except (OSError, HostError):
        return 1
    return 0


if __name__ == "__main__":
    end_with(main)
