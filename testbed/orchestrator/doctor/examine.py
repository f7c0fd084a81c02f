"""All checks, in the order in which a run meets what they look at."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.orchestrator.doctor import kernel, limits, resources, software
from testbed.orchestrator.doctor.findings import Case, Finding
from testbed.orchestrator.doctor.trial import try_run
from testbed.runtimes.base import RuntimeDriver


def examine(case: Case, driver: RuntimeDriver) -> Iterator[Finding]:
    """Look at everything that a run of this case needs; a container is started last."""
    yield kernel.check_kernel()
    yield kernel.check_namespaces()
    yield kernel.check_capabilities()
    yield kernel.check_control_groups()
    yield limits.check_address_space()
    yield limits.check_files(case)
    yield limits.check_processes(case)
    yield limits.check_inotify()
    yield resources.check_memory(case)
    yield resources.check_cpus(case)
    yield resources.check_disk(case)
    yield software.check_python()
    yield software.check_packages()
    yield software.check_data(case)
    yield from try_run(driver, case)
