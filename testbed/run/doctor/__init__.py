"""Checks that this host can run scenarios: one function per check, each with how to fix it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from testbed.run.doctor import host
from testbed.run.doctor.docker import check_engine
from testbed.run.doctor.host import ExaminedRun, Finding
from testbed.run.doctor.trial import try_run
from testbed.runtimes import Real


def check_native(case: ExaminedRun, runtime: Real) -> Iterator[Finding]:
    """Check what this process itself needs, and an engine, running as root, has anyway."""
    yield host.check_namespaces()
    yield host.check_capabilities()
    yield host.check_control_groups()
    yield host.check_address_space()
    yield host.check_files(case)
    yield host.check_kafka(case)


OF_RUNTIME: Mapping[str, Callable[[ExaminedRun, Any], Iterator[Finding]]] = {
    "docker": check_engine,
    "native": check_native,
}


def examine(case: ExaminedRun, runtime: Real) -> Iterator[Finding]:
    """Run all checks, in the order in which a run depends on them; a trial container comes last."""
    yield host.check_kernel()
    found = list(OF_RUNTIME[runtime.name](case, runtime))
    yield from found
    missing = any(finding.level == "missing" for finding in found)
    yield host.check_processes(case)
    yield host.check_inotify()
    yield host.check_memory(case)
    yield host.check_cpus(case)
    yield host.check_disk(case)
    yield host.check_python()
    yield host.check_packages()
    yield host.check_data(case)
    if not (
        missing and runtime.capabilities.engine
    ):  # an engine with a missing part cannot start containers
        yield from try_run(runtime.driver(), case)
