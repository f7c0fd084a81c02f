"""Checks of the kernel: its version, namespaces, capabilities, control groups."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

from testbed.errors import HostError
from testbed.host.hierarchies import find_delegated, find_hierarchies
from testbed.host.namespaces import scratch
from testbed.host.users import MIN_IDS, Users, find_users
from testbed.run.doctor.findings import Finding

LEAST_KERNEL = (5, 12)
SUBORDINATE = (
    "To give every node its own uid: sudo apt-get install uidmap, and a line USER:100000:65536 "
    f"in /etc/subuid and /etc/subgid (at least {MIN_IDS:,} ids)."
)

STATUS = Path("/proc/self/status")

CAPABILITIES = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "NET_ADMIN": 12,
    "SYS_CHROOT": 18,
    "SYS_PTRACE": 19,
    "SYS_ADMIN": 21,
}
"""The capabilities that root needs, by number."""


def check_kernel(release: str | None = None) -> Finding:
    """Check for Linux 5.12, the first that can bind-mount a folder read-only recursively."""
    found = platform.release() if release is None else release
    version = tuple(int(word) for word in re.findall(r"\d+", found)[:2])
    if version < LEAST_KERNEL:
        wanted = f"Linux {found}, expected 5.12 or newer (mount_setattr)"
        return Finding(
            "kernel", "missing", wanted, "Use a newer kernel, or a virtual machine with one."
        )
    return Finding("kernel", "ok", f"Linux {found}")


def check_namespaces() -> Finding:
    """Try to create namespaces: sysctls, profiles and seccomp filters may forbid them."""
    try:
        users = find_users()
        if not users.namespace:
            with scratch():
                pass
    except HostError as error:
        return Finding("namespaces", "missing", error.message, error.hint)
    except OSError as error:
        fix = "If this is a container, start it with CAP_SYS_ADMIN, or run testbed on the host."
        return Finding("namespaces", "missing", f"root cannot create any: {error.strerror}", fix)
    return describe_users(users)


def describe_users(users: Users) -> Finding:
    """Report, once namespaces can be created, whether every node has its own uid in them."""
    if users.kind == "one":
        found = f"can be created; {users.mode}: nodes are not protected from one another"
        return Finding("namespaces", "warning", found, SUBORDINATE)
    return Finding("namespaces", "ok", f"can be created; {users.mode}")


def check_capabilities(status: Path = STATUS, *, root: bool | None = None) -> Finding:
    """Check root's capabilities, which a container may restrict; a user has all in a namespace."""
    if not (os.geteuid() == 0 if root is None else root):
        return Finding("capabilities", "ok", "none needed: a run has its own user namespace")
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    effective = int(lines["CapEff"], 16)
    lacking = [name for name, number in CAPABILITIES.items() if not effective >> number & 1]
    if lacking:
        listed = ", ".join(f"CAP_{name}" for name in lacking)
        fix = "Start the container in which testbed runs with them (docker run --cap-add ...)."
        return Finding("capabilities", "missing", f"root lacks {listed}", fix)
    return Finding("capabilities", "ok", "all required ones")


def check_control_groups() -> Finding:
    """Check for control groups, for limits; root requires them, because they identify runs."""
    root = os.geteuid() == 0
    try:
        trees = find_hierarchies() if root else find_delegated()
    except HostError as error:
        return Finding("control groups", "missing", error.message, error.hint)
    if not trees:
        fix = (
            "To use limits: systemd-run --user --scope -p Delegate=yes testbed up ..., or run as "
            "root."
        )
        found = "none delegated to this user: limits are not available"
        return Finding("control groups", "warning", found, fix)
    listed = "; ".join(
        f"{', '.join(sorted(tree.controllers))} (version {tree.version})" for tree in trees
    )
    if not all(os.access(tree.root, os.W_OK) for tree in trees):
        fix = "Mount /sys/fs/cgroup writable; for a container: docker run --cgroupns=host -v ..."
        return Finding("control groups", "missing", f"{listed}; read-only", fix)
    return Finding("control groups", "ok", listed)
