"""What commands require of the host, and its capacity; importable on any system."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from testbed.errors import HostError


def require_linux(command: str, *, platform: str = sys.platform) -> None:
    """Refuse to run on systems other than Linux.

    Raises:
        HostError: this is another system, or its limits are too low for any run.
    """
    if platform != "linux":
        raise HostError(
            f"`testbed {command}` needs Linux (namespaces, cgroups, tc); this is {platform}.",
            hint="Use Linux, or a virtual machine with it; validate, plan and schema run on any "
            "system.",
        )
    import resource

    from testbed.host.limits import MIN_ADDRESS_BYTES, MIN_FILES

    for name, option, least in (
        ("RLIMIT_NOFILE", "ulimit -n", MIN_FILES),
        ("RLIMIT_AS", "ulimit -v", MIN_ADDRESS_BYTES),
    ):
        limit = resource.getrlimit(getattr(resource, name))[0]
        if limit != resource.RLIM_INFINITY and limit < least:
            unit = 1024 if option == "ulimit -v" else 1
            raise HostError(
                f"`{option}` is {limit // unit:,}; a run needs at least {least // unit:,}.",
                hint=f"Raise it: {option} {least // unit}",
            )


@dataclass(frozen=True)
class Capacity:
    """Capacity of the host: CPUs that this process may use, and bytes of memory."""

    cpus: int
    memory_bytes: int


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    has_affinity = hasattr(os, "sched_getaffinity")  # not on macOS
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


def capacity() -> Capacity:
    """Return the capacity of this host."""
    return Capacity(usable_cpus(), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
