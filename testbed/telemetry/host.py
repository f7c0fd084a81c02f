"""CPU usage, CPU pressure and available memory of the host, from /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
