"""The host: its load and memory, from /proc, and what ``environment.json`` says of it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from testbed.telemetry.files import read_json, write_atomically
from testbed.telemetry.folder import FORMAT, RunFolder
from testbed.telemetry.wall import ClockOffset

PROC = Path("/proc")


@dataclass(frozen=True)
class CpuTimes:
    """Ticks of all CPUs since boot; guest and stolen time counts as busy."""

    busy: int
    total: int


@dataclass(frozen=True)
class HostSample:
    """The host since the previous sample."""

    busy_ratio: float | None  # share of CPU time used, in [0, 1]; None if no tick has passed
    available_bytes: int | None  # available without swapping; None if the kernel does not report it
    pressure_ratio: float | None = None  # share of time in which a process waited for a CPU


@dataclass(frozen=True)
class OtherHost:
    """A reading of another host of a run over several."""

    name: str
    sample: HostSample
    clock: ClockOffset


@dataclass(frozen=True)
class Waiting:
    """Seconds in which at least one process has waited for a CPU, at a time of some clock."""

    seconds: float
    at: float


class HostSampler:
    """Measures the host between two calls; ``clock`` counts monotonic real seconds."""

    def __init__(self, proc: Path = PROC, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._clock = clock
        self._last = self._times()
        self._waited = self._waiting()

    def sample(self) -> HostSample:
        """Measure the host since the last call, or since creation."""
        now = self._times()
        ratio = busy_ratio(self._last, now)
        if ratio is not None:
            self._last = now
        memory = parse_meminfo((self._proc / "meminfo").read_text())
        before, self._waited = self._waited, self._waiting()
        pressure = pressure_ratio(before, self._waited)
        return HostSample(ratio, memory.get("MemAvailable"), pressure)

    def _waiting(self) -> Waiting | None:
        try:
            text = (self._proc / "pressure" / "cpu").read_text()
        except OSError:  # a kernel without pressure stall information, or with it disabled
            return None
        return Waiting(parse_pressure(text), self._clock())

    def _times(self) -> CpuTimes:
        return parse_stat((self._proc / "stat").read_text())


def available_bytes(proc: Path = PROC) -> int:
    """Return the memory available without swapping; the total on old kernels."""
    sizes = parse_meminfo((proc / "meminfo").read_text())
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return sizes.get("MemAvailable", total)


def parse_stat(text: str) -> CpuTimes:
    """Parse the first line of /proc/stat.

    Its columns are user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice. User
    and nice include the guests' time. A CPU that waits for a disk is not busy; time that a
    hypervisor gave to another guest is busy, as processes here had to wait for it.
    """
    words = text.split("\n", 1)[0].split()
    if words[:1] != ["cpu"] or len(words) < 5:
        raise ValueError(f"not /proc/stat: it begins with {text[:40]!r}")
    ticks = [int(word) for word in words[1:9]]
    idle = sum(ticks[3:5])
    return CpuTimes(busy=sum(ticks) - idle, total=sum(ticks))


def busy_ratio(before: CpuTimes, after: CpuTimes) -> float | None:
    """Return the busy share of the time between two readings; None if no tick has passed.

    The kernel's iowait may decrease by a tick or two, which must not make a share negative.
    """
    total = after.total - before.total
    if total <= 0:
        return None
    return min(1.0, max(0.0, (after.busy - before.busy) / total))


def parse_pressure(text: str) -> float:
    """Parse /proc/pressure/cpu: seconds in which some process had to wait for a CPU.

    Its first line is ``some avg10=0.00 avg60=0.00 avg300=0.00 total=N``, in microseconds.
    """
    words = text.split("\n", 1)[0].split()
    if words[:1] != ["some"] or not words[-1].startswith("total="):
        raise ValueError(f"not /proc/pressure/cpu: it begins with {text[:40]!r}")
    return int(words[-1].removeprefix("total=")) / 1e6


def pressure_ratio(before: Waiting | None, after: Waiting | None) -> float | None:
    """Return the share of time with a waiting process between two readings; None if unknown."""
    if before is None or after is None or after.at <= before.at:
        return None
    return min(1.0, max(0.0, (after.seconds - before.seconds) / (after.at - before.at)))


def parse_meminfo(text: str) -> dict[str, int]:
    """Parse the sizes in /proc/meminfo, in bytes."""
    sizes = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        match rest.split():
            case [number, "kB"]:
                sizes[name] = int(number) * 1024
    return sizes


def parse_cpu_model(text: str) -> str | None:
    """Parse the CPU's name from /proc/cpuinfo; None if it is missing (some ARM kernels)."""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "cpu model"):
            return value.strip() or None
    return None


DISTRIBUTION = "edge-testbed"
LIBRARIES = ("torch", "numpy", "grpcio", "pyroute2", "pydantic")
GIT_SECONDS = 10.0


@dataclass(frozen=True)
class Circumstances:
    """Properties of a run that only the code that starts it knows."""

    argv: Sequence[str]  # the command line
    time_scale: float  # emulated seconds per real second
    launch: str  # ``warm`` or ``cold``
    runtime: str
    uid_mode: str  # the uids of the roles, such as ``own uid per worker``
    offload: str  # the links' segmentation offloads, as configured
    left_out: Sequence[str] = ()  # network features missing because the kernel lacks netem
    images: Mapping[str, str] = field(default_factory=dict)  # IDs, by NodeSpec.image


def write_environment(folder: RunFolder, circumstances: Circumstances, *, package: Path) -> None:
    """Write ``environment.json``, with the commit of the checkout that holds the ``package``."""
    software = {  # without importing any of it
        "testbed": _version(DISTRIBUTION),
        "commit": describe_commit(package.parent),
        "python": platform.python_version(),
        **{name: _version(name) for name in LIBRARIES},
        "torch_build": torch_build(),
    }
    host = describe_host()
    content = {"format": FORMAT, "host": host, "software": software, **asdict(circumstances)}
    write_atomically(folder.environment, json.dumps(content, indent=2) + "\n")


def recorded_images(folder: RunFolder) -> Mapping[str, str]:
    """Return the IDs of a run's images by kind, as ``environment.json`` has them; else none."""
    content = read_json(folder.environment) or {}
    images: Mapping[str, str] = content.get("images", {})
    return images


def describe_host(proc: Path = PROC) -> Mapping[str, Any]:
    """Return CPU, cores, memory and kernel; None for values that the kernel does not report."""
    return {
        "name": platform.node(),
        "cpu": parse_cpu_model((proc / "cpuinfo").read_text()),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "memory_bytes": parse_meminfo((proc / "meminfo").read_text()).get("MemTotal"),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "system": _distribution(),
    }


def describe_commit(checkout: Path) -> Mapping[str, Any] | None:
    """Return a checkout's git commit and whether files were changed; None without a checkout."""
    if not (checkout / ".git").exists():
        return None
    commit = _git(checkout, "rev-parse", "HEAD")
    changes = _git(checkout, "status", "--porcelain", "--untracked-files=no")
    if commit is None:
        return None
    return {"hash": commit, "changed": None if changes is None else bool(changes)}


def torch_build() -> str | None:
    """Return the build of the installed torch, such as ``cpu`` or ``cuda 12.8``; None without it.

    Importing torch takes seconds, so its version file is read instead.
    """
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    version = Path(found.origin).with_name("version.py")
    return parse_torch_build(version.read_text()) if version.is_file() else None


def parse_torch_build(text: str) -> str:
    """Parse the build from the text of torch's ``version.py``."""
    for variable, name in (("cuda", "cuda"), ("hip", "rocm"), ("xpu", "xpu")):
        match = re.search(rf"^{variable}\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
        if match:
            return f"{name} {match[1]}"
    return "cpu"


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _distribution() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _git(checkout: Path, *arguments: str) -> str | None:
    """Return git's output; None without git, a commit, or git's trust in the folder."""
    command = ["git", "-C", str(checkout), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=GIT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
