"""Checks of what one user may have at the same time: addresses, files, processes."""

from __future__ import annotations

import resource
from pathlib import Path

from testbed.run.doctor.findings import Case, Finding

PROC = Path("/proc")

LEAST_ADDRESS_BYTES = 8 * 2**30
"""torch alone maps some four gigabytes that it never touches."""

FILES_AT_LEAST, FILES_PER_WORKER = 256, 4
TASKS_AT_LEAST, TASKS_PER_WORKER = 200, 16
"""A worker has some ten threads: gRPC's."""

LEAST_INOTIFY = 8


def check_address_space(*, limit_bytes: int | None = None, proc: Path = PROC) -> Finding:
    """`ulimit -v`, and whether the kernel promises memory only once."""
    if limit_bytes is None:
        limit_bytes = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit_bytes != resource.RLIM_INFINITY and limit_bytes < LEAST_ADDRESS_BYTES:
        found = f"limited to {limit_bytes / 2**30:.1f} GiB, expected 8 GiB or no limit"
        return Finding("address space", "missing", found, "Lift it: ulimit -v unlimited")
    if _number(proc / "sys/vm/overcommit_memory") == 2:
        mend = "sudo sysctl -w vm.overcommit_memory=0"
        found = "vm.overcommit_memory is 2: memory that forks share is counted for each of them"
        return Finding("address space", "warning", found, mend)
    return Finding("address space", "ok", "no limit")


def check_files(case: Case, *, limit: int | None = None) -> Finding:
    """`ulimit -n`: the parameter server has a connection to every worker, the agent a few each."""
    if limit is None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    wanted = FILES_AT_LEAST + FILES_PER_WORKER * case.workers
    if limit != resource.RLIM_INFINITY and limit < wanted:
        found = f"{limit:,} open files, expected {wanted:,} for {case.workers:,} workers"
        return Finding("open files", "missing", found, f"Raise it: ulimit -n {wanted}")
    return Finding("open files", "ok", f"{limit:,}" if limit >= 0 else "no limit")


def check_processes(case: Case, *, proc: Path = PROC) -> Finding:
    """Threads and processes: the kernel's two limits, and the user's own."""
    wanted = TASKS_AT_LEAST + TASKS_PER_WORKER * case.workers
    own = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    limits = {
        "kernel.pid_max": _number(proc / "sys/kernel/pid_max"),
        "kernel.threads-max": _number(proc / "sys/kernel/threads-max"),
        "ulimit -u": None if own == resource.RLIM_INFINITY else own,
    }
    known = {name: limit for name, limit in limits.items() if limit is not None}
    name, least = min(known.items(), key=lambda item: item[1], default=("", wanted))
    if least < wanted:
        found = f"{name} is {least:,}, expected {wanted:,} for {case.workers:,} workers"
        raised = f"{name} {wanted}" if name.startswith("ulimit") else f"sysctl -w {name}={wanted}"
        return Finding("processes", "missing", found, f"Raise it: {raised}")
    return Finding("processes", "ok", f"{least:,}")


def check_inotify(*, proc: Path = PROC) -> Finding:
    """No run needs it, but what follows logs and watches folders does."""
    folder = proc / "sys/fs/inotify"
    instances = _number(folder / "max_user_instances")
    watches = _number(folder / "max_user_watches")
    if instances is None or watches is None:
        return Finding("inotify", "warning", "this kernel has none", "`logs --follow` looks often.")
    if instances < LEAST_INOTIFY:
        mend = "sudo sysctl -w fs.inotify.max_user_instances=128"
        return Finding("inotify", "warning", f"{instances} instances", mend)
    return Finding("inotify", "ok", f"{instances:,} instances, {watches:,} watches")


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
