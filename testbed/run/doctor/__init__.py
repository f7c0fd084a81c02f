"""Checks that this host can run scenarios: one function per check, each with how to fix it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from testbed.run.doctor import kernel, resources
from testbed.run.doctor.docker import check_engine
from testbed.run.doctor.findings import ExaminedRun, Finding
from testbed.run.doctor.trial import try_run
from testbed.runtimes import Real


def check_native(case: ExaminedRun, runtime: Real) -> Iterator[Finding]:
    """Check what this process itself needs, and an engine, running as root, has anyway."""
    yield kernel.check_namespaces()
    yield kernel.check_capabilities()
    yield kernel.check_control_groups()
    yield resources.check_address_space()
    yield resources.check_files(case)
    yield resources.check_kafka(case)


OF_RUNTIME: Mapping[str, Callable[[ExaminedRun, Any], Iterator[Finding]]] = {
    "docker": check_engine,
    "native": check_native,
}


def examine(case: ExaminedRun, runtime: Real) -> Iterator[Finding]:
    """Run all checks, in the order in which a run depends on them; a trial container comes last."""
    yield kernel.check_kernel()
    found = list(OF_RUNTIME[runtime.name](case, runtime))
    yield from found
    missing = any(finding.level == "missing" for finding in found)
    yield resources.check_processes(case)
    yield resources.check_inotify()
    yield resources.check_memory(case)
    yield resources.check_cpus(case)
    yield resources.check_disk(case)
    yield resources.check_python()
    yield resources.check_packages()
    yield resources.check_data(case)
    if not (
        missing and runtime.capabilities.engine
    ):  # an engine with a missing part cannot start containers
        yield from try_run(runtime.driver(), case)
