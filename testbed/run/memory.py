"""Refuses a run that the host has not the memory for, before anything of it exists."""

from __future__ import annotations

import os
from pathlib import Path

from testbed.errors import HostError
from testbed.plan.budget import BYTES_PER_PARAMETER, budget, count_parameters
from testbed.scenario.schema import Scenario
from testbed.telemetry.host import PROC, parse_meminfo
from testbed.topology import Plan


def available_bytes(proc: Path = PROC) -> int:
    """Memory that could be had now without pushing anything out; all there is on old kernels."""
    sizes = parse_meminfo((proc / "meminfo").read_text())
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return sizes.get("MemAvailable", total)


def require_memory(scenario: Scenario, plan: Plan, *, available: int) -> None:
    """Compare a run's estimated memory with what is available.

    Args:
        scenario: of the run.
        plan: its nodes.
        available: bytes, see ``available_bytes``.

    Raises:
        HostError: it is not enough; says for how many workers it would be.
    """
    workers = scenario.workers.count
    needs = budget(scenario, plan, count_parameters(scenario))
    if needs.total_bytes <= available:
        return
    worker = needs.node_bytes["worker"]
    one_more = worker + BYTES_PER_PARAMETER * (needs.parameters or 0)
    fixed = needs.total_bytes - workers * one_more
    most = max(0, (available - fixed) // one_more)
    hint = f"Take fewer workers: --workers {most}" if most else "Use a host with more memory"
    raise HostError(
        f"this host has not the memory for {workers:,} workers: about "
        f"{needs.total_bytes / 1e6:,.0f} MB needed ({worker / 1e6:,.0f} MB a worker), "
        f"{available / 1e6:,.0f} MB available.",
        hint=f"{hint}; `testbed plan` shows what takes it.",
    )
