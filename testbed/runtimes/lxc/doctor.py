"""Checks of LXC: that it is installed, and that this user can have containers."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from testbed.errors import HostError
from testbed.host.hierarchies import find_mounted
from testbed.host.users import find_users
from testbed.runtimes.base import Finding
from testbed.runtimes.lxc.groups import lxc_folder
from testbed.runtimes.lxc.unprivileged import require_range

CONTROL_GROUPS = Path("/sys/fs/cgroup")
TOOLS = ("lxc-execute", "lxc-config")


def require_lxc() -> None:
    """Reject a host without LXC or with control groups elsewhere, and users without a range.

    Raises:
        HostError: what is missing; says how to get it.
    """
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    if lacking:
        raise HostError(
            f"{lacking[0]}: no such program: LXC is not installed.",
            hint="Debian, Ubuntu: sudo apt-get install --no-install-recommends lxc",
        )
    if os.geteuid() != 0:
        require_range(find_users())
        return
    hidden = [one.point for one in find_mounted() if not one.point.is_relative_to(CONTROL_GROUPS)]
    if hidden:
        raise HostError(
            f"control groups are mounted at {hidden[0]}, but LXC only uses those at "
            f"{CONTROL_GROUPS}.",
            hint=f"Mount them there instead: mount -t cgroup2 none {CONTROL_GROUPS}",
        )


def examine_lxc() -> Iterator[Finding]:
    """Run all checks of LXC; only the first if it is not installed."""
    try:
        require_lxc()
    except HostError as error:
        yield Finding("LXC", "missing", error.message, error.hint)
        return
    shown = subprocess.run(["lxc-execute", "--version"], capture_output=True, text=True, check=True)
    yield Finding("LXC", "ok", f"{shown.stdout.strip()}, containers in {lxc_folder()}")
