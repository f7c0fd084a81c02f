"""A role that inspects its container and prints the result as one line of JSON."""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.host import syscalls

NAMESPACES = ("ipc", "mnt", "net", "pid", "uts", "user")
LIMITS = ("RLIMIT_CORE", "RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_STACK")
STATUS_LINES = ("Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp")


def main(arguments: Mapping[str, str]) -> int:
    """Print the identity, the privileges and the view of this process."""
    sys.stdout.write(json.dumps({**look(), "arguments": dict(arguments)}) + "\n")
    return 0


def look() -> dict[str, Any]:
    """Return the identity, the privileges and the view of this process, as plain data."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "pid": os.getpid(),
        "hostname": socket.gethostname(),
        "status": {name: status[name].split() for name in STATUS_LINES},
        "capabilities": {name: int(text, 16) for name, text in status.items() if name[:3] == "Cap"},
        "namespaces": {name: os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES},  # noqa: PTH115 - not a path
        "descriptors": _descriptors(),
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in LIMITS},
        "environment": dict(os.environ),
        "processes": sorted(
            int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()
        ),
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "interfaces": sorted(name for _, name in socket.if_nameindex()),
        "writable": [path for path in _mount_points() if os.access(path, os.W_OK)],
        "mounts": Path("/proc/self/mounts").read_text().splitlines(),
        "new namespaces": {name: _try_unshare(flag) for name, flag in _FLAGS.items()},
    }


_FLAGS = {
    "user": syscalls.CLONE_NEWUSER,
    "mnt": syscalls.CLONE_NEWNS,
    "net": syscalls.CLONE_NEWNET,
    "pid": syscalls.CLONE_NEWPID,
}


def _descriptors() -> dict[str, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - the listing's own descriptor is included
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115 - not a path
        except FileNotFoundError:
            continue  # of the listing itself
    return found


def _mount_points() -> list[str]:
    return [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]


def _try_unshare(flag: int) -> str:
    """Return the name of the kernel's error for a new namespace; empty if it is allowed."""
    try:
        syscalls.unshare(flag)
    except OSError as error:
        return type(error).__name__
    return ""
