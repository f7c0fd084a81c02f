"""Checks of the Docker engine: that it answers, can host runs, and has the image and disk space."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from testbed.errors import HostError
from testbed.runtimes.base import NO_KAFKA, Finding
from testbed.runtimes.docker.abilities import ENFORCED_BY, limits_in
from testbed.runtimes.docker.engine import connect, describe, product_of
from testbed.runtimes.docker.image import check_image, find_kafka_image

LIMITS = {
    **ENFORCED_BY,
    "swap, and thus memory limits without swap": "SwapLimit",
    "processes": "PidsLimit",
}
"""What an engine limits, by its field of ``docker info``."""

CONTAINER_DISK_BYTES = 1_000_000
"""Disk space of one container: its metadata and a read-only root file system."""

DISK_AT_LEAST_BYTES = 200_000_000


def examine_engine(image: str, *, workers: int, gpu: bool, broker: bool) -> Iterator[Finding]:
    """Run all checks of the engine; only the first if it does not answer."""
    try:
        with connect() as engine:
            info = describe()
            yield Finding("engine", "ok", f"{product_of(info)} {info.get('ServerVersion')}")
            try:
                yield Finding("image", "ok", check_image(engine, image, gpu=gpu))
            except HostError as error:
                yield Finding("image", "missing", error.message, error.hint)
            try:
                yield Finding("Kafka's image", "ok", find_kafka_image(engine))
            except HostError as error:
                if broker:
                    yield Finding("Kafka's image", "missing", error.message, error.hint)
                else:
                    yield Finding("Kafka's image", "ok", NO_KAFKA)
    except HostError as error:
        yield Finding("engine", "missing", error.message, error.hint)
        return
    yield check_group_driver(info)
    yield check_engine_limits(info)
    yield check_data_root(info, workers)
    if limits := limits_in(info).host.get("Ulimits"):
        found = ", ".join(f"{one['Name']} {one['Hard']:,}" for one in limits)
        yield Finding("containers' ulimits", "ok", f"{found}: no more than this user's own")


def check_group_driver(info: Mapping[str, Any]) -> Finding:
    """Report the engine's cgroup driver, for the record: the agent works with any container's."""
    driver, version = info.get("CgroupDriver"), info.get("CgroupVersion", "1")
    if driver == "none":
        found = "the engine has no cgroup driver: it cannot limit or pause containers"
        fix = "Run the engine as root on a host with cgroups."
        return Finding("engine's control groups", "missing", found, fix)
    return Finding("engine's control groups", "ok", f"version {version}, driver {driver}")


def check_engine_limits(info: Mapping[str, Any]) -> Finding:
    """Check for limits that the kernel does not offer the engine: scenarios cannot use them."""
    lacking = [words for words, name in LIMITS.items() if not info.get(name)]
    if lacking:
        found = (
            f"the engine cannot limit {', '.join(lacking)}: scenarios with such limits are rejected"
        )
        fix = "Check the warnings of `docker info`; for swap, boot the kernel with swapaccount=1."
        return Finding("engine's limits", "warning", found, fix)
    return Finding("engine's limits", "ok", "memory, cpu, cpuset, processes")


def check_data_root(info: Mapping[str, Any], workers: int) -> Finding:
    """Check the disk that holds the engine's images and containers."""
    root = Path(info.get("DockerRootDir", "/var/lib/docker"))
    try:
        free = shutil.disk_usage(root).free
    except OSError as error:  # readable only for root
        found = f"{root}: {error.strerror}; its free space is unknown"
        return Finding("engine's disk", "warning", found, f"Check it as root: sudo df -h {root}")
    wanted = DISK_AT_LEAST_BYTES + CONTAINER_DISK_BYTES * workers
    text = f"{free / 1e6:,.0f} MB free at {root}"
    if free < wanted:
        fix = "Free disk space: docker system prune, testbed image prune"
        return Finding("engine's disk", "missing", f"{text}, expected {wanted / 1e6:,.0f} MB", fix)
    return Finding("engine's disk", "ok", text)
