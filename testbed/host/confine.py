"""Removes the privileges that a node's role must not have.

A worker has no capabilities, but where the kernel allows unprivileged user namespaces it could
create one and have all capabilities in it. And one process of a node could read the memory and
the descriptors of another, such as those of a command that `testbed exec` runs in the node. And no
network namespace isolates vsock, by which virtual machines talk to their host. A seccomp filter
denies the system calls for all of these, as root and as a user, and io_uring, which creates sockets
without passing the filter; nothing else.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
from contextlib import suppress
from typing import Any

from testbed.errors import HostError
from testbed.host import syscalls
from testbed.host.user_namespace import may_set_groups

OPEN_FILES = 4096
"""Enough for a server of 1,022 workers."""

STACK_BYTES = 8 * 2**20

NEW_NAMESPACE = (
    syscalls.CONTAINER | syscalls.CLONE_NEWCGROUP | syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWTIME
)

VSOCK = 40
"""The address family AF_VSOCK."""

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW = 0x7FFF_0000
_ERRNO = 0x0005_0000
_X32 = 0x4000_0000
_MODE_FILTER = 2


ARCHITECTURES = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7, "riscv64": 0xC000_00F3}
"""Their numbers in the kernel."""

REFUSED = {
    "setns": (308, 268),
    "io_uring_setup": (425, 425),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
}
"""Calls that are denied with any arguments: their number on x86-64, and that on the other
architectures, which are newer than these calls and share their numbers."""

CLONE, UNSHARE, SOCKET, CLONE3 = (56, 220), (272, 97), (41, 198), (435, 435)


def confine(uid: int, *, processes: int) -> None:
    """Become an unprivileged user for good: without capabilities or a way to gain any, with limits.

    Args:
        uid: of that user, and its gid.
        processes: maximum number of processes and threads of the uid, over all its nodes.
    """
    _set_limits(processes)
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
    # Changing the uid gave /proc/self to root. No other process with this uid can see this one.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    filter_calls()


def keep_only(*descriptors: int) -> None:
    """Close every descriptor except the given ones and 0, 1 and 2."""
    kept = {0, 1, 2, *descriptors}
    for descriptor in {int(name) for name in os.listdir("/proc/self/fd")} - kept:  # noqa: PTH208
        with suppress(OSError):  # the listing's own descriptor is already closed
            os.close(descriptor)


def filter_calls() -> None:
    """Put this process and all its descendants under the filter; no_new_privs must be set.

    Raises:
        HostError: this architecture is unknown here.
        OSError: the kernel has no seccomp filters.
    """
    if not _FILTER:
        known = ", ".join(ARCHITECTURES)
        raise HostError(f"no seccomp filter for {platform.machine()}, only for {known}.")
    syscalls.prctl(syscalls.PR_SET_SECCOMP, _MODE_FILTER, _PROGRAM)


def seccomp_profile() -> dict[str, Any]:
    """Return the filter as a profile for container engines, in the format of Docker's."""
    one_each = [1 << bit for bit in range(32) if NEW_NAMESPACE >> bit & 1]
    tests = [
        *(("clone", flag, flag, "SCMP_CMP_MASKED_EQ") for flag in one_each),
        *(("unshare", flag, flag, "SCMP_CMP_MASKED_EQ") for flag in one_each),
        ("socket", VSOCK, 0, "SCMP_CMP_EQ"),
    ]
    conditional = [
        {
            "names": [name],
            "action": "SCMP_ACT_ERRNO",
            "args": [{"index": 0, "value": value, "valueTwo": second, "op": test}],
        }
        for name, value, second, test in tests
    ]
    refused = {"names": list(REFUSED), "action": "SCMP_ACT_ERRNO"}
    unknown = {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS}
    return {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [refused, unknown, *conditional]}


def build_filter(machine: str) -> bytes:
    """Return the filter as classic BPF. A jump is (if true, if false): instructions to skip."""
    column = int(machine != "x86_64")
    allow, refuse, unknown = (
        (_RETURN, 0, 0, value) for value in (_ALLOW, _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS)
    )
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        *((_EQUAL, 1, 0, ARCHITECTURES[machine]), refuse),
        (_LOAD, 0, 0, _NUMBER),
        *((_AT_LEAST, 0, 1, _X32), refuse),  # x86-64's second set of numbers
    ]
    for numbers in REFUSED.values():
        program += [(_EQUAL, 0, 1, numbers[column]), refuse]
    program += [
        *((_EQUAL, 0, 1, CLONE3[column]), unknown),  # its flags are in memory: glibc uses clone
        (_EQUAL, 0, 4, SOCKET[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        *((_EQUAL, 0, 1, VSOCK), refuse, allow),
        (_EQUAL, 1, 0, UNSHARE[column]),
        (_EQUAL, 0, 3, CLONE[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        *((_ANY_BIT, 0, 1, NEW_NAMESPACE), refuse, allow),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


_FILTER = build_filter(platform.machine()) if platform.machine() in ARCHITECTURES else b""
_INSTRUCTIONS = ctypes.create_string_buffer(_FILTER, len(_FILTER))
_PROGRAM = ctypes.create_string_buffer(
    struct.pack("@HP", len(_FILTER) // 8, ctypes.addressof(_INSTRUCTIONS))
)
"""The filter as the kernel takes it, a struct sock_fprog; made before any node is forked."""


def _set_limits(processes: int) -> None:
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_NPROC: processes,
        resource.RLIMIT_STACK: STACK_BYTES,
    }
    for kind, value in wanted.items():
        _, most = resource.getrlimit(kind)
        limit = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(kind, (limit, limit))
