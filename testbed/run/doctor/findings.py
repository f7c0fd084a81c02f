"""What is examined, and what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from testbed.nodes.base import PYTHON_BYTES
from testbed.plan.budget import AGENT_BYTES, Budget
from testbed.topology import Plan

Level = Literal["ok", "warning", "missing"]

SERVICES = 2
"""The parameter server and the evaluator."""


@dataclass(frozen=True)
class Finding:
    """What a check has found."""

    check: str
    level: Level  # ``missing`` if `testbed up` would not work, ``warning`` if something would not
    found: str  # what there is, and what was expected where that is not the same
    mend: str = ""  # what to do about it; empty where there is nothing to do


@dataclass(frozen=True)
class ExaminedRun:
    """The run that a host is examined for."""

    workers: int
    runs: Path  # folder of all runs
    environment: Mapping[str, str]  # of this process
    cache: Path  # where prepared data sets lie
    plan: Plan | None = None  # of the run; None without a scenario
    budget: Budget | None = None  # of the run; None without a scenario
    container_bytes: int = 0  # what the runtime keeps for each container

    @property
    def gpu(self) -> bool:
        """Whether a node is to use GPUs."""
        return self.plan is not None and any(node.gpus for node in self.plan.nodes)

    @property
    def broker(self) -> bool:
        """Whether its streams come through a broker."""
        return self.plan is not None and any(node.image == "kafka" for node in self.plan.nodes)

    @property
    def nodes(self) -> int:
        """How many nodes it has."""
        return self.workers + SERVICES if self.plan is None else len(self.plan.nodes)

    @property
    def memory_bytes(self) -> int:
        """What the run takes, estimated; without a scenario, with a model of no size."""
        if self.budget is not None:
            return self.budget.total_bytes
        return AGENT_BYTES + (self.workers + SERVICES) * self.worker_bytes

    @property
    def worker_bytes(self) -> int:
        """What one more worker takes."""
        if self.budget is not None:
            return self.budget.node_bytes["worker"]
        return PYTHON_BYTES["warm"] + self.container_bytes
