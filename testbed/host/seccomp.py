"""A seccomp filter under which no namespace can be made or entered.

A worker has no capabilities, but where the kernel lets ordinary users make user namespaces it could
make itself one and have all of them in there. The filter refuses the system calls for it, as root
and as a user, and leaves everything else alone.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
from dataclasses import dataclass

from testbed.errors import HostError
from testbed.host import syscalls

NEW_NAMESPACE = (
    syscalls.CONTAINER | syscalls.CLONE_NEWCGROUP | syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWTIME
)

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


@dataclass(frozen=True)
class Numbers:
    """An architecture's name for the kernel, and its numbers of the calls that are refused."""

    architecture: int
    clone: int
    unshare: int
    setns: int
    clone3: int = 435


NUMBERS = {
    "x86_64": Numbers(0xC000_003E, clone=56, unshare=272, setns=308),
    "aarch64": Numbers(0xC000_00B7, clone=220, unshare=97, setns=268),
    "riscv64": Numbers(0xC000_00F3, clone=220, unshare=97, setns=268),
}


def forbid_namespaces() -> None:
    """Put this process and all its descendants under the filter; no_new_privs must be set.

    Raises:
        HostError: this architecture is not known here.
        OSError: the kernel has no seccomp filters.
    """
    numbers = NUMBERS.get(platform.machine())
    if numbers is None:
        known = ", ".join(NUMBERS)
        raise HostError(f"no seccomp filter for {platform.machine()}; there is one for {known}.")
    program = build_filter(numbers)
    instructions = ctypes.create_string_buffer(program, len(program))
    address = struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions))
    syscalls.prctl(
        syscalls.PR_SET_SECCOMP, _MODE_FILTER, ctypes.create_string_buffer(address, len(address))
    )


def build_filter(numbers: Numbers) -> bytes:
    """The filter as classic BPF. A jump is (if true, if false): instructions to skip."""
    refuse, unknown = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 0, 9, numbers.architecture),  # calls of another architecture: refuse
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 7, 0, _X32),  # x86-64's second set of numbers: refuse
        (_EQUAL, 6, 0, numbers.setns),
        (_EQUAL, 6, 0, numbers.clone3),  # its flags lie in memory: glibc then uses clone
        (_EQUAL, 1, 0, numbers.unshare),
        (_EQUAL, 0, 2, numbers.clone),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_ANY_BIT, 1, 0, NEW_NAMESPACE),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, refuse),
        (_RETURN, 0, 0, unknown),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
