"""Checks of what a run uses: memory, CPUs, disk, addresses, files, processes, packages, data."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from testbed.errors import HostError
from testbed.host.kafka import find_kafka
from testbed.host.limits import MIN_ADDRESS_BYTES, require_files
from testbed.run.doctor.findings import ExaminedRun, Finding
from testbed.telemetry.host import PROC, available_bytes

WORKERS_PER_CPU = 200
"""Workers that mostly think and wait; one CPU can keep this many connected."""

LEAST_DISK_BYTES = 100_000_000
FULL_DISK_BYTES = 10_000_000

TASKS_AT_LEAST, TASKS_PER_WORKER = 200, 16
"""A worker has about ten threads, mostly gRPC's."""

LEAST_INOTIFY = 8

NO_KAFKA = "not found; needed only for streams with `transport: kafka`"

PACKAGES = ("torch", "numpy", "grpcio", "protobuf", "pyroute2", "pandas", "pyarrow", "matplotlib")


def check_memory(case: ExaminedRun, *, available: int | None = None) -> Finding:
    """Compare the available memory with the estimate for the plan's nodes."""
    found = available_bytes() if available is None else available
    wanted = case.memory_bytes
    text = f"{_mb(found)} available, about {_mb(wanted)} for {case.workers:,} workers"
    if found < wanted:
        return Finding("memory", "missing", text, "Use fewer workers: --workers N")
    more = (found - wanted) // case.worker_bytes
    return Finding("memory", "ok", f"{text}; enough for about {more:,} more workers")


def check_cpus(case: ExaminedRun, *, cpus: int | None = None) -> Finding:
    """Compare the number of CPUs with the sum of the CPU limits and the number of workers."""
    found = len(os.sched_getaffinity(0)) if cpus is None else cpus
    promised = 0.0 if case.budget is None else case.budget.cpu_limits
    if promised > found:
        text = f"{found}, but the limits of the nodes add up to {promised:g}"
        fix = "Lower the limits: if all nodes compute at once, their steps will be late."
        return Finding("CPUs", "warning", text, fix)
    if case.workers > WORKERS_PER_CPU * found:
        text = f"{found} for {case.workers:,} workers"
        return Finding("CPUs", "warning", text, "Use fewer workers, or a smaller time_scale.")
    return Finding("CPUs", "ok", f"{found} for {case.workers:,} workers")


def check_disk(case: ExaminedRun) -> Finding:
    """Check that the folder of runs is writable, and its free space."""
    place = _existing(case.runs)
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(bytes(4096))
            file.flush()
    except OSError as error:
        found = f"{place} cannot be written to: {error.strerror}"
        return Finding("disk", "missing", found, "Choose another folder with --runs.")
    free = shutil.disk_usage(place).free
    text = f"{_mb(free)} free at {place}"
    if free < LEAST_DISK_BYTES:
        fix = "Free disk space, or choose another folder with --runs."
        return Finding("disk", "missing" if free < FULL_DISK_BYTES else "warning", text, fix)
    return Finding("disk", "ok", text)


def check_address_space(*, limit_bytes: int | None = None, proc: Path = PROC) -> Finding:
    """Check `ulimit -v`, and whether the kernel overcommits memory."""
    if limit_bytes is None:
        limit_bytes = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit_bytes != resource.RLIM_INFINITY and limit_bytes < MIN_ADDRESS_BYTES:
        least = f"{MIN_ADDRESS_BYTES / 2**30:g} GiB"
        found = f"limited to {limit_bytes / 2**30:.1f} GiB, expected {least} or no limit"
        return Finding("address space", "missing", found, "Remove the limit: ulimit -v unlimited")
    if _number(proc / "sys/vm/overcommit_memory") == 2:
        fix = "sudo sysctl -w vm.overcommit_memory=0"
        found = (
            "vm.overcommit_memory is 2: memory shared by forked processes is counted for each of "
            "them"
        )
        return Finding("address space", "warning", found, fix)
    limited = limit_bytes != resource.RLIM_INFINITY
    text = f"limited to {limit_bytes / 2**30:.1f} GiB" if limited else "no limit"
    return Finding("address space", "ok", text)


def check_files(case: ExaminedRun, *, limit: int | None = None) -> Finding:
    """Check `ulimit -Hn`: the agent needs a few files for every node."""
    try:
        most = require_files(case.nodes, most=limit)
    except HostError as lack:
        return Finding("open files", "missing", lack.message, lack.hint)
    return Finding("open files", "ok", f"{most:,}" if most >= 0 else "no limit")


def check_processes(case: ExaminedRun, *, proc: Path = PROC) -> Finding:
    """Check the limits on threads and processes: the kernel's two, and the user's own."""
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
    """Check inotify: runs do not need it, but tools that follow logs and watch folders do."""
    folder = proc / "sys/fs/inotify"
    instances = _number(folder / "max_user_instances")
    watches = _number(folder / "max_user_watches")
    if instances is None or watches is None:
        return Finding(
            "inotify", "warning", "not supported by this kernel", "`logs --follow` polls instead."
        )
    if instances < LEAST_INOTIFY:
        fix = "sudo sysctl -w fs.inotify.max_user_instances=128"
        return Finding("inotify", "warning", f"{instances} instances", fix)
    return Finding("inotify", "ok", f"{instances:,} instances, {watches:,} watches")


def check_python() -> Finding:
    """Report the interpreter, which nodes use as well; an older one could not run this check."""
    return Finding("Python", "ok", f"{platform.python_version()}, {sys.executable}")


def check_packages() -> Finding:
    """Report installed packages, without importing; a CUDA build of torch is larger, not faster."""
    found, lacking = {}, []
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            lacking.append(name)
    if lacking:
        fix = f"Install it: {sys.executable} -m pip install {' '.join(lacking)}"
        return Finding("packages", "missing", f"not installed: {', '.join(lacking)}", fix)
    listed = ", ".join(f"{name} {found[name]}" for name in ("torch", "numpy", "grpcio"))
    if "+cu" in found["torch"]:
        fix = "It works; the CPU build needs less disk space: https://download.pytorch.org/whl/cpu"
        return Finding("packages", "warning", f"{listed}: torch's build for GPUs", fix)
    return Finding("packages", "ok", listed)


def check_data(case: ExaminedRun) -> Finding:
    """Report where raw data sets are looked for, and where prepared ones are stored."""
    given = case.environment.get("TESTBED_DATA", "")
    if given and not Path(given).is_dir():
        fix = "Set TESTBED_DATA to a folder with the data sets, or unset it."
        return Finding("data", "missing", f"TESTBED_DATA is {given}, which is not a folder", fix)
    place = _existing(case.cache)
    if not os.access(place, os.W_OK):
        fix = "Set XDG_CACHE_HOME to a writable folder."
        return Finding("data", "missing", f"the cache {place} is not writable", fix)
    sources = f"TESTBED_DATA is {given}" if given else "TESTBED_DATA is not set"
    return Finding("data", "ok", f"{sources}; prepared data sets are kept in {case.cache}")


def check_kafka(case: ExaminedRun) -> Finding:
    """Check for Kafka, from which a broker of streams is started, if the scenario has a broker."""
    try:
        found = find_kafka(case.environment)
    except HostError as lack:
        if case.broker:
            return Finding("Kafka", "missing", lack.message, lack.hint)
        return Finding("Kafka", "ok", NO_KAFKA)
    text = f"Kafka {found.version} in {found.jars}, Java {found.java_version} in {found.java}"
    return Finding("Kafka", "ok", text)


def _existing(path: Path) -> Path:
    """Return the folder, or its nearest existing parent."""
    absolute = path.absolute()
    return next(place for place in (absolute, *absolute.parents) if place.is_dir())


def _mb(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
