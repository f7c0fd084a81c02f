"""The input and the results of the checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from testbed.plan.budget import AGENT_BYTES, Budget
from testbed.plan.nodes.base import PYTHON_BYTES
from testbed.values.topology import Plan

Level = Literal["ok", "warning", "missing"]

SERVICES = 2
"""The parameter server and the evaluator."""


@dataclass(frozen=True)
class Finding:
    """The result of a check."""

    check: str
    level: Level  # ``missing`` if `testbed up` would not work, ``warning`` if something would not
    found: str  # the actual state, and the expected one if it differs
    fix: str = ""  # how to fix it; empty if there is nothing to fix


@dataclass(frozen=True)
class ExaminedRun:
    """The run that a host is examined for."""

    workers: int
    runs: Path  # folder of all runs
    environment: Mapping[str, str]  # of this process
    cache: Path  # folder of prepared data sets
    plan: Plan | None = None  # of the run; None without a scenario
    budget: Budget | None = None  # of the run; None without a scenario
    container_bytes: int = 0  # what the runtime keeps for each container

    @property
    def gpu(self) -> bool:
        """Whether a node uses GPUs."""
        return self.plan is not None and any(node.gpus for node in self.plan.nodes)

    @property
    def broker(self) -> bool:
        """Whether its streams come through a broker."""
        return self.plan is not None and any(node.image == "kafka" for node in self.plan.nodes)

    @property
    def nodes(self) -> int:
        """The number of its nodes."""
        return self.workers + SERVICES if self.plan is None else len(self.plan.nodes)

    @property
    def memory_bytes(self) -> int:
        """The estimated memory of the run; without a scenario, of a model without parameters."""
        if self.budget is not None:
            return self.budget.total_bytes
        return AGENT_BYTES + (self.workers + SERVICES) * self.worker_bytes

    @property
    def worker_bytes(self) -> int:
        """The estimated memory of one more worker."""
        if self.budget is not None:
            return self.budget.node_bytes["worker"]
        return PYTHON_BYTES["warm"] + self.container_bytes
