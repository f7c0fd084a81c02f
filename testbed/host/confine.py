"""Takes from a process everything that a node's role has no business with."""

from __future__ import annotations

import os
import resource
import signal
from contextlib import suppress
from pathlib import Path

from testbed.host import syscalls
from testbed.host.seccomp import forbid_namespaces
from testbed.host.user_namespace import may_set_groups

OPEN_FILES = 4096
"""Enough for a server of 1,022 workers."""

PROCESSES = 4096
"""Counted over all processes of a uid; the node's control group has the closer limit."""

SHARED_UID = 0
"""Where the user's own uid is the only one, all nodes count as one."""

STACK_BYTES = 8 * 2**20


def confine(uid: int) -> None:
    """Become an unprivileged user for good: no capabilities nor a way to them, explicit limits."""
    _set_limits(uid)
    os.umask(0o022)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    syscalls.drop_bounding_set()
    syscalls.prctl(syscalls.PR_SET_SECUREBITS, syscalls.SECURE_NOROOT_FOR_GOOD)
    if may_set_groups():
        os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    syscalls.drop_capabilities()
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    # Changing the uid gave /proc/self to root. Nobody else has this uid and sees this process.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    forbid_namespaces()


def keep_only(*descriptors: int) -> None:
    """Close every descriptor but the given ones and 0, 1 and 2."""
    kept = {0, 1, 2, *descriptors}
    for descriptor in {int(entry.name) for entry in Path("/proc/self/fd").iterdir()} - kept:
        with suppress(OSError):  # the one that listed the folder is closed by now
            os.close(descriptor)


def _set_limits(uid: int) -> None:
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_STACK: STACK_BYTES,
    }
    if uid != SHARED_UID:
        wanted[resource.RLIMIT_NPROC] = PROCESSES
    for kind, value in wanted.items():
        _, most = resource.getrlimit(kind)
        limit = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(kind, (limit, limit))
