"""Checks that this host can run scenarios: one function per check, each with how to fix it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from testbed.run.doctor import host
from testbed.run.doctor.host import ExaminedRun
from testbed.run.doctor.hosts import examine_hosts
from testbed.run.doctor.nodes import check_nodes
from testbed.run.doctor.trial import try_run
from testbed.runtimes import Docker, Real
from testbed.runtimes.base import Finding


def check_user(case: ExaminedRun) -> Iterator[Finding]:
    """Check what this process itself needs, and an engine, running as root, has anyway."""
    yield host.check_namespaces()
    yield host.check_capabilities()
    yield host.check_control_groups()
    yield host.check_address_space()
    yield host.check_files(case)
    yield host.check_kafka(case)


def examine(case: ExaminedRun, runtime: Real, *, phase: Callable[[str], None]) -> Iterator[Finding]:
    """Run all checks, in the order in which a run depends on them; a trial container comes last.

    ``phase`` announces what takes long.
    """
    driver, engine = runtime.driver(), runtime.capabilities.engine
    yield host.check_kernel()
    if not engine:
        yield from check_user(case)
    found = list(driver.examine(workers=case.workers, gpu=case.gpu, broker=case.broker))
    found += check_nodes(case, driver, reported={finding.found for finding in found})
    yield from found
    missing = any(finding.level == "missing" for finding in found)
    yield host.check_processes(case)
    yield host.check_inotify()
    yield host.check_memory(case)
    yield host.check_cpus(case)
    yield host.check_disk(case)
    yield host.check_python()
    yield host.check_packages(gpu=case.gpu)
    yield host.check_data(case)
    if not (missing and engine):  # an engine with a missing part cannot start containers
        yield from try_run(driver, case)
        if isinstance(runtime, Docker) and runtime.swarm is not None:
            yield from examine_hosts(driver, case, runtime.swarm, phase=phase)
