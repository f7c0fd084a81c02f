"""System calls for which Python 3.11 has no function."""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import gc
import os
import platform
import signal
import socket
import struct
from pathlib import Path

from testbed.errors import HostError
from testbed.host import kernel_files

CLONE_PARENT = 0x0000_8000
CLONE_CHILD_CLEARTID = 0x0020_0000
CLONE_CHILD_SETTID = 0x0100_0000
CLONE_NEWNS = 0x0002_0000
CLONE_NEWCGROUP = 0x0200_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000
CLONE_NEWTIME = 0x0000_0080
CONTAINER = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
"""The namespaces that every run and every node has of its own."""

MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
PROC_FLAGS = MS_NOSUID | MS_NODEV | MS_NOEXEC
"""Of every mount of /proc."""

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_SECUREBITS = 28
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_GET_TID_ADDRESS = 40
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
SECURE_NOROOT_FOR_GOOD = 0b11
"""Uid 0 gains no capability by executing a program; irrevocable."""

_MADV_COLLAPSE = 25
_SYS_CLONE = 56 if platform.machine() == "x86_64" else 220  # as on aarch64 and riscv64
_SYS_MOUNT_SETATTR = 442  # the same number on every architecture
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 1
_MOUNT_ATTR_NOSUID = 2
_CAPABILITY_VERSION_3 = 0x2008_0522
_IN_CREATE, _IN_MOVED_TO, _IN_CLOEXEC = 0x100, 0x80, 0x80000
_SIOCGIFMTU = 0x8921
_SIOCETHTOOL = 0x8946
_SIOCGIFINDEX = 0x8933
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
_IFREQ_FLAGS = struct.Struct("16sH22x")
_IFREQ_NUMBER = struct.Struct("16si20x")
LOOPBACK = "lo"

_libc = ctypes.CDLL(None, use_errno=True)
_interpreter = ctypes.PyDLL(None, use_errno=True)
"""The same, for calls during which the interpreter stays locked."""


def unshare(flags: int) -> None:
    """Move this process (for CLONE_NEWPID: its next children) into new namespaces."""
    _check(_libc.unshare(flags), "unshare")


def fork_sibling(flags: int) -> int:
    """Fork like ``os.fork``, but a child of this process's parent, in new namespaces.

    This process must have only one thread: the handlers of ``pthread_atfork`` are not called.

    Raises:
        OSError: not allowed, or the kernel has no CONFIG_CHECKPOINT_RESTORE.
    """
    # There glibc keeps the thread's number, by which it knows the owners of locks.
    number = ctypes.c_void_p()
    prctl(PR_GET_TID_ADDRESS, ctypes.addressof(number))
    flags |= CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | signal.SIGCHLD
    # The fourth argument on x86-64 and the fifth elsewhere; the other one is not used.
    arguments = (ctypes.c_long(_SYS_CLONE), ctypes.c_ulong(flags), None, None, number, number)
    clone, after_child = _interpreter.syscall, _interpreter.PyOS_AfterFork_Child
    before, after_parent = _interpreter.PyOS_BeforeFork, _interpreter.PyOS_AfterFork_Parent
    collects = gc.isenabled()
    gc.disable()  # a collection might wait for locks that the interpreter holds in between
    before()
    pid: int = clone(*arguments)
    (after_parent if pid else after_child)()
    if collects:
        gc.enable()
    return _check(pid, "clone")


def setns(descriptor: int, flags: int) -> None:
    """Move this process into namespaces: of a pidfd's process, or of a /proc/PID/ns file."""
    _check(_libc.setns(descriptor, flags), "setns")


def mount(source: str, target: str, kind: str = "", *, flags: int = 0, data: str = "") -> None:
    """Call mount(2)."""
    result = _libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        data.encode() or None,
    )
    _check(result, f"mount {kind or source} at {target}")


def seal(target: str) -> None:
    """Make a mount recursively read-only, and ignore its programs' setuid bits and capabilities.

    Raises:
        HostError: the kernel is older than 5.12.
    """
    # Without nosuid, a program with file capabilities is not even executed if the bounding set
    # lacks them; ping is one in many systems.
    flags = _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID
    _mount_setattr(target, _AT_RECURSIVE, put=flags, doing=f"make {target} read-only")


def make_writable(target: str) -> None:
    """Make a mount writable again, keeping its other flags; HostError as for ``seal``."""
    _mount_setattr(target, 0, take=_MOUNT_ATTR_RDONLY, doing=f"make {target} writable")


def _mount_setattr(target: str, how: int, *, put: int = 0, take: int = 0, doing: str) -> None:
    attributes = struct.pack("=QQQQ", put, take, 0, 0)
    result = _libc.syscall(
        ctypes.c_long(_SYS_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        target.encode(),
        ctypes.c_uint(how),
        attributes,
        ctypes.c_size_t(len(attributes)),
    )
    if result < 0 and ctypes.get_errno() == errno.ENOSYS:
        raise HostError("this kernel has no mount_setattr; Linux 5.12 or newer is needed.")
    _check(result, doing)


def watch_names(folder: Path) -> int:
    """Return a descriptor that becomes readable when a name appears in a folder (inotify)."""
    watch: int = _check(_libc.inotify_init1(_IN_CLOEXEC), "inotify_init1")
    added = _libc.inotify_add_watch(watch, str(folder).encode(), _IN_CREATE | _IN_MOVED_TO)
    _check(added, f"inotify_add_watch {folder}")
    return watch


def prctl(
    option: int, argument: int = 0, pointer: ctypes.Array[ctypes.c_char] | None = None
) -> int:
    """Call prctl(2) with one number, and a pointer as the next argument."""
    result: int = _libc.prctl(
        ctypes.c_int(option),
        ctypes.c_ulong(argument),
        pointer,
        ctypes.c_ulong(0),
        ctypes.c_ulong(0),
    )
    return _check(result, f"prctl {option}")


def set_name(name: str) -> None:
    """Set the name of this process in ``ps`` and ``top``; the kernel keeps 15 bytes."""
    _check(_libc.prctl(ctypes.c_int(PR_SET_NAME), name.encode()[:15]), "prctl")


def collapse_pages(start: int, end: int) -> bool:
    """Put the memory between two addresses into huge pages; return False if not supported.

    It is from Linux 6.1 on, unless ``transparent_hugepage/enabled`` is ``never``.
    """
    length = ctypes.c_size_t(end - start)
    return bool(_libc.madvise(ctypes.c_void_p(start), length, _MADV_COLLAPSE) == 0)


def drop_bounding_set() -> None:
    """Remove every capability from the bounding set; needs CAP_SETPCAP."""
    last = int(kernel_files.read("/proc/sys/kernel/cap_last_cap"))
    for capability in range(last + 1):
        prctl(PR_CAPBSET_DROP, capability)


def drop_capabilities() -> None:
    """Empty the effective, permitted, inheritable and ambient sets."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(header, bytes(24)), "capset")


def bring_loopback_up() -> None:
    """Bring ``lo`` of the current network namespace up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as control:
        bring_interface_up(control, LOOPBACK)


def bring_interface_up(control: socket.socket, name: str) -> None:
    """Bring an interface up; ``control`` is any socket that was opened in its namespace."""
    answer = fcntl.ioctl(control, _SIOCGIFFLAGS, _IFREQ_FLAGS.pack(name.encode(), 0))
    _, flags = _IFREQ_FLAGS.unpack(answer)
    fcntl.ioctl(control, _SIOCSIFFLAGS, _IFREQ_FLAGS.pack(name.encode(), flags | _IFF_UP))


def interface_index(control: socket.socket, name: str) -> int:
    """Return the index of an interface; OSError if there is none in the socket's namespace."""
    return _interface_number(control, name, _SIOCGIFINDEX)


def interface_mtu(control: socket.socket, name: str) -> int:
    """Return the MTU of an interface; OSError if there is none in the socket's namespace."""
    return _interface_number(control, name, _SIOCGIFMTU)


def ethtool(control: socket.socket, name: str, command: int, value: int = 0) -> int:
    """Send one struct ethtool_value through a struct ifreq that points to it; return its data.

    Raises:
        OSError: there is no such interface in the socket's namespace, or the kernel refused.
    """
    exchanged = array.array("I", (command, value))
    request = struct.pack("16sP", name.encode(), exchanged.buffer_info()[0])
    fcntl.ioctl(control, _SIOCETHTOOL, request)
    return exchanged[1]


def _interface_number(control: socket.socket, name: str, request: int) -> int:
    answer = fcntl.ioctl(control, request, _IFREQ_NUMBER.pack(name.encode(), 0))
    number: int = _IFREQ_NUMBER.unpack(answer)[1]
    return number


def _check(result: int, doing: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{doing}: {os.strerror(number)}")
    return result
