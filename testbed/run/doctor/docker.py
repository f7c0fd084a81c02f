"""Checks of the Docker engine: does it answer, can runs live in it, has it the image and room."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from testbed.errors import HostError
from testbed.run.doctor.findings import ExaminedRun, Finding
from testbed.run.doctor.resources import NO_KAFKA
from testbed.runtimes import Docker

LIMITS = {
    "MemoryLimit": "memory",
    "SwapLimit": "swap, and so none on memory that holds",
    "CpuCfsQuota": "cpu",
    "CPUSet": "cpuset",
    "PidsLimit": "processes",
}
"""What the engine says it can limit, under its own names."""

CONTAINER_DISK_BYTES = 1_000_000
"""Of one container: its records and a root file system that is only read."""

DISK_AT_LEAST_BYTES = 200_000_000


def check_engine(case: ExaminedRun, runtime: Docker) -> Iterator[Finding]:
    """Everything about the engine; the rest is left out where it does not answer."""
    from testbed.runtimes.docker.engine import connect, describe
    from testbed.runtimes.docker.image import check_image, find_kafka_image

    try:
        with connect() as engine:
            info = describe(engine)
            yield Finding("engine", "ok", f"Docker {info.get('ServerVersion')}")
            try:
                image = check_image(engine, runtime.image or "", gpu=case.gpu)
                yield Finding("image", "ok", image)
            except HostError as error:
                yield Finding("image", "missing", error.message, error.hint)
            try:
                yield Finding("Kafka's image", "ok", find_kafka_image(engine))
            except HostError as error:
                if case.broker:
                    yield Finding("Kafka's image", "missing", error.message, error.hint)
                else:
                    yield Finding("Kafka's image", "ok", NO_KAFKA)
    except HostError as error:
        yield Finding("engine", "missing", error.message, error.hint)
        return
    yield check_group_driver(info)
    yield check_engine_limits(info)
    yield check_data_root(info, case)


def check_group_driver(info: Mapping[str, Any]) -> Finding:
    """The agent enters whatever groups a container has; this is for the record."""
    driver, version = info.get("CgroupDriver"), info.get("CgroupVersion", "1")
    if driver == "none":
        found = "the engine has no driver of control groups: nothing is limited, or paused"
        mend = "Run the engine as root, with cgroups."
        return Finding("engine's control groups", "missing", found, mend)
    return Finding("engine's control groups", "ok", f"version {version}, driver {driver}")


def check_engine_limits(info: Mapping[str, Any]) -> Finding:
    """Limits that a scenario may ask for are refused where the kernel gives the engine none."""
    lacking = [words for name, words in LIMITS.items() if not info.get(name)]
    if lacking:
        found = (
            f"the engine cannot limit {', '.join(lacking)}: scenarios that ask for it are refused"
        )
        mend = "See the warnings of `docker info`; swapaccount=1 on the kernel's command line."
        return Finding("engine's limits", "warning", found, mend)
    return Finding("engine's limits", "ok", "memory, cpu, cpuset, processes")


def check_data_root(info: Mapping[str, Any], case: ExaminedRun) -> Finding:
    """Where the engine keeps images and containers."""
    root = Path(info.get("DockerRootDir", "/var/lib/docker"))
    try:
        free = shutil.disk_usage(root).free
    except OSError as error:  # root's alone
        found = f"{root}: {error.strerror}; its free space is not known"
        return Finding("engine's disk", "warning", found, f"See it as root: sudo df -h {root}")
    wanted = DISK_AT_LEAST_BYTES + CONTAINER_DISK_BYTES * case.workers
    text = f"{free / 1e6:,.0f} MB free at {root}"
    if free < wanted:
        mend = "Make room: docker system prune, testbed image prune"
        return Finding("engine's disk", "missing", f"{text}, expected {wanted / 1e6:,.0f} MB", mend)
    return Finding("engine's disk", "ok", text)
