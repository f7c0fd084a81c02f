"""The error for a pool process that exited unexpectedly."""

from __future__ import annotations

import signal

from testbed.errors import NodeError, TestbedError
from testbed.host.isolation import early_exit


def unexpected_exit(pid: int | None, status: int | None, *, own_files: str) -> TestbedError:
    """Return the error; for a process with the user's ``own_files``, it blames that code."""
    if own_files:
        return early_exit(own_files, status)
    killed = status == -signal.SIGKILL
    how = "by SIGKILL" if killed else f"with status {status}"
    return NodeError(
        f"a process of the simulation (pid {pid}) ended unexpectedly, {how}.",
        hint="If memory ran out, `dmesg` shows it." if killed else "Its last output is above.",
    )
