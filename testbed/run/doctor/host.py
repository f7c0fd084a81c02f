"""What a check of this host returns, and the checks: kernel, limits, resources, packages, data."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from testbed.errors import HostError
from testbed.host.hierarchies import find_delegated, find_hierarchies
from testbed.host.kafka import find_kafka
from testbed.host.limits import MIN_ADDRESS_BYTES, require_files
from testbed.host.namespaces import scratch
from testbed.host.requirements import usable_cpus
from testbed.host.users import MIN_IDS, Users, find_users
from testbed.plan.budget import AGENT_BYTES, Budget
from testbed.plan.nodes.base import PYTHON_BYTES
from testbed.runtimes.base import NO_KAFKA, Finding
from testbed.telemetry.host import PROC, available_bytes
from testbed.values.topology import Plan
from testbed.values.units import megabytes

SERVICES = 2
"""The parameter server and the evaluator."""


@dataclass(frozen=True)
class ExaminedRun:
    """The run that a host is examined for."""

    workers: int
    runs: Path  # folder of all runs
    environment: Mapping[str, str]  # of this process
    cache: Path  # folder of prepared data sets
    plan: Plan | None = None  # of the run; None without a scenario
    budget: Budget | None = None  # of the run; None without a scenario
    container_bytes: int = 0  # what the runtime keeps for each container

    @property
    def gpu(self) -> bool:
        """Whether a node uses GPUs."""
        return self.plan is not None and self.plan.wants_gpus

    @property
    def broker(self) -> bool:
        """Whether its streams come through a broker."""
        return self.plan is not None and any(node.image == "kafka" for node in self.plan.nodes)

    @property
    def nodes(self) -> int:
        """The number of its nodes."""
        return self.workers + SERVICES if self.plan is None else len(self.plan.nodes)

    @property
    def memory_bytes(self) -> int:
        """The estimated memory of the run; without a scenario, of a model without parameters."""
        if self.budget is not None:
            return self.budget.total_bytes
        return AGENT_BYTES + (self.workers + SERVICES) * self.worker_bytes

    @property
    def worker_bytes(self) -> int:
        """The estimated memory of one more worker."""
        if self.budget is not None:
            return self.budget.node_bytes["worker"]
        return PYTHON_BYTES["warm"] + self.container_bytes


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


WORKERS_PER_CPU = 200
"""Workers that mostly think and wait; one CPU can keep this many connected."""

LEAST_DISK_BYTES = 100_000_000
FULL_DISK_BYTES = 10_000_000

TASKS_AT_LEAST, TASKS_PER_WORKER = 200, 16
"""A worker has about ten threads, mostly gRPC's."""

LEAST_INOTIFY = 8


PACKAGES = ("torch", "numpy", "grpcio", "protobuf", "pyroute2", "pandas", "pyarrow", "matplotlib")


def check_memory(case: ExaminedRun, *, available: int | None = None) -> Finding:
    """Compare the available memory with the estimate for the plan's nodes."""
    found = available_bytes() if available is None else available
    wanted = case.memory_bytes
    text = f"{megabytes(found)} available, about {megabytes(wanted)} for {case.workers:,} workers"
    if found < wanted:
        return Finding("memory", "missing", text, "Use fewer workers: --workers N")
    more = (found - wanted) // case.worker_bytes
    return Finding("memory", "ok", f"{text}; enough for about {more:,} more workers")


def check_cpus(case: ExaminedRun, *, cpus: int | None = None) -> Finding:
    """Compare the number of CPUs with the sum of the CPU limits and the number of workers."""
    found = usable_cpus() if cpus is None else cpus
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
    text = f"{megabytes(free)} free at {place}"
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


def check_packages(*, gpu: bool = False) -> Finding:
    """Report installed packages, without importing.

    A CUDA build of torch is larger, not faster, unless the run uses a ``gpu``.
    """
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
    if "+cu" in found["torch"] and not gpu:
        fix = "It works; the CPU build needs less disk space: https://download.pytorch.org/whl/cpu"
        return Finding("packages", "warning", f"{listed}: the CUDA build of PyTorch", fix)
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


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
