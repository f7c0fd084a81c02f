"""Creates the user namespace in which an unprivileged user may do what a run needs.

``python -m testbed.host.user_namespace``: tries which namespaces this user may create, releases
them again, and reports on standard output.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from testbed.errors import HostError
from testbed.host import kernel_files, syscalls
from testbed.host.process import end_with
from testbed.host.refusals import explain
from testbed.host.reports import encode_error, report
from testbed.host.users import TOOLS, IdRange, Kind, find_ranges

FIRST_NODE_ID = 1
"""In the namespace, 0 is the user, and the subordinate ids follow from here on."""

NAMESPACES_SYSCTL = Path("/proc/sys/user/max_user_namespaces")


def enter_user_namespace(kind: Kind) -> None:
    """Move this process, which must have one thread, into a new user namespace, as uid 0 of it.

    Root (``kind`` root) needs none.

    Raises:
        OSError: the kernel refuses.
        HostError: ``newuidmap`` or ``newgidmap`` refuses, or there is no range; says why.
    """
    if kind == "one":
        uid, gid = os.geteuid(), os.getegid()
        syscalls.unshare(syscalls.CLONE_NEWUSER)
        # Otherwise a process could drop a group that was meant to deny it access.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    elif kind == "range":
        ranges = find_ranges()
        if ranges is None:
            raise HostError("/etc/subuid or /etc/subgid no longer has a range for this user.")
        _enter_with_ranges(*ranges)


def forbid_user_namespaces() -> None:
    """Forbid further user namespaces inside this one, for all processes including the caller."""
    NAMESPACES_SYSCTL.write_text("0")


def may_set_groups() -> bool:
    """Return whether supplementary groups can be changed: not if only the user's gid is mapped."""
    try:
        return kernel_files.read("/proc/self/setgroups").strip() == b"allow"
    except FileNotFoundError:  # a kernel without user namespaces
        return True


def _enter_with_ranges(uids: IdRange, gids: IdRange) -> None:
    """Enter the namespace, while a fork outside writes the maps, which only works from there."""
    process, uid, gid = os.getpid(), os.geteuid(), os.getegid()
    reader, writer = os.pipe()
    mapper = os.fork()
    if mapper == 0:
        os.close(writer)
        end_with(lambda: _write_maps(reader, process, (uid, uids), (gid, gids)))
    os.close(reader)
    try:
        syscalls.unshare(syscalls.CLONE_NEWUSER)
        os.write(writer, b"\n")
    finally:
        os.close(writer)
        _, status = os.waitpid(mapper, 0)
    if status:
        raise HostError(
            f"{' or '.join(TOOLS)} cannot map the subordinate uids of this user.",
            hint="They must be setuid root (Debian, Ubuntu: sudo apt install --reinstall uidmap).",
        )


def _write_maps(
    start: int, process: int, uids: tuple[int, IdRange], gids: tuple[int, IdRange]
) -> int:
    """Write the maps, in the fork; return its exit status."""
    if not os.read(start, 1):
        return 1
    for tool, (own, more) in zip(TOOLS, (uids, gids), strict=True):
        first = [str(number) for number in (0, own, 1)]
        others = [str(number) for number in (FIRST_NODE_ID, more.start, more.count)]
        if subprocess.run([tool, str(process), *first, *others], check=False).returncode:
            return 1
    return 0


def main() -> int:
    """Report ``users``, the best available kind, or an ``error``; return 0 either way."""
    if find_ranges() is not None and _gives_range():
        report(sys.stdout.fileno(), users="range")
    elif (refusal := _attempt("one")) is not None:
        report(sys.stdout.fileno(), error=encode_error(refusal))
    else:
        report(sys.stdout.fileno(), users="one")
    return 0


def _attempt(kind: Kind) -> HostError | None:
    """Create the namespaces of a run; return the error if that is refused.

    A process that is in all of them checks what they allow.
    """
    try:
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
    except (OSError, HostError) as error:
        return explain(error, root=False)
    return None


def _look_around(writer: int) -> int:
    """Check the rights in the namespaces, which a security profile may have removed."""
    try:
        syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
        syscalls.mount("proc", "/proc", "proc", flags=syscalls.PROC_FLAGS)
        syscalls.bring_loopback_up()
    except OSError as error:
        os.write(writer, str(error.errno).encode())
    return 0


def _gives_range() -> bool:
    """Return whether a range of ids is available; tried in a child, as one id may be tried next."""
    child = os.fork()
    if child == 0:
        end_with(lambda: int(_attempt("range") is not None))
    return os.waitpid(child, 0)[1] == 0


if __name__ == "__main__":
    end_with(main)
