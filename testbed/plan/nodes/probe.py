"""Probes: temporary spare nodes that measure a link. No scenario has them."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.plan.nodes.base import Role
from testbed.scenario.schema import Scenario
from testbed.values.topology import NodeSpec


class ProbeRole(Role):
    """The nodes of testbed.run.probe."""

    name = "probe"
    entry = "testbed.roles.prober:main"
    end = "expected"
    reads_run = False

    def nodes(self, scenario: Scenario) -> Iterator[NodeSpec]:
        return iter(())
