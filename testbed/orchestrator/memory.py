"""Refuses a run that the host has not the memory for, before anything of it exists."""

from __future__ import annotations

import os
from pathlib import Path

from testbed.errors import HostError
from testbed.orchestrator.budget import BYTES_PER_PARAMETER, budget
from testbed.orchestrator.model_size import count_parameters
from testbed.orchestrator.plan import plan
from testbed.scenario.schema import Scenario
from testbed.telemetry.host import PROC, parse_meminfo


def available_bytes(proc: Path = PROC) -> int:
    """Memory that could be had now without pushing anything out; all there is on old kernels."""
    sizes = parse_meminfo((proc / "meminfo").read_text())
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return sizes.get("MemAvailable", total)


def require_memory(scenario: Scenario, *, available: int) -> None:
    """Compare a run's estimated memory with what is available.

    Args:
        scenario: of the run.
        available: bytes, see ``available_bytes``.

    Raises:
        HostError: it is not enough; says for how many workers it would be.
    """
    workers = scenario.workers.count
    needs = budget(scenario, plan(scenario, scenario.name), count_parameters(scenario))
    if needs.total_bytes <= available:
        return
    one_more = needs.worker_bytes + BYTES_PER_PARAMETER * (needs.parameters or 0)
    fixed = needs.total_bytes - workers * one_more
    most = max(0, (available - fixed) // one_more)
    hint = f"Take fewer workers: --workers {most}" if most else "Use a host with more memory"
    raise HostError(
        f"this host has not the memory for {workers:,} workers: about "
        f"{needs.total_bytes / 1e6:,.0f} MB needed ({needs.worker_bytes / 1e6:,.0f} MB a worker), "
        f"{available / 1e6:,.0f} MB available.",
        hint=f"{hint}; `testbed plan` shows what takes it.",
    )
